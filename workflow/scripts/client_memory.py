"""All that a client of the paper's models holds."""

from qlocaladam.jobs import logged, write

with logged(snakemake.log[0]):
    from qlocaladam.analysis.client_memory import client_memory

    write(snakemake.output[0], client_memory(snakemake.params.arms, snakemake.params.block_size))
