"""What differs between two runs: a pure comparison of nested plain values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

MISSING: Final = "(not there)"

# What differs between any two runs, and says nothing.
IGNORED: Final = frozenset({"folder", "key", "attempts", "format", "time"})


class Difference(NamedTuple):
    """A path of names (``spec.resources.nodes``) and the two values at it."""

    path: str
    left: object
    right: object


def differences(left: Any, right: Any, path: str = "") -> Iterator[Difference]:  # noqa: ANN401
    """Yield where two values differ, by path; lists are compared place by place."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        for key in [*left, *(key for key in right if key not in left)]:
            if path or key not in IGNORED:
                below = f"{path}.{key}" if path else str(key)
                values = (left.get(key, MISSING), right.get(key, MISSING))
                yield from differences(*values, below)
    elif isinstance(left, list) and isinstance(right, list):
        for index in range(max(len(left), len(right))):
            values = (_at(left, index), _at(right, index))
            yield from differences(*values, f"{path}[{index}]")
    elif left != right:
        yield Difference(path, left, right)


def _at(values: list[Any], index: int) -> object:
    return values[index] if index < len(values) else MISSING
