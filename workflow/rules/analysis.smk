# What is measured: at the paper's own size where nothing is trained, on this scale's runs and models otherwise.


rule analysis:
    input:
        [f"{EXACT}/{name}" for names in EXACT_FILES.values() for name in names],
        [LAYOUT.significance_file(table) for table in LAYOUT.tested],
        [LAYOUT.contrasts_file(table, name) for table in LAYOUT.compared for name in ("contrasts", "differences")],
        [LAYOUT.answers_file(table) for table in LAYOUT.asking],
        [LAYOUT.analysis_files(analysis, dataset) for analysis in CLIENT_FILES for dataset in LAYOUT.shown(analysis)],


rule memory:
    input:
        code=code("analysis/footprint", "memory"),
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
        arms=lambda wildcards: json.dumps(LAYOUT.sized_arms()),
        wanted=["{}:{}:{}".format(*place) for place in LAYOUT.sized_places()],
    shell:
        "python -m qlocaladam analyse memory --arms {params.arms:q} --wanted {params.wanted:q} --out {params.folder:q} > {log:q} 2>&1"


rule client_memory:
    input:
        code=code("analysis/client_memory", "analysis/footprint", "memory"),
    output:
        f"{EXACT}/client_memory.csv",
    log:
        f"{EXACT}/logs/client_memory.log",
    benchmark:
        f"{EXACT}/benchmarks/client_memory.tsv"
    localrule: True
    conda:
        "../../envs/environment.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=5,
    params:
        folder=subpath(output[0], parent=True),
        arms=lambda wildcards: json.dumps(LAYOUT.sized_arms()),
        block_size=config["defaults"]["block_size"],
    shell:
        "python -m qlocaladam analyse client-memory --arms {params.arms:q} --block-size {params.block_size:q} "
        "--out {params.folder:q} > {log:q} 2>&1"


rule scaling:
    input:
        code=code("analysis/footprint", "memory"),
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
        "python -m qlocaladam analyse scaling --out {params.folder:q} > {log:q} 2>&1"


rule precision:
    input:
        code=code("analysis/precision", "codecs"),
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
        "python -m qlocaladam analyse precision --out {params.folder:q} > {log:q} 2>&1"


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
        "python -m qlocaladam analyse heterogeneity --out {params.folder:q} > {log:q} 2>&1"


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
        "python -m qlocaladam analyse participation --clients {input.clients:q} --out {params.folder:q} > {log:q} 2>&1"


rule significance:
    input:
        runs=lambda wildcards: run_files(LAYOUT.table_rows(wildcards.table), *FILES[1:]),
        code=code("analysis/significance"),
    output:
        LAYOUT.significance_file("{table}"),
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
        asked=lambda wildcards: json.dumps(LAYOUT.asked(LAYOUT.table_rows(wildcards.table))),
    shell:
        "python -m qlocaladam analyse significance --runs {params.runs:q} --asked {params.asked:q} --out {params.folder:q} > {log:q} 2>&1"


rule contrasts:
    input:
        runs=lambda wildcards: run_files(LAYOUT.table_rows(wildcards.table), *FILES[1:]),
        code=code("analysis/contrasts", "experiments/runs"),
    output:
        LAYOUT.contrasts_file("{table}"),
        LAYOUT.contrasts_file("{table}", "differences"),
    log:
        f"{RESULTS}/logs/contrasts/{{table}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/contrasts/{{table}}.tsv"
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
        asked=lambda wildcards: json.dumps(LAYOUT.asked(LAYOUT.table_rows(wildcards.table))),
    shell:
        "python -m qlocaladam analyse contrasts --runs {params.runs:q} --asked {params.asked:q} --margin {params.margin:q} "
        "--baseline {params.baseline:q} --out {params.folder:q} > {log:q} 2>&1"


rule answers:
    input:
        runs=lambda wildcards: run_files(LAYOUT.table_rows(wildcards.table), *FILES[1:]),
        questions=project_file("paper/registered.yaml"),
        code=code("analysis/registered", "analysis/contrasts", "experiments/runs"),
    output:
        LAYOUT.answers_file("{table}"),
    log:
        f"{RESULTS}/logs/registered/{{table}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/registered/{{table}}.tsv"
    localrule: True
    conda:
        "../../envs/environment.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=5,
    params:
        folder=subpath(output[0], parent=True),
        scale=SCALE,
        runs=lambda wildcards, input: folders(input.runs),
        asked=lambda wildcards: json.dumps(LAYOUT.asked(LAYOUT.table_rows(wildcards.table))),
    shell:
        "python -m qlocaladam analyse registered --runs {params.runs:q} --asked {params.asked:q} --questions {input.questions:q} "
        "--scale {params.scale:q} --out {params.folder:q} > {log:q} 2>&1"


rule distributions:
    input:
        unpack(analysis_inputs("distributions")),
    output:
        LAYOUT.analysis_files("distributions", "{dataset}"),
    log:
        f"{RESULTS}/logs/distributions/{{dataset}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/distributions/{{dataset}}.tsv"
    wildcard_constraints:
        dataset=needed("distributions", LACKING_ANALYSES["distributions"]),
    conda:
        "../../envs/environment.yaml"
    threads: SIZE["resources"]["threads"]
    resources:
        mem_mb=SIZE["resources"]["mem_mb"],
        runtime=lambda wildcards, attempt: attempt * SIZE["resources"]["runtime"],
        gpu=SIZE["resources"]["gpu"],
    params:
        flags=analysis_flags("distributions"),
        folder=subpath(output[0], parent=True),
    shell:
        "python -m qlocaladam analyse distributions --data {input.data:q} --out {params.folder:q} --threads {threads} "
        "{params.flags:q} > {log:q} 2>&1"


rule steps:
    input:
        unpack(analysis_inputs("steps")),
    output:
        LAYOUT.analysis_files("steps", "{dataset}"),
    log:
        f"{RESULTS}/logs/steps/{{dataset}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/steps/{{dataset}}.tsv"
    wildcard_constraints:
        dataset=needed("steps", LACKING_ANALYSES["steps"]),
    conda:
        "../../envs/environment.yaml"
    threads: SIZE["resources"]["threads"]
    resources:
        mem_mb=SIZE["resources"]["mem_mb"],
        runtime=lambda wildcards, attempt: attempt * SIZE["resources"]["runtime"],
        gpu=SIZE["resources"]["gpu"],
    params:
        arms=lambda wildcards: json.dumps(LAYOUT.watched_arms()),
        flags=analysis_flags("steps"),
        folder=subpath(output[0], parent=True),
    shell:
        "python -m qlocaladam analyse steps --data {input.data:q} --partition {input.partition:q} --arms {params.arms:q} "
        "--out {params.folder:q} --threads {threads} {params.flags:q} > {log:q} 2>&1"


rule variance:
    input:
        unpack(analysis_inputs("variance")),
    output:
        LAYOUT.analysis_files("variance", "{dataset}"),
    log:
        f"{RESULTS}/logs/variance/{{dataset}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/variance/{{dataset}}.tsv"
    wildcard_constraints:
        dataset=needed("variance", LACKING_ANALYSES["variance"]),
    conda:
        "../../envs/environment.yaml"
    threads: SIZE["resources"]["threads"]
    resources:
        mem_mb=SIZE["resources"]["mem_mb"],
        runtime=lambda wildcards, attempt: attempt * SIZE["resources"]["runtime"],
        gpu=SIZE["resources"]["gpu"],
    params:
        flags=analysis_flags("variance"),
        folder=subpath(output[0], parent=True),
    shell:
        "python -m qlocaladam analyse variance --data {input.data:q} --partition {input.partition:q} "
        "--out {params.folder:q} --threads {threads} {params.flags:q} > {log:q} 2>&1"


rule model_size:
    input:
        unpack(analysis_inputs("model_size")),
    output:
        LAYOUT.analysis_files("model_size", "{dataset}"),
    log:
        f"{RESULTS}/logs/model_size/{{dataset}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/model_size/{{dataset}}.tsv"
    wildcard_constraints:
        dataset=needed("model_size", LACKING_ANALYSES["model_size"]),
    conda:
        "../../envs/environment.yaml"
    threads: SIZE["resources"]["threads"]
    resources:
        mem_mb=max(1500, SIZE["resources"]["mem_mb"]),
        runtime=lambda wildcards, attempt: attempt * max(60, SIZE["resources"]["runtime"]),
        gpu=SIZE["resources"]["gpu"],
    params:
        arms=lambda wildcards: json.dumps(LAYOUT.watched_arms("model_size")),
        flags=analysis_flags("model_size"),
        folder=subpath(output[0], parent=True),
    shell:
        "python -m qlocaladam analyse model-size --data {input.data:q} --arms {params.arms:q} --out {params.folder:q} "
        "--threads {threads} {params.flags:q} > {log:q} 2>&1"


rule microscope:
    input:
        unpack(analysis_inputs("microscope")),
    output:
        LAYOUT.analysis_files("microscope", "{dataset}"),
    log:
        f"{RESULTS}/logs/microscope/{{dataset}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/microscope/{{dataset}}.tsv"
    wildcard_constraints:
        dataset=needed("microscope", LACKING_ANALYSES["microscope"]),
    conda:
        "../../envs/environment.yaml"
    threads: SIZE["resources"]["threads"]
    resources:
        mem_mb=max(4000, SIZE["resources"]["mem_mb"]),
        runtime=lambda wildcards, attempt: attempt * max(600, SIZE["resources"]["runtime"]),
        gpu=SIZE["resources"]["gpu"],
    params:
        arms=lambda wildcards: json.dumps(LAYOUT.watched_arms("microscope")),
        flags=analysis_flags("microscope"),
        folder=subpath(output[0], parent=True),
    shell:
        "python -m qlocaladam analyse microscope --data {input.data:q} --arms {params.arms:q} --out {params.folder:q} "
        "--threads {threads} {params.flags:q} > {log:q} 2>&1"
