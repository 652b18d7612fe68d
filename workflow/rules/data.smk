# Data sets: each one file, checked by hash. Whatever needs the network happens here.


rule data:
    input:
        sorted({data_file(dataset) for dataset in GRID["dataset"]}),


rule prepare:
    input:
        source=data_source,
    output:
        data="results/data/{data}.npz",
        note="results/data/{data}.npz.json",
    log:
        "results/data/{data}.log",
    benchmark:
        "results/data/{data}.benchmark.tsv"
    localrule: True
    conda:
        "../../envs/environment.yaml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        source=lambda wildcards, input: [f"--source={path}" for path in input.source],
    shell:
        "python -m qlocaladam data {wildcards.data} {params.source:q} --out {output.data} > {log} 2>&1"
