"""What a kind of table or figure says of itself: it is one module of `results/kinds`, whose `KIND` is a Kind.

Every plan of the workflow reads all of them, so that what only drawing needs is imported where something is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qlocaladam.results.columns import Columns
from qlocaladam.results.labels import ROWS, in_words, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure as Figure

    from qlocaladam.results.layout import Layout as Layout
    from qlocaladam.results.number import Label, Number
else:  # which only checkers need of these: matplotlib takes a second to import, and the layout imports all kinds
    Axes = Figure = Layout = Any

Config = Mapping[str, Any]
Spec = Mapping[str, Any]
Files = Mapping[str, Path]
Schema = Mapping[str, Any]
Check = Callable[[Config, str, Config], None]
"""Given the configuration, the key of an entry and the entry: ValueError where they do not go together."""


def ref(name: str) -> Schema:
    """What `$defs` of workflow/schemas/config.schema.yaml accepts under this name."""
    return {"$ref": f"#/$defs/{name}"}


AXIS = {"enum": list(ROWS)}


def nothing(config: Config, key: str, entry: Config) -> None:
    """Its keys are all that can be wrong."""


@dataclass(frozen=True)
class Shown:
    """A kind as a table, or as a figure.

    `build` has the entry of config.yaml with names and labels, the runs (of each panel, where it is a figure), and
    files. `reads` has their paths by the names that `build` has for them: in a path `{exact}` is the folder of what
    needs no training, `{analysis}` that of the scale's analyses, `{table}` the entry's name or what it says under
    `table`; of a file with `{dataset}` there is one for each data set of `where`, as `NAME.DATASET`. `keys` it must
    have in config.yaml and `optional` it may have, each with the JSON schema of its value. `said` stands beside it in
    the report, and may name what `words` has.
    """

    build: Callable[..., Any]
    said: str
    reads: Mapping[str, str] = field(default_factory=dict)
    keys: Mapping[str, Schema] = field(default_factory=dict)
    optional: Mapping[str, Schema] = field(default_factory=dict)
    check: Check = nothing


@dataclass(frozen=True, kw_only=True)
class AsTable(Shown):
    """`columns` are those of its page, by their heads: what people read of the CSV."""

    columns: Columns


@dataclass(frozen=True, kw_only=True)
class AsFigure(Shown):
    """`title` is what it shows, in one line."""

    title: str | Callable[[Spec], str]


@dataclass(frozen=True)
class Analysis:
    """One that trains a little itself, in a rule of this name. The last of its files is the summary, which says what
    made them: `request` has what that must say, `options` the options of the command."""

    name: str
    files: tuple[str, ...]
    options: Callable[[Layout, str], dict[str, Any]]
    request: Callable[[Layout, str], dict[str, Any]]
    size: Mapping[str, Schema] = field(default_factory=dict)
    """What a scale can say of how large it is, under `analyses`: keys with the JSON schema of their values."""
    partition: bool = True
    """Whether its clients are those of a run at the defaults. Others train on all data, or deal them out themselves."""
    mem_mb: int = 0
    minutes: int = 0
    """What it needs where a training run of the scale is given less."""


@dataclass(frozen=True)
class Kind:
    section: str
    """Of the report, where config.yaml does not say another."""
    table: AsTable | None = None
    figure: AsFigure | None = None
    exact: bool = False
    """Whether it is at the paper's own size at every scale, for nothing is trained."""
    shown_without_runs: bool = False
    analysis: Analysis | None = None
    """What it shows, where that trains."""
    quotes: str = ""
    """The path of what `numbers` makes numbers of that a text can quote, by data set or by table, as in `reads`."""
    numbers: Callable[[str, Path, Label], Iterable[Number]] | None = None


def words(spec: Spec) -> dict[str, Any]:
    """What a text about an entry can name."""
    dataset = spec.get("where", {}).get("dataset", "")
    own, paper = (
        in_words({"dataset": names}, "dataset", dataset) for names in (spec["labels"]["dataset"], spec["stands_for"])
    )
    return {
        **{name: spec.get(name) for name in ("scale", "table")},
        "data": own,
        "paper": paper,
        "data_and_origin": own if own == paper else f"{own}, which stands in the place of {paper}",
        "baseline": plain(spec["labels"], "arm", spec.get("baseline", "fp32")),
        "margin": f"{100 * spec.get('margin', 0):g}",
    }
