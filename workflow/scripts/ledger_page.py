"""The ledger of claims as HTML, with filters."""

from pathlib import Path

from qlocaladam.jobs import logged, write

with logged(snakemake.log[0]):
    from qlocaladam.report import page

    claims = page.read_claims(Path(snakemake.input.claims))
    write(snakemake.output[0], page.ledger_html(claims, snakemake.params.scale))
