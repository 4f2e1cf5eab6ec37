"""docs/reference/errors.md: every message for people, with its remedy, from the code."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Final

from server.problems import STATUS
from tests.docs.sources import cell, first_line, trees

ROOT: Final = "HpcplatError"
HOLE: Final = "…"  # a value that is known only when it happens

HEAD: Final = """# Errors

<!-- Made by `python -m tests.docs.generate`. -->

What a person can mend is told in one line: what is wrong, and what to do. The command ends
with [exit code](exit-codes.md) 1, the service answers with a problem document (RFC 9457) of
the status below. All else is a fault of ours: exit code 3, status 500, and a log.

In the tables, … stands for what is known only when it happens. Search this page for a few
words of the message that you have.
"""


def page() -> str:
    """Return the page: the kinds of errors, then the messages by part."""
    kinds = _kinds()
    rows = [
        f"| `{name}` | {cell(says)} | {'' if base == ROOT else f'`{base}`'}"
        f" | {_status(name, kinds)} |"
        for name, (base, says) in sorted(kinds.items())
        if name != ROOT
    ]
    head = "## Kinds\n\n| error | means | a kind of | status |\n|---|---|---|---|"
    return "\n".join([HEAD, head, *rows, "", *_messages(kinds)])


def _kinds() -> Mapping[str, tuple[str, str]]:
    """Return {name: (base, what it means)} of every error for people."""
    classes = {
        node.name: (node.bases[0].id, first_line(node))
        for _, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and node.bases
        and isinstance(node.bases[0], ast.Name)
    }
    return {n: found for n, found in classes.items() if _is_for_people(n, classes)}


def _is_for_people(name: str, classes: Mapping[str, tuple[str, str]]) -> bool:
    while name in classes and name != ROOT:
        name = classes[name][0]
    return name == ROOT


def _status(name: str, kinds: Mapping[str, tuple[str, str]]) -> int:
    """Return the HTTP status of an error, or of the nearest kind that has one."""
    known = {kind.__name__: int(status) for kind, status in STATUS.items()}
    while name not in known:
        name = kinds[name][0]
    return known[name]


def _messages(kinds: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    for package, title in TITLES.items():
        rows = sorted(set(_rows(package, kinds)))
        yield f"## {title}\n"
        yield "| message | what to do |\n|---|---|"
        yield from rows
        yield ""


TITLES: Final = {
    "hpcplat": "Commands and the library",
    "server": "The service",
    "launchers": "Inside the allocation",
    "storage": "Writing data",
}


def _rows(package: str, kinds: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    for path, tree in trees():
        if path.split("/")[0] != package:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and _is_of(node, kinds):
                words = [_text(argument) for argument in node.args[:2]]
                if any(letter.isalpha() for letter in words[0]):
                    remedy = words[1] if len(words) > 1 else ""
                    yield f"| {cell(words[0])} | {cell(remedy)} |"


def _is_of(call: ast.Call, kinds: Mapping[str, tuple[str, str]]) -> bool:
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    return bool(call.args) and (name in kinds or name == ROOT)


def _text(node: ast.expr) -> str:
    """Return a message with a hole for each value in it."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text(node.left) + _text(node.right)
    return HOLE
