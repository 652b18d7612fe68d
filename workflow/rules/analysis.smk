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


for exact, files in EXACT_FILES.items():

    rule:
        name:
            exact
        input:
            **LAYOUT.exact_inputs(exact),
            code=code("exact_analysis", f"analysis/{exact}"),
        output:
            [f"{EXACT}/{file}" for file in files],
        log:
            f"{EXACT}/logs/{exact}.log",
        localrule: True
        conda:
            "../../envs/environment.yaml"
        params:
            analysis=exact,
            options=LAYOUT.exact_options(exact),
        script:
            "../scripts/exact_analysis.py"


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
for trained in CLIENT_FILES:

    rule:
        name:
            trained
        input:
            unpack(analysis_inputs(trained)),
        output:
            LAYOUT.analysis_files(trained, "{dataset}"),
        log:
            f"{RESULTS}/logs/{trained}/{{dataset}}.log",
        benchmark:
            f"{RESULTS}/benchmarks/{trained}/{{dataset}}.tsv"
        wildcard_constraints:
            dataset=needed(trained, LACKING_ANALYSES[trained]),
        conda:
            "../../envs/environment.yaml"
        threads: SIZE["resources"]["threads"]
        resources:
            mem_mb=max(kinds.ANALYSES[trained].mem_mb, SIZE["resources"]["mem_mb"]),
            runtime=analysis_minutes(trained),
            gpu=SIZE["resources"]["gpu"],
        params:
            analysis=trained,
            options=analysis_options(trained),
            arms=LAYOUT.analysed_arms(trained),
        script:
            "../scripts/client_analysis.py"
