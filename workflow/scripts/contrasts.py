"""How far arms are from one of them."""

from pathlib import Path

from qlocaladam.jobs import logged, write_analysis

with logged(snakemake.log[0]):
    from qlocaladam.analysis import contrasts
    from qlocaladam.experiments.runs import read_runs

    runs = read_runs(snakemake.params.runs, snakemake.params.asked)
    made = contrasts.files(runs, snakemake.params.margin, snakemake.params.baseline)
    write_analysis(Path(snakemake.output[0]).parent, made)
