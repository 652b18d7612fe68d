"""Which files of the package a program runs, by its import statements: what is made by it depends on them.

Imports inside of functions count, those for type checkers alone do not. A name that a package hands on is looked for
where the package has it from. Style sheets and scripts of pages belong to all modules beside them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parent.name
OF_PAGES = (".css", ".js")


def reached(source: Path, *programs: Path) -> list[Path]:
    """Programs and all files below `source`, the folder of the package, that they import, directly or not."""
    files: dict[Path, None] = {}
    waiting = list(programs)
    while waiting:
        path = waiting.pop()
        if path not in files:
            files[path] = None
            waiting += imported(source, path)
    return sorted(files)


@cache
def imported(source: Path, path: Path) -> tuple[Path, ...]:
    """Files of the package that a file imports itself, and those of pages beside it."""
    if path.suffix in OF_PAGES:
        return ()
    beside = (file for file in path.parent.iterdir() if file.suffix in OF_PAGES)
    modules = (
        file
        for module, names in _statements(ast.parse(path.read_text()).body)
        if module.partition(".")[0] == PACKAGE
        for file in _files(source, module.split(".")[1:], names)
    )
    return (*beside, *modules)


def _statements(body: Iterable[ast.AST], typing: bool = False) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each module that is imported, and the names that are taken from it; or only those for type checkers."""
    for node in body:
        for_checkers = isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        if isinstance(node, ast.Import):
            yield from ((alias.name, ()) for alias in node.names if not typing)
        elif isinstance(node, ast.ImportFrom) and node.module and not typing:
            yield node.module, tuple(alias.name for alias in node.names)
        elif for_checkers is typing or not isinstance(node, ast.If):
            yield from _statements(ast.iter_child_nodes(node), typing=False if for_checkers else typing)
        elif isinstance(node, ast.If):
            yield from _statements(node.orelse, typing)


def _files(source: Path, parts: list[str], names: tuple[str, ...]) -> Iterator[Path]:
    """Of `from a.b import c`: the packages on the way, the module b, and c where that is a module of its own."""
    for depth in range(len(parts) + 1):
        if (package := source.joinpath(*parts[:depth], "__init__.py")).exists():
            yield package
    here = source.joinpath(*parts)
    if here.with_suffix(".py").exists():
        yield here.with_suffix(".py")
    for name in names:
        if (here / f"{name}.py").exists() or (here / name / "__init__.py").exists():
            yield from _files(source, [*parts, name], ())
        elif home := _handed_on(here / "__init__.py").get(name):
            yield from _files(source, home.split(".")[1:], ())


@cache
def _handed_on(package: Path) -> dict[str, str]:
    """Names that a package imports when they are first used, which it has said to type checkers."""
    if not package.exists():
        return {}
    statements = _statements(ast.parse(package.read_text()).body, typing=True)
    return {name: module for module, names in statements for name in names}
