# Whether everything is what the configuration makes. `snakemake check` asks, makes nothing, and ends with an error if not.

CONFIGURATION = configuration.as_arguments(dict.fromkeys(CONFIGURED_BY), config if MODULE else COMMAND_LINE)


rule check:
    log:
        f"{RESULTS}/logs/check.log",
    localrule: True
    conda:
        "../../envs/environment.yaml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=15,
    params:
        configuration=lambda wildcards: CONFIGURATION,
        csv=f"{RESULTS}/check.csv",
        html=f"{RESULTS}/check.html",
    shell:
        "python -m qlocaladam check {params.configuration:q} --csv {params.csv:q} --html {params.html:q} 2> {log:q}"


# The same at the end of everything. Its outcome is kept also where it is bad, and then the next rule fails.
rule check_results:
    input:
        run_files(LAYOUT.runs, *FILES[1:]),
        rules.partitions.input,
        rules.analysis.input,
        rules.tables.input,
        rules.figures.input,
        rules.numbers.input,
        rules.claims.input,
        rules.pages.input,
        code=code("report/check", "optim", "codecs"),
    output:
        csv=f"{RESULTS}/check.csv",
        html=report(
            f"{RESULTS}/check.html",
            caption="../report/check.rst",
            category=page.numbered("Claims"),
            labels={"result": "Check of the results"},
        ),
    log:
        f"{RESULTS}/logs/check_results.log",
    benchmark:
        f"{RESULTS}/benchmarks/check_results.tsv"
    localrule: True
    conda:
        "../../envs/environment.yaml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=15,
    params:
        configuration=lambda wildcards: CONFIGURATION,
        sha256=hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest(),  # any change is looked at
    shell:
        "python -m qlocaladam check {params.configuration:q} --csv {output.csv:q} --html {output.html:q} "
        "--record > {log:q} 2>&1"


rule passed:
    input:
        f"{RESULTS}/check.csv",
    output:
        touch(f"{RESULTS}/check.passed"),
    log:
        f"{RESULTS}/logs/passed.log",
    benchmark:
        f"{RESULTS}/benchmarks/passed.tsv"
    localrule: True
    conda:
        "../../envs/environment.yaml"
    threads: 1
    resources:
        mem_mb=100,
        runtime=1,
    shell:
        "! grep -E ',(wrong|missing),' {input:q} > {log:q}"
