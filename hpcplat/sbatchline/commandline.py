"""sbatch's command line: options, components of a het job, the script and its words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hpcplat.sbatchline.options import KNOWN, SAME, Option, Options, Takes


@dataclass(frozen=True, slots=True)
class Given:
    """An option as somebody gave it; ``option`` is None for one that nobody knows.

    ``name`` is the full long name, also where an abbreviation or the short one was
    written; ``value`` is None where there was none.
    """

    name: str
    value: str | None
    option: Option | None

    @property
    def known(self) -> bool:
        """Whether the table (or the site's plugins) has it."""
        return self.option is not None

    def word(self) -> str:
        """Return it as one word for a command line."""
        return f"--{self.name}" if self.value is None else f"--{self.name}={self.value}"


Component = tuple[Given, ...]


@dataclass(frozen=True, slots=True)
class CommandLine:
    """What stands behind ``sbatch``: one component, or several in a het job."""

    components: tuple[Component, ...]
    script: str | None
    arguments: tuple[str, ...]

    @property
    def all_given(self) -> tuple[Given, ...]:
        """Return the options of all components, in order."""
        return tuple(given for component in self.components for given in component)

    @property
    def strangers(self) -> tuple[str, ...]:
        """Return the names of the options that nobody knows."""
        return tuple(given.name for given in self.all_given if not given.known)


def parse(words: Sequence[str], options: Options = KNOWN) -> CommandLine:
    """Read a command line as sbatch does: options first, the script ends them.

    A lone ``:`` where an option could stand begins the next component (sbatch(1),
    HETEROGENEOUS JOB SUPPORT). What is wrong is not judged here: sbatch says it best.
    """
    components: list[Component] = []
    start = 0
    while True:
        given, end = parse_options(words[start:], options)
        components.append(given)
        start += end
        if start >= len(words) or words[start] != ":":
            break
        start += 1
    rest = words[start:]
    return CommandLine(
        tuple(components), rest[0] if rest else None, tuple(w for w in rest[1:])
    )


def parse_options(words: Sequence[str], options: Options) -> tuple[Component, int]:
    """Return the leading options and how many words they take (getopt_long(3)).

    Ends at the first word that is no option, and behind a ``--``.
    """
    given: list[Given] = []
    place = 0
    while place < len(words):
        word = words[place]
        if word == "--":
            return tuple(given), place + 1
        if not word.startswith("-") or word == "-":
            break
        following = words[place + 1] if place + 1 < len(words) else None
        read = _long if word.startswith("--") else _cluster
        found, borrowed = read(word, following, options)
        given.extend(found)
        place += 1 + borrowed
    return tuple(given), min(place, len(words))


def _long(
    word: str, following: str | None, options: Options
) -> tuple[list[Given], bool]:
    """Read ``--name``, ``--name=value`` or ``--name value``."""
    name, equals, glued = word[2:].partition("=")
    option = options.named(name)
    value = glued if equals else None
    if option is None:
        return [Given(name, value, None)], False
    borrows = option.takes is Takes.VALUE and value is None
    return [_given(option, following if borrows else value)], borrows


def _cluster(
    word: str, following: str | None, options: Options
) -> tuple[list[Given], bool]:
    """Read ``-H``, ``-N2``, ``-N 2`` and clusters such as ``-HvN2``."""
    found: list[Given] = []
    for place, letter in enumerate(word[1:], start=2):
        option = options.by_short.get(letter)
        rest = word[place:]
        if option is None:
            found.append(Given(letter, None, None))
        elif option.takes is Takes.NOTHING:
            found.append(_given(option, None))
        else:
            borrows = option.takes is Takes.VALUE and not rest
            found.append(_given(option, following if borrows else rest or None))
            return found, borrows
    return found, False


def _given(option: Option, value: str | None) -> Given:
    return Given(SAME.get(option.name, option.name), value, option)


def value_of(component: Sequence[Given], name: str) -> str | None:
    """Return the value that counts (the last one), or None where it is not given."""
    return next((g.value for g in reversed(component) if g.name == name), None)


def has(component: Sequence[Given], name: str) -> bool:
    """Whether the option is given."""
    return any(given.name == name for given in component)


def words_of(component: Sequence[Given]) -> Iterator[str]:
    """Yield the options as words of a command line."""
    return (given.word() for given in component)
