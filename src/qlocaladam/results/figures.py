"""Every figure of the paper, from training runs and results of the analyses, at the size it is printed."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from qlocaladam.files import write_whole
from qlocaladam.results import kinds
from qlocaladam.results.kind import Figure, Files, Spec
from qlocaladam.results.style import DPI, theme


def draw(spec: Spec, runs: Sequence[pd.DataFrame], files: Files) -> Figure:
    """The figure that an entry of the config describes.

    `runs` are those of each panel, for kinds that have panels; `files` are results of the analyses by name.
    """
    build = kinds.as_figure(spec).build
    with theme():
        figure: Figure = build(spec, runs, files)
        figure.draw_without_rendering()
    # Each drawing would lay the figure out anew, a little differently: from here on everything stays in its place.
    figure.set_layout_engine("none")
    return figure


def rendered(figure: Figure) -> dict[str, bytes]:
    """As PDF and PNG, without the time they were made at: the same figure is the same bytes."""
    files = {"pdf": io.BytesIO(), "png": io.BytesIO()}
    with theme():
        figure.savefig(files["pdf"], format="pdf", metadata={"CreationDate": None})
        figure.savefig(files["png"], format="png", dpi=DPI)
    return {form: file.getvalue() for form, file in files.items()}


def save(figure: Figure, pdf: Path, png: Path) -> None:
    content = rendered(figure)
    write_whole(pdf, lambda file: file.write(content["pdf"]))
    write_whole(png, lambda file: file.write(content["png"]))
