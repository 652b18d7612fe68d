# Who holds which training images. The seed of a run is also that of its partition.


rule partitions:
    input:
        [partition_file(row) for row in GRID[["dataset", "alpha", "seed"]].drop_duplicates().itertuples()],
        f"{EXACT}/clients.csv",
        f"{EXACT}/heterogeneity.csv",


rule partition:
    input:
        data=lambda wildcards: data_file(wildcards.dataset),
    output:
        f"{RESULTS}/partitions/dataset~{{dataset}}/alpha~{{alpha}}/seed~{{seed}}.npz",
    log:
        f"{RESULTS}/logs/partitions/dataset~{{dataset}}/alpha~{{alpha}}/seed~{{seed}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/partitions/dataset~{{dataset}}/alpha~{{alpha}}/seed~{{seed}}.tsv"
    localrule: True
    conda:
        "../../envs/environment.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=5,
    params:
        flags=lambda wildcards: partition_flags(wildcards.dataset),
    shell:
        "python -m qlocaladam partition --data {input.data} --alpha {wildcards.alpha} --seed {wildcards.seed} "
        "{params.flags} --out {output} > {log} 2>&1"
