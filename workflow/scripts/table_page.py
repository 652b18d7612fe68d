"""A table as HTML."""

from pathlib import Path

from qlocaladam.jobs import logged, write

with logged(snakemake.log[0]):
    from qlocaladam.report import page

    write(snakemake.output[0], page.table_html(snakemake.params.spec, Path(snakemake.input.table)))
