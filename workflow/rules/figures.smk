# Figures: PDF for print, PNG for a screen. `snakemake figures` makes them all.


rule figures:
    input:
        expand(f"{FIGURES}/{{figure}}.{{format}}", figure=FIGURE_NAMES, format=["pdf", "png"]),


rule figure:
    input:
        unpack(figure_inputs),
        code=code_with_kind("figure"),
    output:
        pdf=f"{FIGURES}/{{figure}}.pdf",
        png=report(
            f"{FIGURES}/{{figure}}.png",
            caption="../report/figure.rst",
            category=section,
            labels={"result": "Figure {figure}"},
        ),
    log:
        f"{RESULTS}/logs/figures/{{figure}}.log",
    localrule: True
    conda:
        "../../envs/environment.yaml"
    params:
        spec=by("figure", LAYOUT.figure_spec),
        panels=panels,
    script:
        "../scripts/figure.py"


rule rulegraph:
    input:
        snakefile=project_file("Snakefile"),
        rules=sorted(map(str, Path(project_file("workflow/rules")).glob("*.smk"))),
        configfile=project_file("config.yaml"),
    output:
        f"{FIGURES}/rulegraph.svg",
    log:
        f"{RESULTS}/logs/rulegraph.log",
    localrule: True
    conda:
        "../../envs/environment.yaml"
    params:
        given=[f"scale={SCALE}", *(f"{group}={config[group]}" for group in grid.GROUPS)],
    shell:
        "(snakemake --snakefile {input.snakefile:q} --forceall --rulegraph dot --config {params.given:q} | "
        "snakevision --skip-rules all --output {output:q}) 2> {log:q}"


# The pictures that README and RESULTS.md show are copies, and kept in git. `snakemake gallery` brings them up to date.


rule gallery:
    input:
        f"docs/images/{SCALE}/rulegraph.svg",
        [f"docs/images/{SCALE}/{figure}.png" for figure in config["gallery"] if figure in FIGURE_NAMES],


rule picture:
    input:
        f"{FIGURES}/{{picture}}",
    output:
        f"docs/images/{SCALE}/{{picture}}",
    log:
        f"{RESULTS}/logs/pictures/{{picture}}.log",
    localrule: True
    conda:
        "../../envs/environment.yaml"
    shell:
        "cp {input:q} {output:q} 2> {log:q}"
