"""Bytes of optimizer state of the paper's models."""

from qlocaladam.jobs import logged, write

with logged(snakemake.log[0]):
    from qlocaladam.analysis import memory
    from qlocaladam.models import PAPER_MODELS

    # Data of your own have no model there.
    known = [place for place in snakemake.params.places if place[0] in PAPER_MODELS]
    write(snakemake.output[0], memory.optimizer_memory(snakemake.params.arms, known))
