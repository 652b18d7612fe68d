"""Everything in short as Markdown, with pictures."""

from pathlib import Path

from qlocaladam.jobs import logged, write

with logged(snakemake.log[0]):
    from qlocaladam.report import markdown

    files, out = snakemake.input, Path(snakemake.output[0])
    shown = [{Path(path).stem: Path(path) for path in paths} for paths in (files.tables, files.figures)]
    text = markdown.results_page(snakemake.params.spec, *shown, Path(files.numbers), Path(files.claims), out.parent)
    write(out, text)
