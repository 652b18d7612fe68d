"""Error against magnitude of every code."""

from pathlib import Path

from qlocaladam.jobs import logged, write_analysis

with logged(snakemake.log[0]):
    from qlocaladam.analysis import precision

    write_analysis(Path(snakemake.output[0]).parent, precision.files())
