"""What pages say of each kind of table and figure: its section, its title, its columns as people read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from qlocaladam.experiments.runs import ALL_ROUNDS
from qlocaladam.results.latex import listed
from qlocaladam.results.numbers import p_value

Spec = Mapping[str, Any]
Row = Mapping[str, str]
Columns = Mapping[str, Callable[[Row], str]]

SECTIONS = (
    "Claims",
    "Registered questions",
    "Main results",
    "Heterogeneity",
    "Seeds",
    "Ablations",
    "Optimizer states",
    "Precision and memory",
    "Data",
    "Beyond the paper",
)
"""In the order they are read."""
SECTION_OF_KIND = {
    "heterogeneity": "Heterogeneity",
    "multiseed": "Seeds",
    "contrasts": "Seeds",
    "registered": "Registered questions",
    "distributions": "Optimizer states",
    "variance": "Optimizer states",
    "precision": "Precision and memory",
    "scaling": "Precision and memory",
    "client_memory": "Precision and memory",
    "released": "Claims",
    "model_size": "Optimizer states",
    "microscope": "Optimizer states",
    "data_distribution": "Data",
    "data_distribution_summary": "Data",
    "clients": "Data",
    "heatmap": "Data",
}
AXES = {
    "dataset": "Data set",
    "alpha": "\N{GREEK SMALL LETTER ALPHA}",
    "arm": "Arm",
    "block_size": "Block size",
    "lr": "Learning rate",
    "loss_scale": "Loss scale",
    "clients": "Clients",
    "clients_per_round": "Clients a round",
    "states": "States",
    "seed": "Seed",
}
"""The axes of the grid in words."""


def section(entry: Spec) -> str:
    """Where a table or a figure of config.yaml stands in the report."""
    if entry.get("group") == "beyond":
        return "Beyond the paper"
    if entry["kind"] in SECTION_OF_KIND:
        return SECTION_OF_KIND[entry["kind"]]
    first = entry.get("panels", [entry])[0]
    return "Main results" if "main" in first["experiments"] else "Ablations"


def numbered(name: str) -> str:
    """A section as the report calls it, which sorts them by name."""
    return f"{SECTIONS.index(name) + 1:02d}. {name}"


def figure_title(spec: Spec) -> str:
    """What a figure shows, in one line."""
    dataset, papers = spec.get("where", {}).get("dataset", ""), {"labels": {"dataset": spec["stands_for"]}}
    titles = {
        "contrasts": f"How far each arm is from one of them: table {spec.get('table')}",
        "registered": "Answers to the registered questions",
        "step_layers": "How far the last step of a client is off, by layer and arm",
        "variance": "The variance of Adam on clients by round, and its share below the floor by layer",
        "model_size": "The floor against the size of the model: variances below it, and how far each arm goes",
        "microscope": "Loss and largest error of each step of one client, with each arm",
        "steps": "How far the steps of each arm are off, by the size of the variance",
        "distributions": f"Variance and momentum of FP32 Adam, {label(spec, 'dataset', dataset)}",
        "precision": "Relative error of each 8-bit code against the size of the value",
        "client_memory": "What a whole client holds while it trains, and how little of it optimizer states are",
        "heatmap": f"Dominant class and samples of each client, {label(papers, 'dataset', dataset)}",
    }
    if spec["kind"] in titles:
        return titles[spec["kind"]]
    experiments = listed(list(dict.fromkeys(name for panel in spec["panels"] for name in panel["experiments"])))
    panels = "; ".join(_panel(spec, panel) for panel in spec["panels"])
    return f"Test accuracy after each round, {experiments}: {panels}"


def _panel(spec: Spec, panel: Spec) -> str:
    chosen = [label(spec, name, value) for name, value in panel.get("where", {}).items()]
    hue = AXES[panel["hue"]]
    return f"{', '.join(chosen) or 'all data'} by {hue.lower()}"


def label(spec: Spec, name: str, value: Any) -> str:
    """A value of the grid in words, or several."""
    if isinstance(value, list):
        return listed([label(spec, name, one) for one in value])
    if name == "alpha":
        return "IID" if value == "iid" else f"{AXES[name]} = {value}"
    return str(spec["labels"].get(name, {}).get(value, value))


# Tables: what people read of a CSV, rounded. The file itself is one click away.


def _column(name: str, form: str = "", unit: float = 1) -> Callable[[Row], str]:
    """The cells of a column: words as they are, or numbers in this form."""

    def cell(row: Row) -> str:
        value = row.get(name, "")
        return format(float(value) / unit, form) if value and form else value

    return cell


def _accuracy(name: str) -> Callable[[Row], str]:
    """A mean, and over several seeds its deviation."""
    mean, deviation = _column(name, ".2f"), _column(f"{name}_std", ".2f")
    return lambda row: " \N{PLUS-MINUS SIGN} ".join(filter(None, [mean(row), deviation(row)]))


def _p_value(name: str) -> Callable[[Row], str]:
    return lambda row: p_value(float(row[name])) if row.get(name) else ""


def _interval(row: Row, name: str = "ci") -> str:
    ends = [_column(f"{name}_{end}", "+z.2f")(row) for end in ("low", "high")]
    return f"{ends[0]} to {ends[1]}" if all(ends) else ""


def _yes_or_no(name: str) -> Callable[[Row], str]:
    return lambda row: {"True": "yes", "False": "no"}.get(row.get(name, ""), "")


def _all_rounds(row: Row) -> str:
    """Where best accuracies are tested, `mean` is theirs."""
    return _accuracy(ALL_ROUNDS if ALL_ROUNDS in row else "mean")(row)


TRAINED: Columns = {
    "Seeds": _column("seeds"),
    "Accuracy of the last third (%)": _accuracy("last_third"),
    "Best accuracy (%)": _accuracy("best"),
    "Final accuracy (%)": _accuracy("final"),
    "Accuracy of all rounds (%)": _all_rounds,
    "Difference (pp)": _column("difference", "+z.2f"),
    "95 % interval": _interval,
    "p (pooled)": _p_value("p"),
    "p (Welch)": _p_value("welch_p"),
    "Optimizer memory (MB)": _column("memory_bytes", ".2f", 1e6),
    "Collapsed": _yes_or_no("collapsed"),
    "Runs diverged": _column("diverged"),
}
COMPARED: Columns = {
    "Seeds": _column("seeds"),
    "Accuracy": _column("metric"),
    "Mean (%)": _column("mean", ".2f"),
    "Mean of the baseline (%)": _column("baseline_mean", ".2f"),
    "Difference (pp)": _column("difference", "+z.2f"),
    "95 % interval": _interval,
    "Simultaneous interval": partial(_interval, name="simultaneous"),
    "90 % interval": partial(_interval, name="tost_ci"),
    "Variance": _column("variance"),
    "p (difference)": _p_value("p"),
    "p (equivalence)": _p_value("tost_p"),
    "p (equivalence, wider margin)": _p_value("wider_tost_p"),
    "Seeds needed": _column("seeds_needed", ",.0f"),
    "Runs": _column("runs"),
    "Runs collapsed": _column("collapsed"),
    "Seeds left out": _column("left_out"),
    "Why nothing was tested": _column("reason"),
}
ANSWERS: Columns = {
    "Question": _column("asks"),
    "Answer": _column("answer"),
    "Status": _column("status"),
    "Against": _column("baseline"),
    "Difference (pp)": _column("difference", "+z.2f"),
    "90 % interval": partial(_interval, name="tost_ci"),
    "Best (pp)": _column("best_difference", "+z.2f"),
    "Final (pp)": _column("final_difference", "+z.2f"),
    "All rounds (pp)": _column("mean_difference", "+z.2f"),
    "Margin (pp)": _column("margin", ".2f"),
    "p": _p_value("p"),
    "p (wider margin)": _p_value("wider_p"),
    "p (paired, decides nothing)": _p_value("paired_p"),
    "Seeds": _column("n", ".0f"),
    "Seeds wanted": _column("seeds_wanted"),
    "Why there is no test": _column("reason"),
}
STEPS: Columns = {
    "Local step": _column("step"),
    "Median error (learning rates)": _column("median", ".2g"),
    "99th percentile": _column("p99", ".2g"),
    "Largest error": _column("max", ".2g"),
    "Largest error where v is 0": _column("idle_max", ".2g"),
    "Off by 10 learning rates (%)": _column("over_ten_lr", ".3f", 0.01),
    "10 times too large (%)": _column("over_ten", ".3f", 0.01),
    "10 times too small (%)": _column("under_ten", ".3f", 0.01),
}
VARIANCE: Columns = {
    "Round": _column("round"),
    "Layer": _column("layer"),
    "Weights of all clients": _column("numel", ",.0f"),
    "v is 0 (%)": _column("zero", ".2f", 0.01),
    "v below the floor (%)": _column("below", ".2f", 0.01),
    "10th percentile of v": _column("p10", ".1e"),
    "Median of v": _column("median", ".1e"),
    "90th percentile of v": _column("p90", ".1e"),
}
MODEL_SIZE: Columns = {
    "Width": _column("width"),
    "Parameters": _column("parameters", ",.0f"),
    "Steps": _column("steps"),
    "Way (learning rates)": _column("way", ",.1f"),
    "Way over FP32's": _column("relative_way", ".3f"),
    "Loss of the last batch": _column("loss", ".3f"),
    "v is 0 in FP32 (%)": _column("zero", ".2f", 0.01),
    "v below the floor in FP32 (%)": _column("below", ".2f", 0.01),
}
MICROSCOPE: Columns = {
    "Steps": _column("steps"),
    "Median error (learning rates)": _column("median", ".2g"),
    "99th percentile": _column("p99", ".2g"),
    "Largest error": _column("max", ".2g"),
    "Off by 10 learning rates (%)": _column("far", ".3f", 0.01),
    "Way over that with exact states": _column("relative_way", ".3g"),
    "First loss": _column("first_loss", ".3f"),
    "Last loss": _column("last_loss", ".3f"),
    "v is 0 (%)": _column("zero", ".2f", 0.01),
    "v below the floor (%)": _column("below", ".2f", 0.01),
}
PARTITIONS: Columns = {
    "Clients": _column("clients"),
    "Samples": _column("samples", ",.0f"),
    "Left over": _column("dropped", ",.0f"),
    "Dominant class (%)": _column("dominant_percent", ".2f"),
    "Ratio to uniform": _column("ratio", ".2f"),
    "Standard deviation of samples": _column("sample_std", ",.1f"),
    "Heterogeneity": _column("heterogeneity"),
}
EXACT: Mapping[str, Columns] = {
    "scaling": {
        "Parameters": _column("parameters", ",.0f"),
        "FP32 (MiB)": _column("fp32_mib", ",.2f"),
        "Held (MiB)": _column("held_mib", ",.2f"),
        "Ratio, held": _column("held_ratio", ".2f"),
        "Published (MiB)": _column("published_mib", ",.2f"),
        "Ratio, published": _column("published_ratio", ".2f"),
    },
    "client_memory": {
        "Image size": _column("image_size"),
        "Activations (MB)": _column("activations_bytes", ",.1f", 1e6),
        "Weights (MB)": _column("weights_bytes", ",.1f", 1e6),
        "Gradients (MB)": _column("gradients_bytes", ",.1f", 1e6),
        "States (MB)": _column("states_bytes", ",.1f", 1e6),
        "In all (MB)": _column("total_bytes", ",.1f", 1e6),
        "Less than with FP32 states (%)": _column("saved_percent", ".2f"),
    },
    "released": {
        "What": _column("what"),
        "Printed": _column("printed"),
        "Where": _column("place"),
        "Released": _column("released"),
        "Line": _column("lines"),
        "Here": _column("here"),
        "Arms that differ": _column("arms"),
    },
    "data_distribution": PARTITIONS,
    "data_distribution_summary": PARTITIONS,
    "clients": {
        "Client": _column("client"),
        "Samples": _column("samples", ",.0f"),
        "Dominant class": _column("dominant_name"),
        "Share (%)": _column("dominant_percent", ".2f"),
        "Classes": _column("classes"),
    },
}
"""Kinds of tables that are at the paper's own size at every scale."""
MEASURED: Mapping[str, Columns] = {
    "contrasts": COMPARED,
    "registered": ANSWERS,
    "steps": STEPS,
    "variance": VARIANCE,
    "model_size": MODEL_SIZE,
    "microscope": MICROSCOPE,
}
"""Kinds with columns of their own, of what is trained at a scale."""
CIRCUMSTANCES = (*AXES.values(), "Seeds", "Runs", "Clients", "Collapsed", "Runs diverged")
"""Columns that are no measurements: where all rows have the same, it is said once below the table."""


def _read(path: Path) -> pd.DataFrame:
    """Words as they were written: an alpha may be one, and 1.00 % is printed with two digits."""
    return pd.read_csv(path, dtype=str, keep_default_na=False)


def readable(spec: Spec, path: Path) -> tuple[pd.DataFrame, str]:
    """The table as people read it, and what all its rows share."""
    exact = spec["kind"] in EXACT
    labels = {**spec["labels"], "dataset": spec["stands_for"]} if exact else spec["labels"]
    grid = {head: partial(_place, labels, name) for name, head in AXES.items()}
    columns: Columns = {**grid, **{**EXACT, **MEASURED}.get(spec["kind"], TRAINED)}
    rows = _read(path).to_dict("records")
    table = pd.DataFrame([{head: cell(row) for head, cell in columns.items()} for row in rows], dtype=object)
    table = table.loc[:, table.ne("").any()]
    same = [head for head in CIRCUMSTANCES if head in table and len(table) > 1 and table[head].nunique() == 1]
    shared = "; ".join(f"{head.lower()} {table[head].iloc[0]}" for head in same)
    return table.drop(columns=same), f"In every row: {shared}." if shared else ""


def _place(labels: Mapping[str, Mapping[str, str]], name: str, row: Row) -> str:
    value = row.get(name, "")
    return "IID" if value == "iid" else labels.get(name, {}).get(value, value)


def explained(spec: Spec) -> str:
    """What a table is about, and how far it can be trusted to be the paper's."""
    if spec["kind"] == "released":
        return (
            "The paper's equations and text, its released code and this package. Where the first two differ, the "
            "package does what the code does; arms run the other side."
        )
    if spec["kind"] in EXACT:
        return "At the paper's own size whatever the scale, for nothing is trained."
    if spec["kind"] == "steps":
        return (
            f"One client's local training at scale {spec['scale']}, in FP32. At some steps its states are stored by "
            "each arm and the step is taken from what is read back: the error is the distance from the exact step, in "
            "learning rates, over the weights whose variance v is above 0."
        )
    if spec["kind"] == "variance":
        return (
            f"Clients of a run at scale {spec['scale']}, in FP32: the variance v of every weight at the end of local "
            "training, all clients of a round together. Percentiles are over the weights whose v is above 0; the floor "
            "is that of the released code."
        )
    if spec["kind"] == "model_size":
        return (
            f"First steps of transformers of several widths, at scale {spec['scale']}: each arm trains from the same "
            "weights on the same batches. The way is the length of all steps; v is the variance after the last of "
            "them; the floor is that of the released code."
        )
    if spec["kind"] == "microscope":
        return (
            f"The first round of one client of the paper's partition, at scale {spec['scale']}: each arm trains by "
            "itself. An error is the distance of a weight's step from the one that exact states, made of the same "
            "gradients, would have taken, in learning rates; the largest and the share are those of the worst step."
        )
    if spec["kind"] == "contrasts":
        baseline = label(spec, "arm", spec.get("baseline", "fp32"))
        return (
            f"Trained at scale {spec['scale']}. Exploratory: intervals, and no verdicts. Differences to {baseline} in "
            "percentage points, from metric ~ arm + seed with one residual variance for all arms that train, or from "
            "pairs of runs where an arm collapsed. Simultaneous intervals hold for all arms of a data set together. "
            f"Equivalence is two one-sided tests for a margin of {100 * spec['margin']:g} % of the baseline, and of "
            "twice that. Seeds needed: for either verdict, with a power of 80 %."
        )
    if spec["kind"] == "registered":
        return (
            f"Trained at scale {spec['scale']}. The questions stand in paper/registered.yaml, which was committed "
            "before any run with its seeds existed. Yes: the test succeeds at 5 % on both data sets. Questions are "
            "tested in this order, each as long as those before it were answered yes; the rest is exploratory."
        )
    return (
        f"Trained at scale {spec['scale']}. Best is the highest test accuracy of all rounds, final that of the last; "
        "a difference is to the first row of the same data. A run has collapsed if it ends below twice the accuracy "
        "of guessing. Memory is that of the paper's own models where it has one; 1 MB is a million bytes."
    )


def is_numeric(table: pd.DataFrame) -> list[bool]:
    """Which columns hold numbers, with their signs and deviations."""
    return [all(cell.lstrip("+-<")[:1].isdigit() for cell in table[head] if cell) for head in table]


def measured_on(claim: Row) -> str:
    """The data that a rebuilt number was measured on, where that is no number of the paper's own size."""
    return f"on {claim['measured_on']}" if claim["measured_on"] and claim["rebuilt"] else ""


def shortened(cell: str) -> str:
    """A number with no more digits than can be read; words as they are."""
    try:
        return f"{float(cell):.5g}" if len(cell) > 8 or cell.endswith(".0") else cell
    except ValueError:
        return cell
