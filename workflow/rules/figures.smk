# Figures: PDF for print, PNG for a screen. `snakemake figures` makes them all.


rule figures:
    input:
        expand(f"{FIGURES}/{{figure}}.{{format}}", figure=FIGURE_NAMES, format=["pdf", "png"]),


rule figure:
    input:
        unpack(figure_inputs),
        code=code("results/figures", "results/style", "experiments/runs"),
    output:
        pdf=f"{FIGURES}/{{figure}}.pdf",
        png=report(
            f"{FIGURES}/{{figure}}.png",
            caption="../report/figure.rst",
            category=lambda wildcards: page.numbered(page.section(config["figures"][wildcards.figure])),
            labels={"result": "Figure {figure}"},
        ),
    log:
        f"{RESULTS}/logs/figures/{{figure}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/figures/{{figure}}.tsv"
    localrule: True
    conda:
        "../../envs/environment.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=5,
    params:
        spec=lambda wildcards: json.dumps(LAYOUT.figure_spec(wildcards.figure)),
        panels=lambda wildcards: panel_flags(wildcards.figure),
        files=lambda wildcards, input: [f"--file={pair}" for pair in named(input)],
    shell:
        "python -m qlocaladam figure --spec {params.spec:q} {params.panels:q} {params.files:q} "
        "--pdf {output.pdf:q} --png {output.png:q} > {log:q} 2>&1"


rule rulegraph:
    input:
        snakefile=project_file("Snakefile"),
        configfile=project_file("config.yaml"),
    output:
        f"{FIGURES}/rulegraph.svg",
    log:
        f"{RESULTS}/logs/rulegraph.log",
    benchmark:
        f"{RESULTS}/benchmarks/rulegraph.tsv"
    localrule: True
    conda:
        "../../envs/environment.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=5,
    params:
        scale=SCALE,
    shell:
        "(snakemake --snakefile {input.snakefile:q} --forceall --rulegraph dot --config scale={params.scale:q} | snakevision --skip-rules all --output {output:q}) 2> {log:q}"


# The pictures that README and RESULTS.md show are copies, and kept in git. `snakemake gallery` brings them up to date.


rule gallery:
    input:
        expand(f"docs/images/{SCALE}/{{picture}}", picture=PICTURES),


rule picture:
    input:
        f"{FIGURES}/{{picture}}",
    output:
        f"docs/images/{SCALE}/{{picture}}",
    log:
        f"{RESULTS}/logs/pictures/{{picture}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/pictures/{{picture}}.tsv"
    localrule: True
    conda:
        "../../envs/environment.yaml"
    threads: 1
    resources:
        mem_mb=100,
        runtime=1,
    shell:
        "cp {input:q} {output:q} 2> {log:q}"
