# The document. It needs TeX, which nothing else does.


rule paper:
    input:
        f"{LATEX}/paper.pdf",


rule compile:
    input:
        main=project_file("paper/main.tex"),
        references=project_file("paper/references.bib"),
        tables=expand(f"{LATEX}/tables/{{table}}.tex", table=TABLES),
        figures=expand(f"{FIGURES}/{{figure}}.pdf", figure=FIGURE_NAMES),
        numbers=f"{LATEX}/numbers.tex",
        claims=f"{LATEX}/claims.tex",
        verdicts=f"{LATEX}/tables/claims.tex",
        disagreements=f"{LATEX}/tables/disagreements.tex",
    output:
        f"{LATEX}/paper.pdf",
    log:
        f"{RESULTS}/logs/paper.log",
    benchmark:
        f"{RESULTS}/benchmarks/paper.tsv"
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
        pretex=lambda wildcards: definitions(),
        hint=NO_TEX,
        main=lambda wildcards, input: os.path.relpath(input.main, "paper"),
        references=lambda wildcards, input: str(Path(input.references).parent.absolute()),
    shell:
        "exec > {log:q} 2>&1; command -v latexmk || {{ echo {params.hint:q}; exit 1; }}; "
        "mkdir -p {params.folder:q}/figures && cp {input.figures:q} {params.folder:q}/figures/ && cd paper && "
        "BIBINPUTS={params.references:q}: latexmk -pdf -interaction=nonstopmode -halt-on-error -outdir=generated/{params.scale:q}/build -jobname=paper "
        "-usepretex={params.pretex:q} {params.main:q} && "
        "cp generated/{params.scale:q}/build/paper.pdf generated/{params.scale:q}/paper.pdf"
