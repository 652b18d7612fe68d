"""One table, as LaTeX and CSV."""

from qlocaladam.jobs import logged, named, write

with logged(snakemake.log[0]):
    from qlocaladam.experiments.runs import read_runs
    from qlocaladam.results import tables

    spec, folders = snakemake.params.spec, snakemake.params.runs
    runs = read_runs(folders, spec["asked"]) if folders else None
    table = tables.build(spec, runs, named(snakemake.input))
    write(snakemake.output.csv, table.csv())
    write(snakemake.output.tex, table.latex())
