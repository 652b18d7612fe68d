"""Finished results of a scale in a folder for git."""

from pathlib import Path

from qlocaladam.jobs import logged

with logged(snakemake.log[0]):
    from qlocaladam.report import reference

    tables = [Path(path) for path in snakemake.input.tables]
    runs = [Path(folder) for folder in snakemake.params.runs]
    folder = Path(snakemake.output.runs).parent
    reference.write(folder, runs, Path(snakemake.input.claims), tables, snakemake.params.asked)
