"""A table as HTML."""

from pathlib import Path

from qlocaladam.jobs import logged, write

with logged(snakemake.log[0]):
    from qlocaladam.report import html

    write(snakemake.output[0], html.table_page(snakemake.params.spec, Path(snakemake.input.table)))
