"""config.yaml as it is read. A mistake is one line: the key, its value, what is accepted, and where it came from."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from qlocaladam.experiments import consistency, grid
from qlocaladam.files import read_yaml, yaml_loader
from qlocaladam.project import project_file

SCHEMA = "workflow/schemas/config.schema.yaml"
REGISTERED, REGISTERED_SCHEMA = "paper/registered.yaml", "workflow/schemas/registered.schema.yaml"
COMMAND_LINE = "--config"


Files = Sequence[str | Path]
Check = Callable[[Mapping[str, Any]], None]
"""ValueError at the first mistake. That of tables and figures is `results.kinds.check`, which this package is below."""


def load(files: Files, overrides: Sequence[str], of_results: Check) -> dict[str, Any]:
    """The configuration of files with KEY=VALUE on top, checked; ValueError in one line where it is wrong."""
    import yaml

    given = {}
    for text in overrides:
        key, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"{COMMAND_LINE} is {text!r}; accepted: KEY=VALUE")
        given[key] = yaml.safe_load(value)
    config: dict[str, Any] = {}
    for path in files:
        refuse_unreadable(path)
        _merge(config, read_yaml(Path(path).read_text()))
    check(config, files, given, of_results)
    return config


def as_arguments(files: Files, overrides: Mapping[str, Any]) -> list[str]:
    """The same configuration for a command of the package."""
    import yaml

    def text(value: Any) -> str:
        return yaml.safe_dump(value, default_flow_style=True, width=10**6).split("\n")[0]

    given = [f"{key}={text(value)}" for key, value in _typed(overrides).items()]
    return ["--configfile", *map(os.path.relpath, files), *(["--config", *given] if given else [])]


def check_or_stop(
    config: MutableMapping[str, Any], files: Files, overrides: Mapping[str, Any], of_results: Check
) -> None:
    """For the workflow: end it with one line where the configuration is wrong, without a word about Python."""
    try:
        check(config, files, _typed(overrides), of_results)
    except ValueError as error:
        stop(error)


def complete(config: MutableMapping[str, Any], path: str | Path) -> None:
    """For a module, which has the configuration that it is given: keys that it lacks are those of a file."""
    import yaml

    for key, value in yaml.safe_load(Path(path).read_text()).items():
        config.setdefault(key, value)


def stop(error: object) -> NoReturn:
    print(error, file=sys.stderr, flush=True)
    sys.exit(1)


def check(config: MutableMapping[str, Any], files: Files, overrides: Mapping[str, Any], of_results: Check) -> None:
    """Put the overrides in, then raise ValueError at the first mistake."""
    for path in files:
        refuse_unreadable(path)
    _merge(config, overrides)
    for complaint in (refuse_by_schema, grid.check, consistency.check, of_results):
        try:
            complaint(config)
        except ValueError as error:
            key = error.key if isinstance(error, Mistake) else re.split(r"\W", str(error))[0]
            raise ValueError(f"{_origin(key, files, overrides)}: {error}") from None


def _merge(config: MutableMapping[str, Any], overrides: Mapping[str, Any]) -> None:
    for key, value in overrides.items():
        if isinstance(value, Mapping) and isinstance(config.get(key), MutableMapping):
            _merge(config[key], value)
        else:
            config[key] = value


def _typed(value: Any) -> Any:
    """Snakemake reads true, and everything inside of braces, as words; here they mean what they do in the file."""
    import yaml

    if isinstance(value, Mapping):
        return {key: _typed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_typed(item) for item in value]
    try:
        return yaml.safe_load(value) if isinstance(value, str) else value
    except yaml.YAMLError:
        return value


def _origin(key: str, files: Files, overrides: Mapping[str, Any]) -> str:
    """Where the value of a top-level key came from: the command line, or the last file that has it."""

    if key in overrides:
        return COMMAND_LINE
    having = [path for path in files if key in read_yaml(Path(path).read_text())]
    return os.path.relpath((having or list(files))[-1]) if files else "the configuration"


def refuse_unreadable(path: str | Path) -> None:
    """Raise ValueError unless a file holds a mapping in YAML in which no key is there twice."""
    import yaml

    try:
        node = yaml.compose(Path(path).read_text(), yaml_loader())
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: cannot be read ({error}); accepted: YAML with keys, as config.yaml has it") from None
    except yaml.YAMLError as error:
        said = " ".join(str(error).split())
        raise ValueError(f"{path}: is not YAML ({said}); accepted: YAML with keys, as config.yaml has it") from None
    if not isinstance(node, yaml.MappingNode):
        content = "empty" if node is None else "without keys"
        raise ValueError(f"{path}: is {content}; accepted: YAML with keys, as config.yaml has it")
    for key, line in _repeated(node):
        raise ValueError(f"{path}: line {line} has the key {key!r} a second time; each may be there once")


def _repeated(node: Any) -> Iterator[tuple[str, int]]:
    """YAML would silently keep the last."""
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


def registration(path: str | Path) -> dict[str, Any]:
    """The registered questions; ValueError in one line where they are not as the schema has them."""
    refuse_unreadable(path)
    content: dict[str, Any] = read_yaml(Path(path).read_text())
    try:
        refuse_by_schema(content, read_yaml(Path(project_file(REGISTERED_SCHEMA)).read_text()))
    except Mistake as error:
        raise ValueError(f"{path}: {error}") from None
    names = [question["name"] for question in content["questions"]]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{path}: questions has {name!r} {names.count(name)} times; each needs a name of its own")
    for question in content["questions"]:
        if question["arm"] == question["baseline"]:
            where = f"{path}: {question['name']}: arm is {question['arm']!r}"
            raise ValueError(f"{where}, which is its baseline, too; accepted: another")
    return content


class Mistake(ValueError):
    """A mistake whose words do not begin with the key that it stands under."""

    key = ""


def refuse_by_schema(config: Any, schema: Any = None) -> None:
    """Raise Mistake at the first key that is not as the schema has it."""
    import jsonschema  # type: ignore[import-untyped, unused-ignore]

    schema = schema or read_yaml(Path(project_file(SCHEMA)).read_text())
    # To JSON 10.0 is a whole number, and to Python nan is greater than 0, as nothing says that it is not.
    kind = jsonschema.Draft202012Validator
    types = kind.TYPE_CHECKER.redefine("integer", _is_whole).redefine("number", _is_number)
    validator = jsonschema.validators.extend(kind, type_checker=types)(schema)
    for error in validator.iter_errors(config):
        raise explain(error)


def _is_whole(checker: object, value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(checker: object, value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def explain(error: Any) -> Mistake:
    """The schema's complaint in one line."""
    place = error.json_path.removeprefix("$").removeprefix(".")
    key = str(next(iter(error.absolute_path), ""))
    if error.validator == "additionalProperties":
        known = error.schema["properties"]
        unknown = next(name for name in error.instance if name not in known)
        said = f"{place or 'the file'} has an unknown key {unknown!r}; accepted: {', '.join(known)}"
        key = key or unknown
    elif error.validator == "required":
        missing = next(name for name in error.validator_value if name not in error.instance)
        said = f"{place or 'the file'} lacks the key {missing!r}"
    else:
        named = ", ".join(map(str, error.validator_value)) if error.validator == "enum" else error.message
        said = f"{place} is {error.instance!r}; accepted: {error.schema.get('description', named)}"
    mistake = Mistake(said)
    mistake.key = key
    return mistake
