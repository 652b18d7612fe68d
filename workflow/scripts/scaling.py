"""Optimizer memory against model size."""

from qlocaladam.jobs import logged, write

with logged(snakemake.log[0]):
    from qlocaladam.analysis import memory

    write(snakemake.output[0], memory.scaling())
