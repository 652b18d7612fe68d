# One federated training run for each place in the grid.


rule train:
    input:
        run_files(LAYOUT.runs),


if config["train"] and not LAYOUT.kept:

    rule training_run:
        input:
            unpack(training_inputs),
        output:
            history=f"{RESULTS}/runs/{{run}}/history.csv",
            settings=f"{RESULTS}/runs/{{run}}/settings.json",
            timings=f"{RESULTS}/runs/{{run}}/timings.csv",
            summary=f"{RESULTS}/runs/{{run}}/summary.json",
        log:
            f"{RESULTS}/logs/runs/{{run}}.log",
        benchmark:
            f"{RESULTS}/benchmarks/runs/{{run}}.tsv"
        wildcard_constraints:
            run=needed("training_run", LACKING_RUNS),
        conda:
            "../../envs/environment.yaml"
        threads: SIZE["resources"]["threads"]
        resources:
            mem_mb=SIZE["resources"]["mem_mb"],
            # Tried again (a profile's `retries`), a run gets more time and goes on from its checkpoint.
            runtime=lambda wildcards, attempt: attempt * SIZE["resources"]["runtime"],
            gpu=SIZE["resources"]["gpu"],
        params:
            flags=lambda wildcards: grid.training_flags(LAYOUT.asked(LAYOUT.runs), RUNS[wildcards.run]),
            folder=subpath(output.summary, parent=True),
        shell:
            "python -m qlocaladam train --data {input.data:q} --partition {input.partition:q} --out {params.folder:q} "
            "--threads {threads} --overwrite {params.flags:q} > {log:q} 2>&1"
