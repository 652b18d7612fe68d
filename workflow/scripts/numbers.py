"""Every number that a text quotes, as LaTeX and JSON."""

from qlocaladam.jobs import logged, named, write

with logged(snakemake.log[0]):
    from qlocaladam.experiments.runs import read_runs
    from qlocaladam.results import numbers

    spec = snakemake.params.spec
    made = numbers.collect(spec, read_runs(snakemake.params.runs, spec["asked"]), named(snakemake.input))
    write(snakemake.output.json, numbers.as_json(made))
    write(snakemake.output.tex, numbers.as_latex(made))
