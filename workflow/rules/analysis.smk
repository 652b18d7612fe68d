# What is measured: at the paper's own size where nothing is trained, on this scale's runs and models otherwise.

LACKING_ANALYSES = {
    analysis: {dataset: LAYOUT.analysis_lacks(analysis, dataset) for dataset in LAYOUT.shown(analysis)}
    for analysis in CLIENT_FILES
}


rule analysis:
    input:
        [f"{EXACT}/{name}" for names in EXACT_FILES.values() for name in names],
        [LAYOUT.significance_file(table) for table in LAYOUT.tested],
        [LAYOUT.contrasts_file(table, name) for table in LAYOUT.compared for name in ("contrasts", "differences")],
        [LAYOUT.answers_file(table) for table in LAYOUT.asking],
        [LAYOUT.analysis_files(analysis, dataset) for analysis in CLIENT_FILES for dataset in LAYOUT.shown(analysis)],


rule memory:
    input:
        code=code("memory"),
    output:
        f"{EXACT}/memory.csv",
    log:
        f"{EXACT}/logs/memory.log",
    localrule: True
    conda:
        "../../envs/environment.yaml"
    params:
        arms=LAYOUT.sized_arms(),
        places=LAYOUT.sized_places(),
    script:
        "../scripts/memory.py"


rule client_memory:
    input:
        code=code("client_memory"),
    output:
        f"{EXACT}/client_memory.csv",
    log:
        f"{EXACT}/logs/client_memory.log",
    localrule: True
    conda:
        "../../envs/environment.yaml"
    params:
        arms=LAYOUT.sized_arms(),
        block_size=config["defaults"]["block_size"],
    script:
        "../scripts/client_memory.py"


rule scaling:
    input:
        code=code("scaling"),
    output:
        f"{EXACT}/scaling.csv",
    log:
        f"{EXACT}/logs/scaling.log",
    localrule: True
    conda:
        "../../envs/environment.yaml"
    script:
        "../scripts/scaling.py"


rule precision:
    input:
        code=code("precision"),
    output:
        f"{EXACT}/precision.csv",
        f"{EXACT}/precision_summary.csv",
        f"{EXACT}/precision_by_decade.csv",
    log:
        f"{EXACT}/logs/precision.log",
    localrule: True
    conda:
        "../../envs/environment.yaml"
    script:
        "../scripts/precision.py"


rule data_distribution:
    input:
        code=code("data_distribution"),
    output:
        f"{EXACT}/clients.csv",
        f"{EXACT}/data_distribution.csv",
    log:
        f"{EXACT}/logs/data_distribution.log",
    localrule: True
    conda:
        "../../envs/environment.yaml"
    script:
        "../scripts/data_distribution.py"


rule participation:
    input:
        clients=f"{EXACT}/clients.csv",
        code=code("participation"),
    output:
        f"{EXACT}/sampling.json",
        f"{EXACT}/steps.csv",
    log:
        f"{EXACT}/logs/participation.log",
    localrule: True
    conda:
        "../../envs/environment.yaml"
    script:
        "../scripts/participation.py"


rule significance:
    input:
        runs=table_runs,
        code=code("significance"),
    output:
        LAYOUT.significance_file("{table}"),
    log:
        f"{RESULTS}/logs/significance/{{table}}.log",
    localrule: True
    conda:
        "../../envs/environment.yaml"
    params:
        runs=table_folders,
        asked=table_asked,
    script:
        "../scripts/significance.py"


rule contrasts:
    input:
        runs=table_runs,
        code=code("contrasts"),
    output:
        LAYOUT.contrasts_file("{table}"),
        LAYOUT.contrasts_file("{table}", "differences"),
    log:
        f"{RESULTS}/logs/contrasts/{{table}}.log",
    localrule: True
    conda:
        "../../envs/environment.yaml"
    params:
        runs=table_folders,
        asked=table_asked,
        margin=margin,
        baseline=baseline,
    script:
        "../scripts/contrasts.py"


rule answers:
    input:
        runs=table_runs,
        questions=project_file("paper/registered.yaml"),
        code=code("answers"),
    output:
        LAYOUT.answers_file("{table}"),
    log:
        f"{RESULTS}/logs/registered/{{table}}.log",
    localrule: True
    conda:
        "../../envs/environment.yaml"
    params:
        runs=table_folders,
        asked=table_asked,
        scale=SCALE,
    script:
        "../scripts/answers.py"


# These train a client or a model themselves.


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
        runtime=training_minutes,
        gpu=SIZE["resources"]["gpu"],
    params:
        analysis="distributions",
        options=analysis_options("distributions"),
        arms={},
    script:
        "../scripts/client_analysis.py"


use rule distributions as step_errors with:
    input:
        unpack(analysis_inputs("step_errors")),
    output:
        LAYOUT.analysis_files("step_errors", "{dataset}"),
    log:
        f"{RESULTS}/logs/step_errors/{{dataset}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/step_errors/{{dataset}}.tsv"
    wildcard_constraints:
        dataset=needed("step_errors", LACKING_ANALYSES["step_errors"]),
    params:
        analysis="step_errors",
        options=analysis_options("step_errors"),
        arms=LAYOUT.analysed_arms("step_errors"),


use rule distributions as variance with:
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
    params:
        analysis="variance",
        options=analysis_options("variance"),
        arms={},


use rule distributions as model_size with:
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
    resources:
        mem_mb=max(1500, SIZE["resources"]["mem_mb"]),
        runtime=analysis_minutes(60),
        gpu=SIZE["resources"]["gpu"],
    params:
        analysis="model_size",
        options=analysis_options("model_size"),
        arms=LAYOUT.analysed_arms("model_size"),


use rule distributions as microscope with:
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
    resources:
        mem_mb=max(4000, SIZE["resources"]["mem_mb"]),
        runtime=analysis_minutes(600),
        gpu=SIZE["resources"]["gpu"],
    params:
        analysis="microscope",
        options=analysis_options("microscope"),
        arms=LAYOUT.analysed_arms("microscope"),
