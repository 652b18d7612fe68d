"""The paper's partitions at full size."""

from pathlib import Path

from qlocaladam.jobs import logged, write_analysis

with logged(snakemake.log[0]):
    from qlocaladam.analysis import data_distribution

    write_analysis(Path(snakemake.output[0]).parent, data_distribution.files())
