# Data sets: each one file, checked by hash. Whatever needs the network happens here.

LACKING_DATA = {
    LAYOUT.data_of(name): "" if LAYOUT.prepared(LAYOUT.data_of(name)) else "not there" for name in SIZE["datasets"]
}


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
    params:
        source=source_flag,
    shell:
        "python -m qlocaladam data {wildcards.data:q} {params.source:q} --out {output.data:q} > {log:q} 2>&1"
