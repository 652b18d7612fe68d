# What is measured: at the paper's own size where nothing is trained, on this scale's runs and models otherwise.


rule analysis:
    input:
        [f"{EXACT}/{name}" for name in EXACT_FILES],
        expand(f"{RESULTS}/analysis/significance/{{table}}/significance.csv", table=TESTED),
        expand(f"{EQUIVALENCE}/{{table}}/{{file}}.csv", table=COMPARED, file=["equivalence", "differences"]),
        expand(f"{RESULTS}/analysis/distributions/{{dataset}}/{{file}}", dataset=PROBED, file=DISTRIBUTIONS),
        expand(f"{RESULTS}/analysis/steps/{{dataset}}/{{file}}", dataset=shown("steps"), file=STEPS),
        expand(f"{RESULTS}/analysis/variance/{{dataset}}/{{file}}", dataset=shown("variance"), file=VARIANCE),


rule memory:
    input:
        code=code("analysis/footprint"),
    output:
        f"{EXACT}/memory.csv",
    log:
        f"{EXACT}/logs/memory.log",
    benchmark:
        f"{EXACT}/benchmarks/memory.tsv"
    localrule: True
    conda:
        "../../envs/environment.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=5,
    params:
        folder=subpath(output[0], parent=True),
        arms=json.dumps(config["arms"]),
        wanted=sorted({f"{row.dataset}:{row.arm}:{row.block_size}" for row in GRID.itertuples()}),
    shell:
        "python -m qlocaladam analyse memory --arms {params.arms:q} --wanted {params.wanted} --out {params.folder} > {log} 2>&1"


rule scaling:
    input:
        code=code("analysis/footprint"),
    output:
        f"{EXACT}/scaling.csv",
    log:
        f"{EXACT}/logs/scaling.log",
    benchmark:
        f"{EXACT}/benchmarks/scaling.tsv"
    localrule: True
    conda:
        "../../envs/environment.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=5,
    params:
        folder=subpath(output[0], parent=True),
    shell:
        "python -m qlocaladam analyse scaling --out {params.folder} > {log} 2>&1"


rule precision:
    input:
        code=code("analysis/precision"),
    output:
        f"{EXACT}/precision.csv",
        f"{EXACT}/precision_summary.csv",
        f"{EXACT}/precision_by_decade.csv",
    log:
        f"{EXACT}/logs/precision.log",
    benchmark:
        f"{EXACT}/benchmarks/precision.tsv"
    localrule: True
    conda:
        "../../envs/environment.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=5,
    params:
        folder=subpath(output[0], parent=True),
    shell:
        "python -m qlocaladam analyse precision --out {params.folder} > {log} 2>&1"


rule heterogeneity:
    input:
        code=code("analysis/heterogeneity"),
    output:
        f"{EXACT}/clients.csv",
        f"{EXACT}/heterogeneity.csv",
    log:
        f"{EXACT}/logs/heterogeneity.log",
    benchmark:
        f"{EXACT}/benchmarks/heterogeneity.tsv"
    localrule: True
    conda:
        "../../envs/environment.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=5,
    params:
        folder=subpath(output[0], parent=True),
    shell:
        "python -m qlocaladam analyse heterogeneity --out {params.folder} > {log} 2>&1"


rule participation:
    input:
        clients=f"{EXACT}/clients.csv",
        code=code("analysis/participation"),
    output:
        f"{EXACT}/sampling.json",
        f"{EXACT}/steps.csv",
    log:
        f"{EXACT}/logs/participation.log",
    benchmark:
        f"{EXACT}/benchmarks/participation.tsv"
    localrule: True
    conda:
        "../../envs/environment.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=5,
    params:
        folder=subpath(output[0], parent=True),
    shell:
        "python -m qlocaladam analyse participation --clients {input.clients} --out {params.folder} > {log} 2>&1"


rule significance:
    input:
        runs=lambda wildcards: run_files(grid.selected(GRID, config["tables"][wildcards.table])),
        code=code("analysis/significance"),
    output:
        f"{RESULTS}/analysis/significance/{{table}}/significance.csv",
    log:
        f"{RESULTS}/logs/significance/{{table}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/significance/{{table}}.tsv"
    localrule: True
    conda:
        "../../envs/environment.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=5,
    params:
        folder=subpath(output[0], parent=True),
        runs=lambda wildcards, input: folders(input.runs),
    shell:
        "python -m qlocaladam analyse significance --runs {params.runs} --out {params.folder} > {log} 2>&1"


rule equivalence:
    input:
        runs=lambda wildcards: run_files(grid.selected(GRID, config["tables"][wildcards.table])),
        code=code("analysis/equivalence"),
    output:
        f"{EQUIVALENCE}/{{table}}/equivalence.csv",
        f"{EQUIVALENCE}/{{table}}/differences.csv",
    log:
        f"{RESULTS}/logs/equivalence/{{table}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/equivalence/{{table}}.tsv"
    localrule: True
    conda:
        "../../envs/environment.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=5,
    params:
        folder=subpath(output[0], parent=True),
        margin=lambda wildcards: config["tables"][wildcards.table]["margin"],
        baseline=lambda wildcards: config["tables"][wildcards.table].get("baseline", "fp32"),
        runs=lambda wildcards, input: folders(input.runs),
    shell:
        "python -m qlocaladam analyse equivalence --runs {params.runs} --margin {params.margin} "
        "--baseline {params.baseline} --out {params.folder} > {log} 2>&1"


rule distributions:
    input:
        data=lambda wildcards: settled(wildcards.dataset, data_file(wildcards.dataset)),
    output:
        [f"{RESULTS}/analysis/distributions/{{dataset}}/{name}" for name in DISTRIBUTIONS],
    log:
        f"{RESULTS}/logs/distributions/{{dataset}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/distributions/{{dataset}}.tsv"
    conda:
        "../../envs/environment.yaml"
    threads: SIZE["resources"]["threads"]
    resources:
        mem_mb=SIZE["resources"]["mem_mb"],
        runtime=lambda wildcards, attempt: attempt * SIZE["resources"]["runtime"],
        gpu=SIZE["resources"]["gpu"],
    params:
        flags=lambda wildcards: as_flags(probe_options(wildcards.dataset)),
        folder=subpath(output[0], parent=True),
    shell:
        "python -m qlocaladam analyse distributions --data {input.data} --out {params.folder} --threads {threads} "
        "{params.flags} > {log} 2>&1"


rule steps:
    input:
        unpack(lambda wildcards: watched_client(wildcards.dataset)),
        code=code("analysis/steps"),
    output:
        [f"{RESULTS}/analysis/steps/{{dataset}}/{name}" for name in STEPS],
    log:
        f"{RESULTS}/logs/steps/{{dataset}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/steps/{{dataset}}.tsv"
    conda:
        "../../envs/environment.yaml"
    threads: SIZE["resources"]["threads"]
    resources:
        mem_mb=SIZE["resources"]["mem_mb"],
        runtime=lambda wildcards, attempt: attempt * SIZE["resources"]["runtime"],
        gpu=SIZE["resources"]["gpu"],
    params:
        arms=json.dumps(watched_arms()),
        flags=lambda wildcards: as_flags(
            {name: value for name, value in watched_options(wildcards.dataset).items() if name != "rounds"}
        ),
        folder=subpath(output[0], parent=True),
    shell:
        "python -m qlocaladam analyse steps --data {input.data} --partition {input.partition} --arms {params.arms:q} "
        "--out {params.folder} --threads {threads} {params.flags} > {log} 2>&1"


rule variance:
    input:
        unpack(lambda wildcards: watched_client(wildcards.dataset)),
        code=code("analysis/variance"),
    output:
        [f"{RESULTS}/analysis/variance/{{dataset}}/{name}" for name in VARIANCE],
    log:
        f"{RESULTS}/logs/variance/{{dataset}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/variance/{{dataset}}.tsv"
    conda:
        "../../envs/environment.yaml"
    threads: SIZE["resources"]["threads"]
    resources:
        mem_mb=SIZE["resources"]["mem_mb"],
        runtime=lambda wildcards, attempt: attempt * SIZE["resources"]["runtime"],
        gpu=SIZE["resources"]["gpu"],
    params:
        flags=lambda wildcards: as_flags(watched_options(wildcards.dataset)),
        folder=subpath(output[0], parent=True),
    shell:
        "python -m qlocaladam analyse variance --data {input.data} --partition {input.partition} "
        "--out {params.folder} --threads {threads} {params.flags} > {log} 2>&1"
