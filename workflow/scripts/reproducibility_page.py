"""The reproducibility summary as Markdown, from its template."""

from pathlib import Path

from qlocaladam.jobs import logged, write

with logged(snakemake.log[0]):
    from qlocaladam.report import template

    out = Path(snakemake.output[0])
    write(out, template.reproducibility(out.parent, **snakemake.params.spec))
