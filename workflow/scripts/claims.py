"""A verdict on each number that the paper prints."""

import json
from pathlib import Path

from qlocaladam.jobs import logged, write

with logged(snakemake.log[0]):
    from qlocaladam.ledger import claims, form, presentation

    scale, numbers = snakemake.params.scale, json.loads(Path(snakemake.input.numbers).read_text())
    verdicts = claims.judge(form.load(snakemake.input.published), numbers, scale)
    print(presentation.summary(verdicts))
    write(snakemake.output.csv, verdicts)
    write(snakemake.output.counts, presentation.counts_latex(verdicts, scale))
    write(snakemake.output.disagreements, presentation.disagreements_latex(verdicts, scale))
    write(snakemake.output.macros, presentation.macros(verdicts))
