"""RESULTS.md of the repository, from its template and the results kept in paper/reference."""

from pathlib import Path

from snakemake.script import snakemake

from qlocaladam.files import write_whole
from qlocaladam.report import template

paths = (Path(snakemake.input[name]) for name in ("template", "registered"))
text = template.kept_results(*paths, Path(snakemake.params.reference), snakemake.params.labels)
write_whole(snakemake.output[0], lambda file: file.write(text.encode()))
