"""Tests over seeds against FP32."""

from qlocaladam.jobs import logged, write

with logged(snakemake.log[0]):
    from qlocaladam.analysis import significance
    from qlocaladam.experiments.runs import read_runs

    write(snakemake.output[0], significance.compare(read_runs(snakemake.params.runs, snakemake.params.asked)))
