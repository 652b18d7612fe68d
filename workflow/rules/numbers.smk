# Numbers that a text quotes, each with the file it came from.


rule numbers:
    input:
        f"{LATEX_TOGETHER}/numbers.tex",
        f"{TOGETHER}/numbers.json",


rule collect_numbers:
    input:
        **LAYOUT.number_files(),
        runs=run_files(LAYOUT.runs, *FILES[1:]),
        code=code("numbers", "results/kinds/*"),
    output:
        tex=f"{LATEX_TOGETHER}/numbers.tex",
        json=f"{TOGETHER}/numbers.json",
    log:
        f"{TOGETHER}/logs/numbers.log",
    localrule: True
    conda:
        "../../envs/environment.yaml"
    params:
        spec=LAYOUT.numbers_spec(),
        runs=run_folders(LAYOUT.runs),
    script:
        "../scripts/numbers.py"
