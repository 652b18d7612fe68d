"""Printed, released and rebuilt, line by line, as Markdown."""

from pathlib import Path

from qlocaladam.jobs import logged, write

with logged(snakemake.log[0]):
    from qlocaladam.results import released

    write(snakemake.output[0], released.markdown(Path(snakemake.input.source), snakemake.params.labels))
