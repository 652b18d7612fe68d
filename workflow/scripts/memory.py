"""Bytes of optimizer state of the paper's models."""

from qlocaladam.jobs import logged, write

with logged(snakemake.log[0]):
    from qlocaladam.analysis import footprint
    from qlocaladam.models import PAPER_MODELS

    known = [
        place for place in snakemake.params.places if place[0] in PAPER_MODELS
    ]  # your own data have no model there
    write(snakemake.output[0], footprint.memory(snakemake.params.arms, known))
