"""Figure: dominant class and samples of each client, a panel for each alpha."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from qlocaladam.experiments.consistency import of_the_papers_partitions
from qlocaladam.results.kind import AsFigure, Axes, Figure, Files, Kind, Spec, ref
from qlocaladam.results.labels import in_words
from qlocaladam.results.style import COLUMN, SMALL, by_size, sheet

COLUMNS = {"class": ("Dominant class (%)", "#D55E00"), "samples": ("Samples / 100", "#56B4E9")}
"""What a column shows, and its darkest colour, on which black figures can still be read."""


def figure(spec: Spec, runs: Sequence[pd.DataFrame], files: Files) -> Figure:
    """Dominant class and samples of each client, a panel for each alpha; a colour means the same in all of them."""
    dataset = spec["where"]["dataset"]
    clients = pd.read_csv(files["clients"], dtype={"alpha": str})
    clients = clients[clients["dataset"] == dataset]
    clients = clients.assign(**{"class": clients["dominant_percent"], "samples": clients["samples"] / 100})
    alphas = sorted(clients["alpha"].unique(), key=by_size)
    drawn = sheet(COLUMN, 3.6)
    drawn.suptitle(spec.get("stands_for", {}).get(dataset, dataset))  # partitions are the paper's own at every scale
    panels = drawn.subplots(1, len(alphas), sharey=True, squeeze=False)[0]
    for axes, alpha in zip(panels, alphas, strict=True):
        cells = clients[clients["alpha"] == alpha].set_index("client")[["class", "samples"]]
        for column, (_, darkest) in COLUMNS.items():
            _column(axes, cells, column, clients[column].max(), darkest)
        axes.set(title=in_words({}, "alpha", alpha), xlabel="", ylabel="")
    panels[0].set_ylabel("Client")
    for mesh, (label, _) in reversed(list(zip(panels[0].collections, COLUMNS.values(), strict=True))):
        drawn.colorbar(mesh, ax=panels, location="bottom", aspect=40, pad=0.02, label=label)
    return drawn


def _column(axes: Axes, cells: pd.DataFrame, column: str, most: float, darkest: str) -> None:
    """One of the columns; the other is left empty, because it has a scale of its own."""
    import seaborn as sns

    sns.heatmap(
        cells[[column]].reindex(columns=cells.columns),
        ax=axes,
        cmap=sns.light_palette(darkest, as_cmap=True),
        vmin=0,
        vmax=most,
        annot=True,
        fmt=".1f",
        annot_kws={"size": SMALL, "color": "black"},
        cbar=False,
        linewidths=0.4,
    )
    axes.tick_params(length=0, labelrotation=0)
    axes.tick_params(axis="x", labelsize=SMALL)


KIND = Kind(
    section="Data",
    figure=AsFigure(
        figure,
        "What each client holds of {paper} in the paper's own partitions, one panel for each alpha: the share of its "
        "most frequent class and its number of samples, in hundreds. Nothing is trained, so this is the same at every "
        "scale.",
        reads={"clients": "{exact}/clients.csv"},
        keys={"where": ref("dataset")},
        check=of_the_papers_partitions,
        title="Dominant class and samples of each client, {paper}",
    ),
    exact=True,
)
