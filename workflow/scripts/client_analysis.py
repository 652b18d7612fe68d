"""An analysis that trains a client or a model itself."""

from pathlib import Path

from qlocaladam.jobs import logged, write_analysis

with logged(snakemake.log[0]):
    import torch

    torch.set_num_threads(snakemake.threads)
    from qlocaladam.analysis import trained

    given, files = snakemake.params, snakemake.input
    made = trained.analyse(given.analysis, given.options, files.data, files.get("partition"), given.arms)
    paths = map(Path, snakemake.output)
    write_analysis(Path(snakemake.output[0]).parent, {path.name: file for path, file in zip(paths, made, strict=True)})
