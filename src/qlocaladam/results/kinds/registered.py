"""The answers to the registered questions: a table, and each at a glance as a forest plot."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from qlocaladam.analysis.registered import EXPLORATORY, MISSING, NO, OPEN, PRELIMINARY, YES
from qlocaladam.experiments import configuration
from qlocaladam.experiments.grid import as_list
from qlocaladam.experiments.runs import METRICS
from qlocaladam.files import table_rows
from qlocaladam.project import project_file
from qlocaladam.results import forest
from qlocaladam.results.captions import at_scale
from qlocaladam.results.cells import p_text
from qlocaladam.results.columns import column, interval, p_column, p_value
from qlocaladam.results.kind import AsFigure, AsTable, Axes, Config, Figure, Files, Kind, Spec, ref
from qlocaladam.results.labels import DATASET, latex
from qlocaladam.results.latex import BREAK, NONE, Column, Group, Table, bold, escape, signed
from qlocaladam.results.number import Form, Label, Number, numbers_by_row
from qlocaladam.results.style import GREY, PAGE, SMALL, sheet

EXPECTED = {"worse": "below", "better": "above", "equivalent": "equivalent to", "not_worse": "not below"}
HEADS = {"last_third": rf"Last{BREAK}third", "best": "Best", "final": "Final", "mean": "All"}

NOTES = [
    r"Registered in \texttt{paper/registered.yaml} before any run with these seeds existed. Differences are of the "
    r"mean test accuracy over the last third of the rounds, from $\mathit{metric}\sim\mathit{arm}+\mathit{seed}$, or "
    r"from paired runs where an arm collapsed. Yes: the test succeeds at 5\,\% on both data sets. Questions are tested "
    "in this order, each as long as those before it were answered yes; the rest is exploratory. Best, final and all: "
    "differences of the best round, of the last and of the mean of all rounds, which decide nothing.",
    r"Where one of the two arms scatters three times as much as all others, the test errs in up to 14\,\%; the paired "
    "$t$-test of the two alone, which decides nothing either, errs in 5.",
]
COLOURS = {YES: "#0072b2", NO: "#d55e00", EXPLORATORY: GREY, OPEN: GREY}
"""Of answers; those that are no answers yet have hollow markers, too."""
MARKERS = {YES: "o", NO: "X", EXPLORATORY: "D", OPEN: "s"}
INTERVAL = ["tost_ci_low", "difference", "tost_ci_high"]


def table(spec: Spec, runs: pd.DataFrame | None, files: Files) -> Table:
    """A row for each question and data set, and the answer of the question."""
    rows = _read(files["answers"])
    groups = [Group(_question(spec, own)) for _, own in rows.groupby("question", sort=False)]
    heads = (
        *("Question", DATASET.head, rf"Difference (pp){BREAK}[90\% interval]"),
        *(HEADS[name] for name in METRICS if name != rows["metric"].iloc[0]),
        *(rf"Margin{BREAK}(pp)", "$p$", "Seeds"),
    )
    columns = [*(Column(head, "l" if place < 2 else "r") for place, head in enumerate(heads)), Column("Answer", "l")]
    return Table(spec["name"], _caption(spec, rows), columns, groups, rows, notes=[*NOTES, *_notes(spec, rows)])


def _question(spec: Spec, rows: pd.DataFrame) -> list[list[str]]:
    """The cells of a question; what it claims and its answer stand once."""
    first = table_rows(rows)[0]
    answer = bold(first["answer"], first["answer"] in (YES, NO))
    status = "" if first["status"] == "final" else f"({escape(first['status'])})"
    claims, answered = (_spread(words, len(rows)) for words in (_claim(spec, first), [answer, status]))
    return [
        [
            claims[place],
            latex(spec, "dataset", row["dataset"]),
            _number(row["difference"], signed) + _ends(row),
            *(_number(row[f"{name}_difference"], signed) for name in METRICS if name != row["metric"]),
            _number(row["margin"], "{:.2f}".format) if row["expected"] in ("equivalent", "not_worse") else NONE,
            p_text(row["p"]),
            f"{row['n']:.0f} of {row['seeds_wanted']}",
            answered[place],
        ]
        for place, row in enumerate(table_rows(rows))
    ]


def _notes(spec: Spec, rows: pd.DataFrame) -> Iterator[str]:
    """What tests leave out, why there is none though there are runs, and where the paired test says otherwise; what is
    missing stands in the table."""
    for row in table_rows(rows):
        where = f"{escape(row['question'])}, {latex(spec, 'dataset', row['dataset'])}"
        if pd.notna(row["reason"]) and row["status"] != MISSING:
            yield f"{where}: {escape(row['reason'])}."
        if pd.notna(row["paired_succeeds"]) and row["paired_succeeds"] != row["succeeds"]:
            yield f"{where}: the paired test says otherwise, $p={row['paired_p']:.3f}$."


def _caption(spec: Spec, rows: pd.DataFrame) -> str:
    counts = rows.drop_duplicates("question")["answer"].value_counts()
    said = ", ".join(f"{counts[answer]} {answer}" for answer in (YES, NO, EXPLORATORY, OPEN) if answer in counts)
    return f"{at_scale(spec)}: {said}."


def _read(path: Path) -> pd.DataFrame:
    rows: pd.DataFrame = pd.read_csv(path, dtype={"alpha": str, "seeds": str})
    return rows


def _claim(spec: Spec, row: Mapping[str, Any]) -> list[str]:
    arm, baseline = (latex(spec, "arm", row[side]) for side in ("arm", "baseline"))
    scaled = "" if row["loss_scale"] == 1 else rf", losses $\times${row['loss_scale']:g}"
    return [arm, f"{EXPECTED[row['expected']]} {baseline}{scaled}"]


def _spread(words: list[str], rows: int) -> list[str]:
    """Over the first two of a question's rows, which a page is wide enough for, or in its only one."""
    return [*words, *[""] * (rows - 2)] if rows > 1 else [" ".join(words).strip()]


def _number(value: float, form: Any) -> str:
    return NONE if pd.isna(value) else str(form(value))


def _ends(row: Mapping[str, Any]) -> str:
    if pd.isna(row["tost_ci_low"]):
        return ""
    return f" [{signed(row['tost_ci_low'])}, {signed(row['tost_ci_high'])}]"


def figure(spec: Spec, runs: Sequence[pd.DataFrame], files: Files) -> Figure:
    """Each question a row, each data set a panel: the difference in percent of the baseline, and the answer."""
    rows = _read(files["answers"])
    questions = list(rows["question"].unique())
    datasets = list(rows["dataset"].unique())
    drawn = sheet(PAGE, 0.9 + 0.42 * len(questions))
    panels = drawn.subplots(1, len(datasets), sharey=True, squeeze=False)[0]
    for axes, dataset in zip(panels, datasets, strict=True):
        _panel(axes, rows[rows["dataset"] == dataset], questions)
        axes.set(title=spec["labels"]["dataset"][dataset], xlabel="Difference (% of the baseline)")
    asked = rows.drop_duplicates("question")
    status = asked["status"].map({PRELIMINARY: f" ({PRELIMINARY})"}).fillna("")
    names = [textwrap.fill(asks, 38) for asks in asked["asks"] + status]
    panels[0].set(yticks=range(len(questions)), ylim=(len(questions) - 0.5, -0.5))
    panels[0].set_yticklabels(names, fontsize=SMALL)
    answers = rows["answer"].unique()
    answered = {answer: {"linestyle": "", **_marker(answer)} for answer in MARKERS if answer in answers}
    forest.legend(drawn, {**answered, "90 % interval": {"linewidth": 2}})
    return drawn


def _panel(axes: Axes, rows: pd.DataFrame, questions: list[str]) -> None:
    axes.axvline(0, color=GREY, linewidth=0.7)
    axes.grid(False, axis="y")
    tested = rows.dropna(subset="difference")
    if tested.empty:
        axes.set(xlim=(-1, 1), xticks=[])
    else:
        percent = tested[INTERVAL].mul(100 / tested["baseline_mean"], axis=0)
        forest.axis(axes, percent, 100 * (tested["margin"] / tested["baseline_mean"]).max())
    for row in table_rows(rows):
        place = questions.index(row["question"])
        if pd.isna(row["difference"]):
            behind = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
            said: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": SMALL, "color": GREY, "bbox": behind}
            axes.text(0.5, place, row["status"], transform=axes.get_yaxis_transform(), **said)
            continue
        ends = [100 * row[name] / row["baseline_mean"] for name in INTERVAL]
        if forest.far_off(axes, ends[1], place, COLOURS[row["answer"]]):
            continue
        axes.plot(ends[::2], [place, place], color=COLOURS[row["answer"]], linewidth=2, solid_capstyle="butt")
        for end, limit, points in zip(ends[::2], axes.get_xlim(), "<>", strict=True):
            if abs(end) > abs(limit):  # it goes on beyond the frame
                axes.plot(limit, place, points, color=COLOURS[row["answer"]], markersize=4.2, clip_on=False)
        axes.plot(ends[1], place, **_marker(row["answer"]))


def _marker(answer: str) -> dict[str, Any]:
    colour = COLOURS[answer]
    face = colour if answer in (YES, NO) else "white"
    return {"marker": MARKERS[answer], "color": colour, "markerfacecolor": face, "markersize": 4.2}


def numbers(table: str, path: Path, label: Label) -> Iterator[Number]:
    """Each registered question: its answer, and the difference on each data set."""
    forms: dict[str, Form] = {"n": ".0f", "mean": ".2f", "baseline_mean": ".2f", "difference": "+z.2f", "margin": ".2f"}
    forms |= {f"{name}_{end}": "+z.2f" for name in ("ci", "tost_ci") for end in ("low", "high")}
    forms |= {"p": p_value, "wider_p": p_value, "paired_p": p_value, "answer": "s", "status": "s", "seeds_wanted": "d"}
    yield from numbers_by_row({"kind": "registered"}, _read(path), ("question", "dataset"), forms, path, label)


def check(config: Config, key: str, entry: Config) -> None:
    """Whether the configuration has what the questions ask about, and uses their seeds for nothing else."""
    content = configuration.registration(project_file(configuration.REGISTERED))
    asked = [("scale", content["scale"], "scales")]
    asked += [("datasets", dataset, "datasets") for dataset in content["datasets"]]
    for question in content["questions"]:
        asked += [(f"{question['name']}: {side}", question[side], "arms") for side in ("arm", "baseline")]
    for what, value, part in asked:
        if value not in config[part]:
            where = f"{key} shows {configuration.REGISTERED}, whose {what} is"
            raise ValueError(f"{where} {value!r}; accepted: {', '.join(config[part])}")
    for experiment in config["experiments"]:
        used = {*as_list({**config["defaults"], **experiment}["seed"])} & {*content["seeds"]}
        if used and experiment["name"] not in entry["experiments"]:
            where = f"{configuration.REGISTERED}: seeds has {min(used)}, which experiments.{experiment['name']} has"
            raise ValueError(f"{where}, too; accepted: seeds that nothing else uses")


ANSWERS = "{analysis}/registered/{table}/answers.csv"
KIND = Kind(
    section="Registered questions",
    table=AsTable(
        table,
        "Trained at scale {scale}. The questions stand in paper/registered.yaml, which was committed before any run "
        "with its seeds existed. Yes: the test succeeds at 5 % on both data sets. Questions are tested in this order, "
        "each as long as those before it were answered yes; the rest is exploratory.",
        reads={"answers": ANSWERS},
        keys={"experiments": ref("experiments")},
        optional={"where": ref("where")},
        check=check,
        columns={
            "Question": column("asks"),
            "Answer": column("answer"),
            "Status": column("status"),
            "Against": column("baseline"),
            "Difference (pp)": column("difference", "+z.2f"),
            "90 % interval": partial(interval, name="tost_ci"),
            "Best (pp)": column("best_difference", "+z.2f"),
            "Final (pp)": column("final_difference", "+z.2f"),
            "All rounds (pp)": column("mean_difference", "+z.2f"),
            "Margin (pp)": column("margin", ".2f"),
            "p": p_column("p"),
            "p (wider margin)": p_column("wider_p"),
            "p (paired, decides nothing)": p_column("paired_p"),
            "Seeds": column("n", ".0f"),
            "Seeds wanted": column("seeds_wanted"),
            "Why there is no test": column("reason"),
        },
    ),
    figure=AsFigure(
        figure,
        "Each registered question and its answer: the difference between the two arms in percent of the baseline, "
        "with the 90 % interval that belongs to the tests, trained at scale *{scale}*.",
        reads={"answers": ANSWERS},
        keys={"table": ref("name")},
        title="Answers to the registered questions",
    ),
    shown_without_runs=True,
    quotes=ANSWERS,
    numbers=numbers,
)
