"""python -m qlocaladam: what the rules of the workflow call, and what a person can call alone."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from qlocaladam.extras import EXTRA_OF, how_to_install
from qlocaladam.files import write_whole
from qlocaladam.project import project_file

# torch and what comes with extras are imported by the command that needs them, so that --help and mistakes are fast.


def _memory(arguments: argparse.Namespace) -> None:
    import torch

    from qlocaladam import ARMS, optimizer_bytes, state_codecs
    from qlocaladam.models import PAPER_MODELS, ResNet18

    print("Optimizer state of the paper's models, MB = 10^6 bytes. 'published' is the paper's layout: padded blocks")
    print("with 12 bytes of metadata; 'held' is what this package stores; the ratio is FP32 to held.\n")
    print(f"{'model':<10}{'arm':<16}{'block':>6}{'published':>11}{'held':>9}{'ratio':>8}")
    for dataset, shape in PAPER_MODELS.items():
        with torch.device("meta"):
            model = ResNet18(shape["classes"], shape["width"])
        sizes = [parameter.numel() for parameter in model.parameters()]
        arms = ("fp32", "momentum-only", "variance-only", "naive-int8", "q-localadam", "normalised", "normalised-4bit")
        for arm in arms:
            options = ARMS[arm]
            for block in arguments.block_size if arm == "q-localadam" else (64,):
                names = (options["momentum"], options["variance"], block, "nearest", 1e-8, options.get("bits", 8))
                codecs = state_codecs(*names)
                published, held = (optimizer_bytes(sizes, *codecs, layout) for layout in ("published", "held"))
                ratio = 8 * sum(sizes) / held
                print(f"{dataset:<10}{arm:<16}{block:>6}{published / 1e6:>11.2f}{held / 1e6:>9.2f}{ratio:>8.3f}")


def _data(arguments: argparse.Namespace) -> None:
    from qlocaladam import datasets

    made = datasets.prepare(arguments.name, arguments.out, arguments.source)
    samples = f"{len(made.y_train):,} training and {len(made.y_test):,} test {made.samples}"
    samples += f" of {made.classes} {'sections' if made.is_text else 'classes'}"
    print(f"{arguments.out}: {samples}\norigin: {made.origin}\nSHA-256: {made.sha256}")


def _partition(arguments: argparse.Namespace) -> None:
    from qlocaladam import datasets
    from qlocaladam.federated.partition import client_rows, partition, summary

    if arguments.labels_of:
        name, labels = arguments.labels_of, datasets.training_labels(arguments.labels_of)
    else:
        data = _subset(arguments)
        name, labels = data.name, data.y_train
    part = partition(labels, arguments.clients, arguments.alpha, arguments.seed)
    part.save(arguments.out)
    names = datasets.class_names(name, int(labels.max()) + 1)
    print(f"{'client':>6}{'samples':>9}{'classes':>9}  dominant class")
    for row in client_rows(part, labels)[: arguments.show]:
        dominant = "-" if row.dominant is None else f"{names[row.dominant]} {row.dominant_percent:.1f} %"
        print(f"{row.client:>6}{row.samples:>9,}{row.classes:>9}  {dominant}")
    if part.clients > arguments.show:
        print(f"   ... and {part.clients - arguments.show:,} more clients")
    total = summary(part, labels)
    print(f"{total.samples:,} samples dealt out, {total.dropped:,} left over, {total.empty_clients} clients empty")


def _subset(arguments: argparse.Namespace) -> Any:
    from qlocaladam import datasets

    data = datasets.load(arguments.data)
    if arguments.train_images is None and arguments.test_images is None:
        return data
    return datasets.subset(data, arguments.train_images, arguments.test_images)


def _train(arguments: argparse.Namespace) -> None:
    import torch

    torch.set_num_threads(arguments.threads)
    from qlocaladam.federated.experiment import run
    from qlocaladam.federated.partition import load_partition

    settings, partition = _settings(arguments), load_partition(arguments.partition)
    run(settings, _subset(arguments), partition, arguments.out, arguments.checkpoint_every, arguments.overwrite)


def _settings(arguments: argparse.Namespace) -> Any:
    from qlocaladam.federated.settings import RunSettings

    names = RunSettings.__dataclass_fields__
    given = {name: value for name, value in vars(arguments).items() if name in names and value is not None}
    return RunSettings(**given, optimizer=dict(getattr(arguments, "option", ())))


def _analyse(arguments: argparse.Namespace) -> None:
    """A summary comes last and knows the other files by their hashes, so that who reads them can tell an edited one."""
    made = arguments.analysis(arguments)
    summary, hashes = made.pop("summary.json", None), {}
    for name, content in made.items():
        hashes[name] = _write_text(arguments.out / name, content if isinstance(content, str) else _csv(content))
    if summary is not None:
        from qlocaladam.federated.record import sealed

        text = json.dumps(sealed({**summary, "files": hashes}), indent=2, allow_nan=False) + "\n"
        _write_text(arguments.out / "summary.json", text)


def _analyse_memory(arguments: argparse.Namespace) -> dict[str, Any]:
    from qlocaladam.analysis import footprint
    from qlocaladam.models import PAPER_MODELS

    known = [place for place in arguments.wanted if place[0] in PAPER_MODELS]  # data of your own have no model there
    return {"memory.csv": footprint.memory(arguments.arms, known)}


def _analyse_client_memory(arguments: argparse.Namespace) -> dict[str, Any]:
    from qlocaladam.analysis.client_memory import client_memory

    return {"client_memory.csv": client_memory(arguments.arms, arguments.block_size)}


def _analyse_scaling(arguments: argparse.Namespace) -> dict[str, Any]:
    from qlocaladam.analysis import footprint

    return {"scaling.csv": footprint.scaling()}


def _analyse_precision(arguments: argparse.Namespace) -> dict[str, Any]:
    from qlocaladam.analysis import precision

    errors = precision.simulate()
    return {
        "precision.csv": errors,
        "precision_summary.csv": precision.summarise(errors),
        "precision_by_decade.csv": precision.by_decade(errors),
    }


def _analyse_heterogeneity(arguments: argparse.Namespace) -> dict[str, Any]:
    from qlocaladam.analysis import heterogeneity

    paper = (("cifar10", "cifar100"), (0.1, 0.5, 1.0, "iid"))
    return {"clients.csv": heterogeneity.clients(*paper), "heterogeneity.csv": heterogeneity.overview(*paper)}


def _analyse_participation(arguments: argparse.Namespace) -> dict[str, Any]:
    import pandas as pd

    from qlocaladam.analysis import participation

    clients = pd.read_csv(arguments.clients, dtype={"alpha": str})
    sampling = json.dumps(participation.sampling(), indent=2) + "\n"
    return {"sampling.json": sampling, "steps.csv": participation.steps(clients)}


def _analyse_significance(arguments: argparse.Namespace) -> dict[str, Any]:
    from qlocaladam.analysis import significance
    from qlocaladam.experiments.runs import read_runs

    return {"significance.csv": significance.compare(read_runs(arguments.runs, arguments.asked))}


def _analyse_contrasts(arguments: argparse.Namespace) -> dict[str, Any]:
    from qlocaladam.analysis import contrasts
    from qlocaladam.experiments.runs import read_runs

    runs = read_runs(arguments.runs, arguments.asked)
    return {
        "contrasts.csv": contrasts.compare(runs, arguments.margin, arguments.baseline),
        "differences.csv": contrasts.differences(runs, arguments.baseline),
    }


def _analyse_registered(arguments: argparse.Namespace) -> dict[str, Any]:
    from qlocaladam.analysis import registered
    from qlocaladam.experiments.runs import read_runs

    runs = read_runs(arguments.runs, arguments.asked)
    return {"answers.csv": registered.answers(registered.load(arguments.questions), runs, arguments.scale)}


def _analyse_distributions(arguments: argparse.Namespace) -> dict[str, Any]:
    import torch

    torch.set_num_threads(arguments.threads)
    from qlocaladam.analysis import distributions

    return distributions.analyse(_settings(arguments), _subset(arguments)).files()


def _analyse_steps(arguments: argparse.Namespace) -> dict[str, Any]:
    import torch

    torch.set_num_threads(arguments.threads)
    from qlocaladam.analysis import steps
    from qlocaladam.federated.partition import load_partition

    partition = load_partition(arguments.partition)
    tables = steps.analyse(_settings(arguments), _subset(arguments), partition, arguments.arms, arguments.after)
    by_layer, by_decade, found = tables
    return {"steps.csv": by_layer, "steps_by_decade.csv": by_decade, "summary.json": found}


def _analyse_variance(arguments: argparse.Namespace) -> dict[str, Any]:
    import torch

    torch.set_num_threads(arguments.threads)
    from qlocaladam.analysis import variance
    from qlocaladam.federated.partition import load_partition

    partition = load_partition(arguments.partition)
    table, found = variance.analyse(_settings(arguments), _subset(arguments), partition)
    return {"variance.csv": table, "summary.json": found}


def _analyse_model_size(arguments: argparse.Namespace) -> dict[str, Any]:
    import torch

    torch.set_num_threads(arguments.threads)
    from qlocaladam.analysis import model_size

    sizes = (arguments.widths, arguments.steps)
    table, found = model_size.analyse(_settings(arguments), _subset(arguments), arguments.arms, *sizes)
    return {"model_size.csv": table, "summary.json": found}


def _analyse_microscope(arguments: argparse.Namespace) -> dict[str, Any]:
    import torch

    torch.set_num_threads(arguments.threads)
    from qlocaladam.analysis import microscope

    table, by_step, found = microscope.analyse(
        _settings(arguments), _subset(arguments), arguments.arms, arguments.steps
    )
    return {"microscope.csv": table, "microscope_by_step.csv": by_step, "summary.json": found}


def _table(arguments: argparse.Namespace) -> None:
    from qlocaladam.experiments.runs import read_runs
    from qlocaladam.results import tables

    runs = read_runs(arguments.runs, arguments.spec.get("asked")) if arguments.runs else None
    table = tables.build(arguments.spec, runs, dict(arguments.file))
    _write_text(arguments.csv, table.csv())
    _write_text(arguments.tex, table.latex())


def _figure(arguments: argparse.Namespace) -> None:
    from qlocaladam.experiments.runs import read_runs
    from qlocaladam.results import figures

    panels = [read_runs(folders, arguments.spec.get("asked")) for folders in arguments.panel]
    figures.save(figures.draw(arguments.spec, panels, dict(arguments.file)), arguments.pdf, arguments.png)


def _numbers(arguments: argparse.Namespace) -> None:
    from qlocaladam.experiments.runs import read_runs
    from qlocaladam.results import numbers

    collected = numbers.collect(
        arguments.spec, read_runs(arguments.runs, arguments.spec.get("asked")), dict(arguments.file)
    )
    _write_text(arguments.json, numbers.as_json(collected))
    _write_text(arguments.tex, numbers.as_latex(collected))


def _claims(arguments: argparse.Namespace) -> None:
    from qlocaladam.ledger import claims

    path = arguments.numbers or Path("results", arguments.scale, "numbers.json")
    if not path.exists():
        raise ValueError(f"{path} is not there; `snakemake claims --config scale={arguments.scale}` makes it")
    numbers = json.loads(path.read_text())
    verdicts = claims.judge(claims.load(arguments.published), numbers, arguments.scale)
    print(claims.summary(verdicts))
    if arguments.csv:
        _write_text(arguments.csv, _csv(verdicts))
    if arguments.counts:
        _write_text(arguments.counts, claims.counts_latex(verdicts, arguments.scale))
    if arguments.disagreements:
        _write_text(arguments.disagreements, claims.disagreements_latex(verdicts, arguments.scale))
    if arguments.macros:
        _write_text(arguments.macros, claims.macros(verdicts))


def _page(arguments: argparse.Namespace) -> None:
    from qlocaladam.report import page

    _write_text(arguments.out, arguments.page(page, arguments))


def _page_of_table(page: Any, arguments: argparse.Namespace) -> Any:
    return page.table_html(arguments.spec, arguments.table)


def _page_of_ledger(page: Any, arguments: argparse.Namespace) -> Any:
    return page.ledger_html(page.read_claims(arguments.claims), arguments.scale)


def _page_of_released(page: Any, arguments: argparse.Namespace) -> Any:
    from qlocaladam.results import released

    return released.markdown(arguments.source, arguments.labels)


def _page_of_results(page: Any, arguments: argparse.Namespace) -> Any:
    shown = ({path.stem: path for path in paths} for paths in (arguments.tables, arguments.figures))
    return page.results_markdown(arguments.spec, *shown, arguments.numbers, arguments.claims, arguments.out.parent)


def _reference(arguments: argparse.Namespace) -> None:
    from qlocaladam.report import reference

    arguments.action(reference, arguments)


def _collect_reference(reference: Any, arguments: argparse.Namespace) -> None:
    reference.write(arguments.out, arguments.runs, arguments.claims, arguments.tables, arguments.asked)


def _verify(reference: Any, arguments: argparse.Namespace) -> None:
    from qlocaladam.experiments.grid import short_name
    from qlocaladam.results.layout import Layout

    kept = reference.read(arguments.reference, arguments.scale)
    overrides = [f"scale={arguments.scale}", *arguments.config]
    layout = Layout.load(arguments.configfile, overrides)
    asked = [short_name(place) for place in layout.runs.to_dict("records")]
    others = len(kept) - kept["run"].isin(asked).sum()
    kept = kept[kept["run"].isin(asked)].reset_index(drop=True)
    verdicts = reference.verify(kept, arguments.runs or Path("results", arguments.scale, "runs"))
    text = reference.summary(verdicts, arguments.scale, others)
    print(text, end="", flush=True)
    if arguments.csv:
        _write_text(arguments.csv, _csv(verdicts))
    if arguments.text:
        _write_text(arguments.text, text)
    if different := verdicts.loc[verdicts["verdict"] == reference.DIFFERS, "run"].tolist():
        count = f"{len(different)} of {len(verdicts)} runs"
        raise SystemExit(f"qlocaladam: {count} differ from the reference by more than seeds do, first {different[0]}")


def _check(arguments: argparse.Namespace) -> None:
    from qlocaladam.report import check
    from qlocaladam.results.layout import Layout

    layout = Layout.load(arguments.configfile, arguments.config)
    if layout.kept:
        raise ValueError("reference is True; accepted: false, for what is kept is checked where it is read")
    findings = check.check(layout, arguments.only or check.KINDS)
    print(check.summary(findings, layout), end="", flush=True)
    if arguments.csv:
        _write_text(arguments.csv, _csv(findings))
    if arguments.html:
        _write_text(arguments.html, check.html(findings, layout))
    if len(check.failed(findings)) and not arguments.record:
        raise SystemExit(1)


def _csv(frame: Any) -> str:
    text: str = frame.to_csv(index=False, lineterminator="\n")
    return text


def _write_text(path: Path, text: str) -> str:
    return write_whole(path, lambda file: file.write(text.encode()))


def _alpha(text: str) -> float | str:
    return text if text == "iid" else float(text)


def _threads(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def _option(text: str) -> tuple[str, Any]:
    """NAME=VALUE for an option of QLocalAdam; numbers, true, false and none are understood, the rest are words."""
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=VALUE")
    words = {"none": None, "true": True, "false": False}
    if value.lower() in words:
        return name, words[value.lower()]
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            continue
    return name, value


def _add_data_arguments(parser: argparse.ArgumentParser, required: bool) -> None:
    parser.add_argument("--data", type=Path, required=required, metavar="FILE", help="what the data command wrote")
    for part in ("train", "test"):
        parser.add_argument(
            f"--{part}-images",
            type=int,
            metavar="N",
            help=f"a fixed stratified subset of N {part} images, or windows of text",
        )


def _add_model_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--lr", type=float, metavar="N", help="learning rate (default: 0.001)")
    for name, text in (
        ("seed", "of the model, the sampling and the batches (default: 42)"),
        ("width", "channels of the first stage of ResNet-18, or width of the transformer for text (default: 64)"),
        ("image-size", "images are resized to this (default: 224); text has none, no stem and no flip"),
    ):
        parser.add_argument(f"--{name}", type=int, metavar="N", help=text)
    parser.add_argument("--stem", metavar="STEM", help="7x7 (default) or 3x3")
    parser.add_argument("--flip", action=argparse.BooleanOptionalAction, help="mirror images at random (default: yes)")
    parser.add_argument("--precision", metavar="P", help="fp32 (default) or bf16, which trains under autocast")
    parser.add_argument("--device", metavar="DEVICE", help="cpu (default), cuda, cuda:1, ...")
    parser.add_argument(
        "--threads",
        type=_threads,
        default=1,
        metavar="N",
        help="default: 1, which with several runs side by side uses a machine best while models are small",
    )


def _add_partition_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--partition", type=Path, required=True, metavar="FILE", help="what the partition command wrote"
    )


def _add_arms_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--arms", type=json.loads, required=True, metavar="JSON", help="arms, as in config.yaml")


def _add_client_arguments(parser: argparse.ArgumentParser) -> None:
    for name, text in (
        ("clients-per-round", "default: 5"),
        ("epochs", "local epochs (default: 2)"),
        ("batch-size", "default: 64"),
    ):
        parser.add_argument(f"--{name}", type=int, metavar="N", help=text)
    parser.add_argument("--loss-scale", type=float, metavar="N", help="what clients multiply the loss by (default: 1)")
    parser.add_argument(
        "--states", metavar="S", help="of a client's optimizer: reset every round (default), or persist between rounds"
    )


def _memory_command(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], None]:
    parser.add_argument(
        "--block-size",
        type=int,
        nargs="+",
        default=[32, 64, 128],
        metavar="N",
        help="block sizes of Q-LocalAdam (default: 32 64 128, as in the paper)",
    )
    return _memory


def _data_command(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], None]:
    parser.add_argument("name", help="digits, digit-pairs, text, cifar10, cifar100, or any name together with --source")
    parser.add_argument("--out", "-o", type=Path, required=True, metavar="FILE.npz", help="the file to write")
    parser.add_argument(
        "--source",
        type=Path,
        metavar="PATH",
        help="a file or folder of your own; otherwise QLOCALADAM_<NAME> counts, then downloads are tried",
    )
    return _data


def _partition_command(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], None]:
    _add_data_arguments(parser, required=False)
    parser.add_argument(
        "--labels-of",
        metavar="NAME",
        choices=["cifar10", "cifar100"],
        help="instead of --data: the label order that ships with the package, at full size and offline",
    )
    parser.add_argument("--out", "-o", type=Path, required=True, metavar="FILE.npz", help="the file to write")
    parser.add_argument("--clients", type=int, default=10, metavar="N", help="default: 10")
    parser.add_argument(
        "--alpha", type=_alpha, default=0.1, metavar="A", help="Dirichlet concentration, or iid (default: 0.1)"
    )
    parser.add_argument("--seed", type=int, default=42, metavar="N", help="default: 42")
    parser.add_argument("--show", type=int, default=20, metavar="N", help="clients to list (default: 20)")
    return _partition


def _train_command(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], None]:
    _add_data_arguments(parser, required=True)
    _add_partition_argument(parser)
    parser.add_argument("--out", "-o", type=Path, required=True, metavar="FOLDER", help="where results go")
    parser.add_argument(
        "--arm",
        metavar="ARM",
        help="fp32, q-localadam (default), naive-int8, momentum-only, variance-only, dynamic-8bit, normalised, "
        "normalised-4bit, torchao-8bit, torchao-4bit",
    )
    parser.add_argument(
        "--option",
        type=_option,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the optimizer on top of the arm's, such as rounding=floor; may be repeated",
    )
    _add_rounds_argument(parser)
    _add_client_arguments(parser)
    _add_model_arguments(parser)
    parser.add_argument(
        "--checkpoint-every", type=int, default=1, metavar="N", help="rounds between checkpoints (default: 1)"
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="replace a finished run in the folder that was made otherwise"
    )
    return _train


ANALYSES = {
    "memory": (_analyse_memory, "bytes of optimizer state of the paper's models -> memory.csv"),
    "client-memory": (_analyse_client_memory, "all that a client of the paper's models holds -> client_memory.csv"),
    "scaling": (_analyse_scaling, "optimizer memory against model size -> scaling.csv"),
    "precision": (_analyse_precision, "error against magnitude of every code -> precision*.csv"),
    "heterogeneity": (_analyse_heterogeneity, "the paper's partitions, full size -> clients.csv, heterogeneity.csv"),
    "participation": (_analyse_participation, "client sampling and local steps -> sampling.json, steps.csv"),
    "significance": (_analyse_significance, "tests over seeds against FP32 -> significance.csv"),
    "contrasts": (_analyse_contrasts, "how far arms are from one of them -> contrasts.csv, differences.csv"),
    "registered": (_analyse_registered, "answers to the registered questions -> answers.csv"),
    "distributions": (_analyse_distributions, "optimizer states after 50 steps of FP32 Adam -> five files"),
    "steps": (_analyse_steps, "what each arm does to single steps of a client -> steps*.csv, summary.json"),
    "variance": (_analyse_variance, "the variance of clients by round and layer -> variance.csv, summary.json"),
    "model-size": (
        _analyse_model_size,
        "first steps of transformers, by their width -> model_size.csv, summary.json",
    ),
    "microscope": (_analyse_microscope, "every step of one client with each arm -> microscope*.csv, summary.json"),
}


def _analyse_command(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], None]:
    kinds = parser.add_subparsers(title="analyses", required=True, metavar="ANALYSIS")
    for name, (function, text) in ANALYSES.items():
        kind = kinds.add_parser(name, help=text, description=text)
        kind.add_argument("--out", "-o", type=Path, required=True, metavar="FOLDER", help="where the files go")
        kind.set_defaults(analysis=function)
        if name == "memory":
            _add_arms_argument(kind)
            kind.add_argument("--wanted", type=_place, nargs="+", required=True, metavar="DATASET:ARM:BLOCK_SIZE")
        elif name == "client-memory":
            _add_arms_argument(kind)
            kind.add_argument(
                "--block-size", type=int, default=64, metavar="N", help="where an arm has none (default: 64)"
            )
        elif name == "participation":
            kind.add_argument("--clients", type=Path, required=True, metavar="FILE", help="clients.csv")
        elif name in ("significance", "contrasts", "registered"):
            some = "*" if name == "registered" else "+"  # questions without runs are open, and shown
            kind.add_argument("--runs", type=Path, nargs=some, required=True, metavar="FOLDER", help="of training runs")
            kind.add_argument("--asked", type=json.loads, metavar="JSON", help="what a configuration asks of them")
            if name == "contrasts":
                kind.add_argument(
                    "--margin", type=float, default=0.05, metavar="N", help="share of the baseline (default: 0.05)"
                )
                kind.add_argument("--baseline", default="fp32", metavar="ARM", help="compared with (default: fp32)")
            if name == "registered":
                kind.add_argument("--questions", type=Path, required=True, metavar="FILE", help="registered.yaml")
                kind.add_argument("--scale", required=True, metavar="NAME", help="that the runs were made at")
        elif name == "distributions":
            _add_data_arguments(kind, required=True)
            _add_model_arguments(kind)
        elif name in ("model-size", "microscope"):
            _add_data_arguments(kind, required=True)
            _add_arms_argument(kind)
            kind.add_argument("--batch-size", type=int, metavar="N", help="default: 64")
            if name == "model-size":
                kind.add_argument("--widths", type=_widths, default=(48, 128, 256, 512), metavar="N,N,...")
                kind.add_argument("--steps", type=int, default=20, metavar="N", help="default: 20")
            else:
                kind.add_argument("--epochs", type=int, metavar="N", help="local epochs (default: 2)")
                kind.add_argument("--steps", type=int, metavar="N", help="at most so many (default: all of a round)")
            _add_model_arguments(kind)
        elif name in ("steps", "variance"):
            _add_data_arguments(kind, required=True)
            _add_partition_argument(kind)
            if name == "steps":
                _add_arms_argument(kind)
                kind.add_argument("--after", type=int, default=3, metavar="N", help="rounds before (default: 3)")
            else:
                _add_rounds_argument(kind)
            _add_client_arguments(kind)
            _add_model_arguments(kind)
    return _analyse


def _add_rounds_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, metavar="N", help="default: 120")


def _place(text: str) -> tuple[str, str, int]:
    parts = text.split(":")
    if len(parts) != 3 or not parts[2].isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form DATASET:ARM:BLOCK_SIZE")
    return parts[0], parts[1], int(parts[2])


def _widths(text: str) -> tuple[int, ...]:
    if not all(word.isdecimal() for word in text.split(",")):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form 48,128,256")
    return tuple(map(int, text.split(",")))


def _pair(text: str) -> tuple[str, Path]:
    name, equals, path = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=PATH")
    return name, Path(path)


def _add_result_arguments(parser: argparse.ArgumentParser, *outputs: str) -> None:
    parser.add_argument(
        "--file", type=_pair, action="append", default=[], metavar="NAME=PATH", help="an analysis; may be repeated"
    )
    for name in outputs:
        parser.add_argument(f"--{name}", type=Path, required=True, metavar="FILE", help="the file to write")


def _add_runs_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--runs", type=Path, action="append", default=[], metavar="FOLDER", help="of a training run; may be repeated"
    )


def _add_spec_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--spec",
        type=json.loads,
        required=True,
        metavar="JSON",
        help="its entry in config.yaml, with labels",
    )


def _table_command(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], None]:
    _add_spec_argument(parser)
    _add_runs_argument(parser)
    _add_result_arguments(parser, "tex", "csv")
    return _table


def _figure_command(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], None]:
    _add_spec_argument(parser)
    parser.add_argument(
        "--panel",
        type=Path,
        nargs="+",
        action="append",
        default=[],
        metavar="FOLDER",
        help="the runs of a panel",
    )
    _add_result_arguments(parser, "pdf", "png")
    return _figure


def _numbers_command(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], None]:
    _add_spec_argument(parser)
    _add_runs_argument(parser)
    _add_result_arguments(parser, "tex", "json")
    return _numbers


def _claims_command(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], None]:
    parser.add_argument("--scale", default="quick", metavar="NAME", help="whose results are judged (default: quick)")
    parser.add_argument(
        "--published",
        type=Path,
        default=Path(project_file("paper/published.yaml")),
        metavar="FILE",
        help="what the paper prints (default: paper/published.yaml)",
    )
    parser.add_argument(
        "--numbers", type=Path, metavar="FILE", help="what was computed (default: results/<scale>/numbers.json)"
    )
    for name, text in (
        ("csv", "every verdict"),
        ("counts", "a LaTeX table of the counts"),
        ("disagreements", "LaTeX tables of what does not agree"),
        ("macros", "LaTeX macros"),
    ):
        parser.add_argument(f"--{name}", type=Path, metavar="FILE", help=f"write {text} to this file, too")
    return _claims


def _page_command(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], None]:
    kinds = parser.add_subparsers(title="pages", required=True, metavar="PAGE")
    for name, function, text in (
        ("table", _page_of_table, "a table as HTML"),
        ("ledger", _page_of_ledger, "the ledger of claims as HTML, with filters"),
        ("released", _page_of_released, "printed, released and rebuilt, line by line, as Markdown"),
        ("results", _page_of_results, "everything in short as Markdown, with pictures"),
    ):
        kind = kinds.add_parser(name, help=text, description=text)
        kind.set_defaults(page=function)
        kind.add_argument("--out", "-o", type=Path, required=True, metavar="FILE", help="the file to write")
        if name == "released":
            kind.add_argument("--source", type=Path, required=True, metavar="FILE.yaml")
            kind.add_argument(
                "--labels", type=json.loads, required=True, metavar="JSON", help="of arms, by their names"
            )
            continue
        if name != "ledger":
            _add_spec_argument(kind)
        if name == "table":
            kind.add_argument("--table", type=Path, required=True, metavar="FILE.csv")
        else:
            kind.add_argument("--claims", type=Path, required=True, metavar="FILE.csv")
        if name == "ledger":
            kind.add_argument("--scale", required=True, metavar="NAME")
        if name == "results":
            kind.add_argument("--numbers", type=Path, required=True, metavar="FILE.json")
            kind.add_argument("--tables", type=Path, nargs="+", required=True, metavar="FILE.csv")
            kind.add_argument("--figures", type=Path, nargs="+", required=True, metavar="FILE.png")
    return _page


def _check_command(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], None]:
    _add_configuration_arguments(parser)
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write every verdict to this file, too")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write them as a page, too")
    parser.add_argument(
        "--only", nargs="+", metavar="KIND", help="data, partition, run, analysis, exact, test, table, figure, ..."
    )
    parser.add_argument("--record", action="store_true", help="end with 0 whatever is found; who reads it decides")
    return _check


def _add_configuration_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--configfile",
        type=Path,
        nargs="*",
        default=[Path(project_file("config.yaml"))],
        metavar="FILE",
        help="default: config.yaml",
    )
    parser.add_argument(
        "--config", nargs="+", default=[], metavar="KEY=VALUE", help="on top of it, as for snakemake: scale=test"
    )


def _reference_command(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], None]:
    actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION")
    text = "write runs.csv, histories.csv.gz, claims.csv and tables/ from finished results"
    collect = actions.add_parser("collect", help=text, description=text)
    collect.set_defaults(action=_collect_reference)
    _add_runs_argument(collect)
    collect.add_argument("--asked", type=json.loads, metavar="JSON", help="what a configuration asks of them")
    collect.add_argument("--claims", type=Path, required=True, metavar="FILE.csv", help="the ledger")
    collect.add_argument("--tables", type=Path, nargs="+", required=True, metavar="FILE.csv")
    collect.add_argument("--out", "-o", type=Path, required=True, metavar="FOLDER", help="where the files go")
    text = "compare one's own runs with a reference; ends with 1 where any differs by more than seeds do"
    verify = actions.add_parser("verify", help=text, description=text)
    verify.set_defaults(action=_verify)
    verify.add_argument("--scale", default="quick", metavar="NAME", help="default: quick")
    verify.add_argument(
        "--reference",
        type=Path,
        default=Path(project_file("paper/reference")),
        metavar="FOLDER",
        help="of all references (default: paper/reference)",
    )
    _add_configuration_arguments(verify)
    verify.add_argument("--runs", type=Path, metavar="FOLDER", help="of all runs (default: results/<scale>/runs)")
    verify.add_argument("--csv", type=Path, metavar="FILE", help="write every verdict to this file, too")
    verify.add_argument("--text", type=Path, metavar="FILE", help="write what is printed to this file, too")
    return _reference


COMMANDS = {
    "memory": (
        _memory_command,
        "the paper's memory figures, rebuilt",
        "Print the optimizer memory of every arm for both of the paper's models, in the paper's layout and as held "
        "here. Needs no training and no data.",
        "python -m qlocaladam memory --block-size 32 64 128 256",
    ),
    "data": (
        _data_command,
        "get a data set, check it, keep it as one file",
        "Write a data set as one .npz of uint8 images, or windows of text, with its SHA-256 and origin beside it. "
        "digits, digit-pairs and text need no download.",
        "python -m qlocaladam data digits --out data/digits.npz",
    ),
    "partition": (
        _partition_command,
        "deal a data set out to clients",
        "Draw the paper's Dirichlet or IID partition, write it, and show who holds what.",
        "python -m qlocaladam partition --labels-of cifar10 --alpha 0.1 --out cifar10.npz",
    ),
    "train": (
        _train_command,
        "one federated training run",
        "Train one arm on one partition. A run that was stopped goes on where it was when the same command is given "
        "again. Leaves history.csv, summary.json, settings.json, timings.csv and run.log in the folder.",
        "python -m qlocaladam train --data data/digits.npz --partition data/p.npz --arm naive-int8 --rounds 20 "
        "--width 8 --image-size 32 --batch-size 16 --no-flip --out results/naive",
    ),
    "analyse": (
        _analyse_command,
        "measure results, partitions, codecs and optimizer states",
        "Write one analysis as files into a folder. All but the last three need no training and have the paper's size.",
        "python -m qlocaladam analyse precision --out results/exact",
    ),
    "table": (
        _table_command,
        "one table, as LaTeX and CSV",
        "Make one table of the paper from finished runs and analyses. The rules of the workflow call this.",
        "snakemake tables",
    ),
    "figure": (
        _figure_command,
        "one figure, as PDF and PNG",
        "Make one figure of the paper from finished runs and analyses. The rules of the workflow call this.",
        "snakemake figures",
    ),
    "numbers": (
        _numbers_command,
        "every number that a text quotes",
        "Collect numbers from finished runs and analyses, each with the file it came from, as LaTeX and JSON.",
        "snakemake numbers",
    ),
    "claims": (
        _claims_command,
        "what holds of what the paper prints, what does not, what was not tried",
        "Compare each number and claim of the paper with what was computed, and print a summary by kind and verdict.",
        "python -m qlocaladam claims --scale quick",
    ),
    "check": (
        _check_command,
        "whether results are what the configuration makes",
        "Compare every run with the configuration, its history, data and partition, and every table, number, page and "
        "figure with what its inputs make; list what is wrong and end with 1 if anything is.",
        "python -m qlocaladam check --config scale=test",
    ),
    "page": (
        _page_command,
        "pages for people: a table, the ledger, a summary",
        "Write HTML for the report or a Markdown summary from finished results. The rules of the workflow call this.",
        "snakemake pages",
    ),
    "reference": (
        _reference_command,
        "results that are kept, and whether one's own agree with them",
        "Collect finished results of a scale into a folder for git, or compare one's own runs with such a folder.",
        "python -m qlocaladam reference verify --scale small",
    ),
}


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m qlocaladam",
        description="8-bit Adam for the clients of federated learning. @FILE: arguments from a file, one a line.",
        fromfile_prefix_chars="@",
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, (add_arguments, text, description, example) in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=description, epilog=f"example: {example}")
        command.set_defaults(run=add_arguments(command))
    return parser


def _newest_checkpoint(arguments: argparse.Namespace) -> str:
    """What a training run has saved that could not go on."""
    if arguments.run is not _train:
        return ""
    from qlocaladam.federated import checkpoint

    content, _ = checkpoint.load(arguments.out / "checkpoint.pt")
    return f"; the newest checkpoint is of round {len(content['rows'])}" if content else ""


def main(argv: Sequence[str] | None = None) -> int:
    parser = build_parser()
    arguments = parser.parse_args(argv)
    if arguments.run is _partition and bool(arguments.data) == bool(arguments.labels_of):
        parser.error("partition needs either --data or --labels-of")
    try:
        arguments.run(arguments)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in EXTRA_OF:
            raise
        parser.exit(1, f"qlocaladam: {how_to_install(error.name or '')}\n")
    except (ValueError, FileNotFoundError) as error:
        parser.exit(2, f"qlocaladam: {error}\n")
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        parser.exit(1, f"qlocaladam: {where}{error.strerror or error}{_newest_checkpoint(arguments)}\n")
    except RuntimeError as error:
        from qlocaladam.datasets import DataUnavailable

        if not isinstance(error, DataUnavailable):
            raise
        parser.exit(1, f"qlocaladam: {error}\n")
    return 0
