"""The #SBATCH lines of a batch script, read as sbatch reads them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from hpcplat.errors import InvalidError
from hpcplat.sbatchline.commandline import Component, parse_options
from hpcplat.sbatchline.options import KNOWN, Options

_MAGIC = ("#SBATCH", "#SLURM")
_NEXT_COMPONENT = ("hetjob", "packjob")

_QUOTED = r"""
    "(?P<double>(?:\\.|[^"\\])*)"
  | '(?P<single>(?:\\.|[^'\\])*)'
  | (?P<bare>(?:\\(?:\S|[ ])|[^\s\#"'\\])+)
"""
_PIECE = re.compile(_QUOTED, re.VERBOSE)
_WORD = re.compile(
    "(?:" + re.sub(r"\?P<\w+>", "?:", _QUOTED) + r")+(?:\\(?=\s|\Z))?", re.VERBOSE
)
_ESCAPED = re.compile(r"\\(.)")


@dataclass(frozen=True, slots=True)
class Directive:
    """One #SBATCH line: its number (from 1), and the words on it."""

    line: int
    words: tuple[str, ...]
    next_component: bool = False


def parse_script(text: str, options: Options = KNOWN) -> tuple[Component, ...]:
    """Return the options of each component that the #SBATCH lines give.

    Raises InvalidError, with the line, where sbatch would refuse the script.
    """
    components: list[list[str]] = [[]]
    for directive in directives(text):
        if directive.next_component:
            components.append([])
        components[-1].extend(directive.words)
    return tuple(_options(words, options) for words in components)


def directives(text: str) -> Iterator[Directive]:
    """Yield the #SBATCH lines; the first command of the script ends them."""
    for number, line in enumerate(text.split("\n"), start=1):
        magic = next((word for word in _MAGIC if line.startswith(word)), None)
        if magic is not None:
            yield _directive(number, line[len(magic) :])
        elif line.strip() and not line.lstrip().startswith("#"):
            return


def _directive(number: int, rest: str) -> Directive:
    first, _, behind = rest.strip().partition(" ")
    if first.lower() in _NEXT_COMPONENT:
        return Directive(number, tuple(split_words(behind, number)), True)
    return Directive(number, tuple(split_words(rest, number)))


def split_words(line: str, number: int) -> Iterator[str]:
    """Yield the words of a line: quotes group, a backslash escapes, ``#`` ends it.

    Unlike in a shell, ``#`` ends it in the middle of a word too, a backslash escapes
    inside single quotes as well, one ahead of a tab is dropped, and an empty word ("")
    ends the line. (Before 24.05 one ahead of a blank was dropped too.)
    """
    rest = line.strip()
    while rest and not rest.startswith("#"):
        written = _WORD.match(rest)
        word = "".join(map(_unquoted, _PIECE.finditer(written[0]))) if written else ""
        rest = rest[written.end() :] if written else rest
        if rest[:1] in ("'", '"'):
            raise InvalidError(
                f"Line {number}: a quote ({rest[0]}) is not closed.",
                "Close it on the same line.",
            )
        if not word:
            return
        yield word
        rest = rest.lstrip()


def _unquoted(piece: re.Match[str]) -> str:
    inside = piece["double"] or piece["single"] or piece["bare"] or ""
    return _ESCAPED.sub(r"\1", inside)


def _options(words: list[str], options: Options) -> Component:
    given, end = parse_options(words, options)
    if end < len(words):
        raise InvalidError(
            f"The #SBATCH lines hold {words[end]!r}, which is no option.",
            "Begin it with -- or take it out.",
        )
    return given
