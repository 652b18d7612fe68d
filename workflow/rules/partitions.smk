# Who holds which training images. The seed of a run is also that of its partition.


rule partitions:
    input:
        sorted({LAYOUT.partition_file(place) for place in PLACES}),
        f"{EXACT}/clients.csv",
        f"{EXACT}/data_distribution.csv",


rule partition:
    input:
        data="results/data/{data}.npz",
    output:
        f"{RESULTS}/partitions/{{data}}/images~{{images}}/clients~{{clients}}/alpha~{{alpha}}/seed~{{seed}}.npz",
    log:
        f"{RESULTS}/logs/partitions/{{data}}/images~{{images}}/clients~{{clients}}/alpha~{{alpha}}/seed~{{seed}}.log",
    localrule: True
    conda:
        "../../envs/environment.yaml"
    params:
        images=image_flag,
    shell:
        "python -m qlocaladam partition --data {input.data:q} {params.images:q} --clients {wildcards.clients:q} "
        "--alpha {wildcards.alpha:q} --seed {wildcards.seed:q} --out {output:q} > {log:q} 2>&1"
