# The ledger: each number that the paper prints beside what was computed, with a verdict.


rule claims:
    input:
        f"{RESULTS}/claims.csv",
        f"{LATEX}/tables/claims.tex",
        f"{LATEX}/tables/disagreements.tex",
        f"{LATEX}/claims.tex",


rule judge:
    input:
        published=project_file("paper/published.yaml"),
        numbers=f"{RESULTS}/numbers.json",
        code=code("ledger/claims", "results/latex"),
    output:
        csv=f"{RESULTS}/claims.csv",
        counts=f"{LATEX}/tables/claims.tex",
        disagreements=f"{LATEX}/tables/disagreements.tex",
        macros=f"{LATEX}/claims.tex",
    log:
        f"{RESULTS}/logs/claims.log",
    benchmark:
        f"{RESULTS}/benchmarks/claims.tsv"
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
        "python -m qlocaladam claims --scale {params.scale:q} --published {input.published:q} --numbers {input.numbers:q} "
        "--csv {output.csv:q} --counts {output.counts:q} --disagreements {output.disagreements:q} --macros {output.macros:q} > {log:q} 2>&1"
