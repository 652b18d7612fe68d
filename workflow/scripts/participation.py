"""Client sampling and local steps."""

from pathlib import Path

from qlocaladam.jobs import logged, write_analysis

with logged(snakemake.log[0]):
    from qlocaladam.analysis import participation

    write_analysis(Path(snakemake.output[0]).parent, participation.files(Path(snakemake.input.clients)))
