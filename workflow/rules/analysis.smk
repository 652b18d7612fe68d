# What is measured: at the paper's own size where nothing is trained, on this scale's runs and models otherwise.

LACKING_ANALYSES = {
    analysis: {dataset: LAYOUT.analysis_lacks(analysis, dataset) for dataset in LAYOUT.shown(analysis)}
    for analysis in CLIENT_FILES
}


rule analysis:
    input:
        [f"{EXACT}/{name}" for names in EXACT_FILES.values() for name in names],
        [LAYOUT.test_files(kind, table) for kind, tables in LAYOUT.tested.items() for table in tables],
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


# Of the runs of a table, over their seeds.
for kind in TEST_FILES:

    rule:
        name:
            kind
        input:
            **LAYOUT.test_inputs(kind),
            runs=table_runs,
            code=code("test_over_seeds", f"analysis/{kind}"),
        output:
            LAYOUT.test_files(kind, "{table}"),
        log:
            f"{RESULTS}/logs/{kind}/{{table}}.log",
        localrule: True
        conda:
            "../../envs/environment.yaml"
        params:
            analysis=kind,
            runs=table_folders,
            asked=table_asked,
            options=by("table", partial(LAYOUT.test_options, kind)),
        script:
            "../scripts/test_over_seeds.py"


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
            options=by("dataset", partial(kinds.ANALYSES[trained].options, LAYOUT)),
            arms=LAYOUT.analysed_arms(trained),
        script:
            "../scripts/client_analysis.py"
