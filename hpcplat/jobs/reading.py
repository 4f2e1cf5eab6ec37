"""Job specs from YAML, JSON and Python, with limits that no bomb gets through."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import ValidationError

from hpcplat.errors import InvalidError, NotFoundError
from hpcplat.jobs.complaints import spec_error
from hpcplat.jobs.spec import JobSpec

LARGEST: Final = 1024 * 1024  # bytes
DEEPEST: Final = 32  # levels of lists and mappings
YAML_BEGINS: Final = frozenset("'\"|>!&#")  # text that YAML must be asked about


class _PlainLoader(yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader):  # type: ignore[misc]
    """YAML without surprises: what looks like a time or an octal number is text.

    Only whole decimal numbers, plain floats, true, false and null are not text
    (YAML 1.2's core schema, without its octal and hexadecimal numbers), so that
    ``12:00:00``, ``010``, ``on`` and ``2024-01-01`` stay what was written.
    """

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's own

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Any:  # noqa: ANN401
        """Refuse a key that stands there twice: one of the two would be lost."""
        keys = [getattr(key, "value", None) for key, _ in node.value]
        for place, key in enumerate(keys):
            if isinstance(key, str) and key in keys[:place]:
                raise InvalidError(
                    f"line {node.value[place][0].start_mark.line + 1}:"
                    f" the key {key!r} stands there twice.",
                    "Remove one.",
                )
        return super().construct_mapping(node, deep=deep)


for _tag, _pattern, _first in (
    ("bool", r"true|false|True|False", "tfTF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)", "-+0123456789"),
    ("float", r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?",
     "-+.0123456789"),
):  # fmt: skip
    _PlainLoader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), list(_first)
    )


def read_spec(path: Path, changes: Sequence[str] = ()) -> JobSpec:
    """Return the spec in a file (.json is JSON, all else YAML) with changes applied.

    ``changes`` are ``a.b=c`` texts. Raises NotFoundError, or InvalidError (SpecError)
    with one line for each fault.
    """
    values = parse_file(path)
    return spec_of(changed(values, changes))


def parse_file(path: Path) -> dict[str, Any]:
    """Return the mapping that stands in a YAML or JSON file."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except FileNotFoundError as error:
        raise NotFoundError(f"{path} is not there.", "Check the name.") from error
    except OSError as error:
        raise InvalidError(
            f"{path} can't be read ({error.strerror}).", "Name a readable file."
        ) from error
    return parse(content, "json" if path.suffix == ".json" else "yaml")


def parse(
    content: bytes | str, language: str = "yaml", largest: int = LARGEST
) -> dict[str, Any]:
    """Return the mapping that stands in YAML or JSON text; InvalidError if none.

    Refused: more than ``largest`` bytes (1 MiB), what is not UTF-8, YAML aliases (a bomb's fuse), keys
    given twice, more than 32 levels.
    """
    text = _decoded(content, largest)
    values = _json(text) if language == "json" else _yaml(text)
    if not isinstance(values, dict):
        raise InvalidError("The spec is not a mapping.", "Write it as key: value.")
    return values


def spec_of(values: Mapping[str, Any]) -> JobSpec:
    """Return the spec with these values; SpecError with one line for each fault."""
    try:
        return JobSpec.model_validate(dict(values))
    except ValidationError as error:
        raise spec_error(error, JobSpec) from error


def changed(values: Mapping[str, Any], changes: Iterable[str]) -> dict[str, Any]:
    """Return values with ``a.b=c`` applied; c is read as YAML, and what isn't, as text.

    Text that is not quoted as in YAML stays to the letter, line breaks and ``#`` too.

    A name may hold dots only in its last part's value; ``a.b=`` sets the empty text.
    """
    result: dict[str, Any] = json.loads(json.dumps(values, default=str))
    for change in changes:
        path, separator, text = change.partition("=")
        if not separator or not all(path.split(".")):
            raise InvalidError(f"{change!r} is not a change.", "Write --set a.b=c.")
        _set(result, path.split("."), _scalar(text))
    return result


def _set(values: dict[str, Any], path: list[str], value: object) -> None:
    for part in path[:-1]:
        values = values.setdefault(part, {})
        if not isinstance(values, dict):
            raise InvalidError(
                f"{'.'.join(path)} goes through {part}, which holds no keys.",
                "Set the whole of it.",
            )
    values[path[-1]] = value


def _scalar(text: str) -> object:
    if not text:
        return ""
    try:
        value = _yaml(_decoded(text))
    except InvalidError:
        return text
    is_plain = text.lstrip()[:1] not in YAML_BEGINS
    return text if isinstance(value, str) and is_plain else value


def _decoded(content: bytes | str, largest: int = LARGEST) -> str:
    if isinstance(content, str):  # a word of the command line may be no UTF-8
        size = len(content.encode(errors="surrogateescape"))
    else:
        size = len(content)
    if size > largest:
        raise InvalidError(
            f"The spec is larger than {largest // 1024} KiB.",
            "Keep data in files, and name them.",
        )
    if isinstance(content, str):
        return content
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InvalidError(
            f"The spec is not UTF-8 (line {line}, byte {error.start}).",
            "Save it as UTF-8.",
        ) from error


def _json(text: str) -> object:
    try:
        values = json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
    except RecursionError as error:
        raise _too_deep() from error
    except ValueError as error:
        raise InvalidError(f"The spec is not JSON: {error}.", "Mend it.") from error
    _check_depth(values)
    return values


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise InvalidError(f"The key {twice!r} stands there twice.", "Remove one.")
    return found


def _no_constant(name: str) -> object:
    raise InvalidError(f"{name} is not a number.", "Write a finite number.")


def _check_depth(value: object, level: int = 0) -> None:
    if level > DEEPEST:
        raise _too_deep()
    inner: Iterable[object] = ()
    if isinstance(value, dict):
        inner = value.values()
    elif isinstance(value, list):
        inner = value
    for part in inner:
        _check_depth(part, level + 1)


def _too_deep() -> InvalidError:
    return InvalidError(
        f"The spec is nested deeper than {DEEPEST} levels.", "Flatten it."
    )


def _yaml(text: str) -> object:
    try:
        _check_events(text)
        return yaml.load(text, Loader=_PlainLoader)
    except yaml.YAMLError as error:
        raise InvalidError(f"The spec is not YAML: {_where(error)}.", "") from error
    except (ValueError, TypeError) as error:  # a number of 5,000 digits, a list as key
        raise InvalidError(f"The spec can't be read: {error}.", "") from error


def _check_events(text: str) -> None:
    """Refuse aliases and deep nesting before anything is built from the text."""
    level = 0
    for event in yaml.parse(text, Loader=_PlainLoader):
        if isinstance(event, yaml.AliasEvent):
            raise InvalidError(
                f"line {_line(event.start_mark)}: YAML aliases are not taken.",
                "Write the value out.",
            )
        level += isinstance(event, yaml.CollectionStartEvent)
        level -= isinstance(event, yaml.CollectionEndEvent)
        if level > DEEPEST:
            raise _too_deep()


def _line(mark: object) -> int:
    """Return the line, counted from 1, that a mark of PyYAML points to."""
    return int(getattr(mark, "line", -1)) + 1


def _where(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)  # only some of PyYAML's errors
    if mark is not None:
        return f"{getattr(error, 'problem', '')} at line {_line(mark)}"
    return " ".join(str(error).split())
