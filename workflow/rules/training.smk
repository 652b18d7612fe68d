# One federated training run for each place in the grid.


rule train:
    input:
        run_files(SPACE.dataframe),


if config["train"]:

    rule training_run:
        input:
            data=lambda wildcards: settled(wildcards.dataset, data_file(wildcards.dataset)),
            partition=lambda wildcards: settled(wildcards.dataset, partition_file(wildcards)),
        output:
            history=f"{RESULTS}/runs/{SPACE.wildcard_pattern}/history.csv",
            settings=f"{RESULTS}/runs/{SPACE.wildcard_pattern}/settings.json",
            timings=f"{RESULTS}/runs/{SPACE.wildcard_pattern}/timings.csv",
            summary=f"{RESULTS}/runs/{SPACE.wildcard_pattern}/summary.json",
        log:
            f"{RESULTS}/logs/runs/{SPACE.wildcard_pattern}.log",
        benchmark:
            f"{RESULTS}/benchmarks/runs/{SPACE.wildcard_pattern}.tsv"
        conda:
            "../../envs/environment.yaml"
        threads: SIZE["resources"]["threads"]
        resources:
            mem_mb=SIZE["resources"]["mem_mb"],
            # Tried again (a profile's `retries`), a run gets more time and goes on from its checkpoint.
            runtime=lambda wildcards, attempt: attempt * SIZE["resources"]["runtime"],
            gpu=SIZE["resources"]["gpu"],
        params:
            flags=training_flags,
            dealt=lambda wildcards: partition_flags(wildcards.dataset),
            folder=subpath(output.summary, parent=True),
        shell:
            "python -m qlocaladam train --data {input.data} --partition {input.partition} --out {params.folder} "
            "--threads {threads} {params.flags} > {log} 2>&1"
