# The document. It needs TeX, which nothing else does.

NO_TEX = (
    "The paper needs TeX: apt-get install --no-install-recommends latexmk texlive-latex-recommended texlive-science "
    "texlive-latex-extra, or conda install -c conda-forge texlive-core latexmk"
)


rule paper:
    input:
        f"{LATEX_TOGETHER}/paper.pdf",


rule compile:
    input:
        main=project_file("paper/main.tex"),
        references=project_file("paper/references.bib"),
        tables=expand(f"{LATEX}/tables/{{table}}.tex", table=TABLES),
        figures=expand(f"{FIGURES}/{{figure}}.pdf", figure=FIGURE_NAMES),
        numbers=f"{LATEX_TOGETHER}/numbers.tex",
        claims=f"{LATEX_TOGETHER}/claims.tex",
        verdicts=f"{LATEX_TOGETHER}/tables/claims.tex",
        disagreements=f"{LATEX_TOGETHER}/tables/disagreements.tex",
    output:
        f"{LATEX_TOGETHER}/paper.pdf",
    log:
        f"{TOGETHER}/logs/paper.log",
    localrule: True
    conda:
        "../../envs/environment.yaml"
    params:
        build=f"{os.path.relpath(LATEX_TOGETHER, 'paper')}/build",
        pictures=pictures_of_paper,
        definitions=definitions,
        hint=NO_TEX,
        main=main_from_paper,
        references=folder_of_references,
    shell:
        "exec > {log:q} 2>&1; command -v latexmk || {{ echo {params.hint:q}; exit 1; }}; "
        "mkdir -p {params.pictures:q} && cp {input.figures:q} {params.pictures:q} && cd paper && "
        "BIBINPUTS={params.references:q}: latexmk -pdf -interaction=nonstopmode -halt-on-error "
        "-outdir={params.build:q} -jobname=paper -usepretex={params.definitions:q} {params.main:q} && "
        "cp {params.build:q}/paper.pdf {params.build:q}/../paper.pdf"
