"""The ledger of claims as HTML, with filters."""

from pathlib import Path

from qlocaladam.jobs import logged, write

with logged(snakemake.log[0]):
    from qlocaladam.ledger import presentation
    from qlocaladam.report import html

    claims = presentation.read(Path(snakemake.input.claims))
    out = Path(snakemake.output[0])
    write(out, html.ledger_page(claims, snakemake.params.scale, out.parent))
