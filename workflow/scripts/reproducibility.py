"""results/<scale>/REPRODUCIBILITY.md, from its template."""

from pathlib import Path

from snakemake.script import snakemake

from qlocaladam.files import write_whole
from qlocaladam.report import template

folder = Path(snakemake.output[0]).parent
text = template.reproducibility(Path(snakemake.input.template), folder, **snakemake.params.spec)
write_whole(snakemake.output[0], lambda file: file.write(text.encode()))
