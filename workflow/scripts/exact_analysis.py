"""An analysis that needs no training, at the paper's own size."""

from importlib import import_module
from pathlib import Path

from qlocaladam.jobs import logged, named, write_analysis

with logged(snakemake.log[0]):
    module = import_module(f"qlocaladam.analysis.{snakemake.params.analysis}")
    made = module.files(**snakemake.params.options, **named(snakemake.input))
    write_analysis(Path(snakemake.output[0]).parent, made)
