"""Columns of a table's page: what people read of a CSV, rounded. The file itself is one click away."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from qlocaladam.experiments.runs import ALL_ROUNDS

Row = Mapping[str, str]
Columns = Mapping[str, Callable[[Row], str]]
"""Cells by head."""


def p_value(value: float) -> str:
    """Two significant digits; of what is below 0.0001 only that."""
    return "<0.0001" if value < 0.0001 else f"{value:#.2g}"


def column(name: str, form: str = "", unit: float = 1) -> Callable[[Row], str]:
    """The cells of a column: words as they are, or numbers in this form."""

    def cell(row: Row) -> str:
        value = row.get(name, "")
        return format(float(value) / unit, form) if value and form else value

    return cell


ERRORS: Columns = {
    "Median error (learning rates)": column("median", ".2g"),
    "99th percentile": column("p99", ".2g"),
    "Largest error": column("max", ".2g"),
}
"""How far steps are off."""


def accuracy(name: str) -> Callable[[Row], str]:
    """A mean, and over several seeds its deviation."""
    mean, deviation = column(name, ".2f"), column(f"{name}_std", ".2f")
    return lambda row: " \N{PLUS-MINUS SIGN} ".join(filter(None, [mean(row), deviation(row)]))


def p_column(name: str) -> Callable[[Row], str]:
    return lambda row: p_value(float(row[name])) if row.get(name) else ""


def interval(row: Row, name: str = "ci") -> str:
    ends = [column(f"{name}_{end}", "+z.2f")(row) for end in ("low", "high")]
    return f"{ends[0]} to {ends[1]}" if all(ends) else ""


def yes_or_no(name: str) -> Callable[[Row], str]:
    return lambda row: {"True": "yes", "False": "no"}.get(row.get(name, ""), "")


def all_rounds(row: Row) -> str:
    """Where best accuracies are tested, `mean` is theirs."""
    return accuracy(ALL_ROUNDS if ALL_ROUNDS in row else "mean")(row)


TRAINED: Columns = {
    "Seeds": column("seeds"),
    "Accuracy of the last third (%)": accuracy("last_third"),
    "Best accuracy (%)": accuracy("best"),
    "Final accuracy (%)": accuracy("final"),
    "Accuracy of all rounds (%)": all_rounds,
    "Difference (pp)": column("difference", "+z.2f"),
    "95 % interval": interval,
    "p (pooled)": p_column("p"),
    "p (Welch)": p_column("welch_p"),
    "Optimizer memory (MB)": column("memory_bytes", ".2f", 1e6),
    "Collapsed": yes_or_no("collapsed"),
    "Runs diverged": column("diverged"),
}
"""Of tables whose rows are runs, or means of runs."""
