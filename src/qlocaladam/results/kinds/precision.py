"""Figure: relative error of each 8-bit code against the size of the value."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from qlocaladam.results.kind import AsFigure, Figure, Files, Kind, Spec
from qlocaladam.results.style import BELOW, COLUMN, arm_colours, sheet

CODE_ARMS = {
    "log, nearest": "q-localadam",
    "log, floor": "rounding-floor",
    "log, stochastic": "rounding-stochastic",
    "dynamic, nearest": "dynamic-8bit",
    "linear, nearest": "naive-int8",
}
"""The arm whose variance has a code: the code is drawn like that arm."""


def figure(spec: Spec, runs: Sequence[pd.DataFrame], files: Files) -> Figure:
    """Relative error of each code against the size of the value, by quarters of a decade."""
    errors = pd.read_csv(files["precision"])
    arms = {code: CODE_ARMS.get(code, code) for code in errors["code"].unique()}
    lines = arm_colours(dict.fromkeys([*spec["labels"]["arm"], *arms.values()]))
    drawn = sheet(COLUMN, 3.2)
    axes = drawn.subplots()
    for number, (code, of_code) in enumerate(errors.groupby("code", sort=False)):
        line, percent = lines[arms[code]], 100 * of_code["relative_error"]
        quarters = percent.groupby(np.floor(4 * np.log10(of_code["value"])))
        middles = 10 ** ((quarters.mean().index + 0.5) / 4)
        marks = (number % 2, 2)  # two lines at 100 % can be told apart
        axes.plot(middles, quarters.mean(), label=f"{code}: {percent.mean():.2f}", markevery=marks, **line._asdict())
    axes.set(xscale="log", yscale="log", xlabel="Value", ylabel="Relative error (%)")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.legend(title="Mean relative error (%)", ncols=2, **BELOW)
    return drawn


KIND = Kind(
    section="Precision and memory",
    figure=AsFigure(
        figure,
        "How much of a value is lost when it goes through each 8-bit code and back, by the size of the value: numbers "
        "spread evenly over the powers of ten of the paper's experiment. Lines are means over a "
        "quarter of a power of ten. Nothing is trained, so this is the same at every scale. *tree* is the paper's own "
        "simulation of a dynamic tree; an error of 100 % is a value that became 0.",
        reads={"precision": "{exact}/precision.csv"},
        title="Relative error of each 8-bit code against the size of the value",
    ),
    exact=True,
)
