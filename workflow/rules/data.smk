# Data sets: each one file, checked by hash. Whatever needs the network happens here.


rule data:
    input:
        sorted({LAYOUT.data_file(dataset) for dataset in LAYOUT.grid["dataset"]}),


rule prepare:
    input:
        unpack(data_inputs),
    output:
        data="results/data/{data}.npz",
        note="results/data/{data}.npz.json",
    log:
        "results/data/{data}.log",
    benchmark:
        "results/data/{data}.benchmark.tsv"
    wildcard_constraints:
        data=needed("prepare", LACKING_DATA),
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
        "python -m qlocaladam data {wildcards.data:q} {params.source:q} --out {output.data:q} > {log:q} 2>&1"
