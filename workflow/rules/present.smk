# Files that are there as asked, and that no other rule makes.

# Snakemake refuses to be asked for a file that no rule makes, also where it is there.
if present := set(THERE) & set(sys.argv):

    rule there:
        output:
            [update(file) for file in sorted(present)],
        log:
            f"{RESULTS}/logs/there.log",
        localrule: True
        shell:
            ": > {log:q}"
