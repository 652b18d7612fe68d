"""RESULTS.md of the repository, from its template and the results kept in paper/reference."""

from pathlib import Path

from qlocaladam.jobs import logged, write

with logged(snakemake.log[0]):
    from qlocaladam.report import template

    paths = (Path(snakemake.input.template), Path(snakemake.input.registered), Path(snakemake.params.reference))
    write(snakemake.output[0], template.kept_results(*paths, snakemake.params.labels))
