# Whether everything is what the configuration makes. `snakemake check` asks, makes nothing, and ends with an error if not.


rule check:
    log:
        f"{TOGETHER}/logs/check.log",
    localrule: True
    conda:
        "../../envs/environment.yaml"
    params:
        configuration=configuration_arguments,
        csv=f"{TOGETHER}/check.csv",
        html=f"{TOGETHER}/check.html",
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
        code=code("check", "results/kinds/*", "analysis/*"),
    output:
        csv=f"{TOGETHER}/check.csv",
        html=report(
            f"{TOGETHER}/check.html",
            caption="../report/check.rst",
            category=page.numbered("Claims"),
            labels={"result": "Check of the results"},
        ),
    log:
        f"{TOGETHER}/logs/check_results.log",
    localrule: True
    conda:
        "../../envs/environment.yaml"
    threads: 2
    params:
        config=config,  # any change is looked at
    script:
        "../scripts/check.py"


rule passed:
    input:
        f"{TOGETHER}/check.csv",
    output:
        touch(f"{TOGETHER}/check.passed"),
    log:
        f"{TOGETHER}/logs/passed.log",
    localrule: True
    conda:
        "../../envs/environment.yaml"
    shell:
        "! grep -E ',(wrong|missing),' {input:q} > {log:q}"
