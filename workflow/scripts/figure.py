"""One figure, as PDF and PNG."""

from pathlib import Path

from qlocaladam.jobs import logged, named

with logged(snakemake.log[0]):
    from qlocaladam.experiments.runs import read_runs
    from qlocaladam.results import figures

    spec = snakemake.params.spec
    panels = [read_runs(folders, asked) for folders, asked in snakemake.params.panels]
    figure = figures.draw(spec, panels, named(snakemake.input))
    figures.save(figure, Path(snakemake.output.pdf), Path(snakemake.output.png))
