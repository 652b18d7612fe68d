# The document. It needs TeX, which nothing else does.

NO_TEX = (
    "The paper needs TeX: apt-get install --no-install-recommends latexmk texlive-latex-recommended texlive-science "
    "texlive-latex-extra, or conda install -c conda-forge texlive-core latexmk"
)


def definitions(wildcards):
    """What the document is told: its scale, its folders, and a command by the name of each group that is on."""
    folders = {"generated": LATEX, "together": LATEX_TOGETHER}
    words = {"scale": SCALE, **{name: os.path.relpath(folder, "paper") for name, folder in folders.items()}}
    groups = {group: "" for group in grid.GROUPS if config[group]}
    return "".join(rf"\def\{name}{{{text}}}" for name, text in (words | groups).items())


def main_from_paper(wildcards, input):
    return os.path.relpath(input.main, "paper")


def folder_of_references(wildcards, input):
    return str(Path(input.references).parent.absolute())


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
        folder=LATEX,
        build=f"{os.path.relpath(LATEX_TOGETHER, 'paper')}/build",
        definitions=definitions,
        hint=NO_TEX,
        main=main_from_paper,
        references=folder_of_references,
    shell:
        "exec > {log:q} 2>&1; command -v latexmk || {{ echo {params.hint:q}; exit 1; }}; "
        "mkdir -p {params.folder:q}/figures && cp {input.figures:q} {params.folder:q}/figures/ && cd paper && "
        "BIBINPUTS={params.references:q}: latexmk -pdf -interaction=nonstopmode -halt-on-error "
        "-outdir={params.build:q} -jobname=paper -usepretex={params.definitions:q} {params.main:q} && "
        "cp {params.build:q}/paper.pdf {params.build:q}/../paper.pdf"
