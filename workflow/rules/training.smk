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
            runtime=training_minutes,
            gpu=SIZE["resources"]["gpu"],
        params:
            flags=training_flags,
            folder=subpath(output.summary, parent=True),
        shell:
            "python -m qlocaladam train --data {input.data:q} --partition {input.partition:q} --out {params.folder:q} "
            "--threads {threads} --overwrite {params.flags:q} > {log:q} 2>&1"


if LAYOUT.absent and workflow.is_main_process:
    lines = [f"{RESULTS}/runs/{name}: {LACKING_RUNS[name]}" for name in RUNS if name in LAYOUT.absent]
    why = f"{LAYOUT.kept} is shown" if LAYOUT.kept else "train is false"
    logger.warning("\n  ".join([f"{why}, and {len(lines)} of {len(PLACES)} runs are not there as asked:", *lines]))
