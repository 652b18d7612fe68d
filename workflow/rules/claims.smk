# The ledger: each number that the paper prints beside what was computed, with a verdict.


rule claims:
    input:
        f"{TOGETHER}/claims.csv",
        f"{LATEX_TOGETHER}/tables/claims.tex",
        f"{LATEX_TOGETHER}/tables/disagreements.tex",
        f"{LATEX_TOGETHER}/claims.tex",


rule judge:
    input:
        published=project_file("paper/published.yaml"),
        numbers=f"{TOGETHER}/numbers.json",
        code=code("claims"),
    output:
        csv=f"{TOGETHER}/claims.csv",
        counts=f"{LATEX_TOGETHER}/tables/claims.tex",
        disagreements=f"{LATEX_TOGETHER}/tables/disagreements.tex",
        macros=f"{LATEX_TOGETHER}/claims.tex",
    log:
        f"{TOGETHER}/logs/claims.log",
    localrule: True
    conda:
        "../../envs/environment.yaml"
    params:
        scale=SCALE,
    script:
        "../scripts/claims.py"
