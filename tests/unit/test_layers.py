"""Packages import downwards only, so that the lower ones can be read, tested and used without the upper ones."""

import ast
from pathlib import Path

import qlocaladam

ROOT = Path(qlocaladam.__file__).parent
LAYERS = ("optimizer", "data", "federated", "experiments", "analysis", "results", "ledger", "report", "cli")
"""From below. Modules beside the packages are the optimizer and what all share, but for those that start commands."""
STARTING = ("__main__", "jobs")


def layer(module):
    """Of `qlocaladam.PACKAGE.MODULE`."""
    package = [*module.split("."), ""][1]
    return LAYERS.index("cli" if package in STARTING else package if package in LAYERS else "optimizer")


def imports(path):
    """Modules of this package that a file imports, wherever it does so."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: imports are absolute"
            found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
        elif isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
    return {module for module in found if module.startswith("qlocaladam.")}


def test_imports_go_downwards():
    upwards = []
    for path in sorted(ROOT.rglob("*.py")):
        own = layer(".".join(("qlocaladam", *path.relative_to(ROOT).with_suffix("").parts)))
        upwards += [f"{path.relative_to(ROOT)}: {module}" for module in imports(path) if layer(module) > own]
    assert upwards == []


def test_every_package_has_a_layer():
    packages = {folder.name for folder in ROOT.iterdir() if (folder / "__init__.py").exists()}
    assert packages - {"kernels"} <= set(LAYERS)
