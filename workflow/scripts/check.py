"""Whether results are what the configuration makes: what is found is kept, and who reads it decides."""

from qlocaladam.jobs import logged, write

with logged(snakemake.log[0]):
    from qlocaladam.report import check
    from qlocaladam.results.layout import Layout

    layout = Layout(snakemake.params.config)
    findings = check.check(layout, processes=snakemake.threads)
    print(check.summary(findings, layout), end="")
    write(snakemake.output.csv, findings)
    write(snakemake.output.html, check.as_html(findings, layout))
