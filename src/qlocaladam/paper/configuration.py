"""Mistakes in config.yaml, said in one line: the key, its value, and what is accepted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any


def refuse_repeated_keys(path: str | Path) -> None:
    """Raise ValueError where a mapping has a key twice: YAML would silently keep the last."""
    import yaml

    with open(path) as file:
        for key, line in _repeated(yaml.compose(file)):
            raise ValueError(f"line {line} has the key {key!r} a second time; each may be there once")


def _repeated(node: Any) -> Iterator[tuple[str, int]]:
    import yaml

    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if key.value in seen:
                yield key.value, key.start_mark.line + 1
            seen.add(key.value)
            yield from _repeated(value)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _repeated(item)


def explain(error: BaseException) -> str:
    """The schema's complaint behind an error in one line, or the error's own words where there is none."""
    cause: Any = error.__context__
    if not hasattr(cause, "json_path"):
        return str(error)
    place = cause.json_path.removeprefix("$").removeprefix(".")
    if cause.validator == "additionalProperties":
        known = cause.schema["properties"]
        unknown = next(name for name in cause.instance if name not in known)
        return f"{place or 'the file'} has an unknown key {unknown!r}; accepted: {', '.join(known)}"
    if cause.validator == "required":
        missing = next(name for name in cause.validator_value if name not in cause.instance)
        return f"{place or 'the file'} lacks the key {missing!r}"
    named = ", ".join(map(str, cause.validator_value)) if cause.validator == "enum" else cause.message
    return f"{place} is {cause.instance!r}; accepted: {cause.schema.get('description', named)}"
