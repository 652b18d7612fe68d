"""Answers to the registered questions."""

from qlocaladam.jobs import logged, write

with logged(snakemake.log[0]):
    from qlocaladam.analysis import registered
    from qlocaladam.experiments.runs import read_runs

    runs = read_runs(snakemake.params.runs, snakemake.params.asked)
    questions = registered.load(snakemake.input.questions)
    write(snakemake.output[0], registered.answers(questions, runs, snakemake.params.scale))
