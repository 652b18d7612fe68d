"""An analysis that trains a client or a model itself."""

from pathlib import Path

from qlocaladam.jobs import logged, write_analysis

with logged(snakemake.log[0]):
    import torch

    torch.set_num_threads(snakemake.threads)
    from qlocaladam.analysis import trained
    from qlocaladam.cli.arguments import load_subset

    options = dict(snakemake.params.options)
    data = load_subset(snakemake.input.data, *(options.pop(f"{part}_images", None) for part in ("train", "test")))
    partition = snakemake.input.get("partition")
    made = trained.analyse(snakemake.params.analysis, options, data, partition, snakemake.params.arms)
    paths = map(Path, snakemake.output)
    write_analysis(Path(snakemake.output[0]).parent, {path.name: file for path, file in zip(paths, made, strict=True)})
