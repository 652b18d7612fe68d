"""A test of the runs of a table, over their seeds."""

from importlib import import_module
from pathlib import Path

from qlocaladam.jobs import logged, named, write_analysis

with logged(snakemake.log[0]):
    from qlocaladam.experiments.runs import read_runs

    given = snakemake.params
    runs = read_runs(given.runs, given.asked)
    made = import_module(f"qlocaladam.analysis.{given.analysis}").files(runs, **given.options, **named(snakemake.input))
    write_analysis(Path(snakemake.output[0]).parent, made)
