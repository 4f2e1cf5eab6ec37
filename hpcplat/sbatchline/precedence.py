"""Which value counts: command line over environment over #SBATCH lines (sbatch(1))."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hpcplat.sbatchline.commandline import CommandLine, Component, Given, has, value_of
from hpcplat.sbatchline.options import EXCLUSIVE, KNOWN, Options, Takes


@dataclass(frozen=True, slots=True)
class Request:
    """What one sbatch call asks for: the options that count, by component."""

    components: tuple[Component, ...]
    script: str | None
    arguments: tuple[str, ...]

    @property
    def first(self) -> Component:
        """Return the options of the first (mostly the only) component."""
        return self.components[0]

    def value(self, name: str) -> str | None:
        """Return an option's value in the first component."""
        return value_of(self.first, name)

    def has(self, name: str) -> bool:
        """Whether the first component has the option."""
        return has(self.first, name)


def from_environment(
    environment: Mapping[str, str], options: Options = KNOWN
) -> Component:
    """Return the options that SBATCH_* variables give, in the table's order."""
    return tuple(
        Given(
            option.name,
            None if option.takes is Takes.NOTHING else environment[name],
            option,
        )
        for option in options.rows
        for name in option.env
        if name in environment
    )


def request(
    line: CommandLine, script: Sequence[Component], environment: Component
) -> Request:
    """Put the three sources together, component by component.

    Values of options marked ``carried`` hold for the later components too.
    """
    count = max(len(line.components), len(script), 1)
    components: list[Component] = []
    for place in range(count):
        earlier = components[-1] if components else ()
        own = (*_at(script, place), *environment, *_at(line.components, place))
        carried = (given for given in earlier if given.option and given.option.carried)
        components.append(_last_of_each((*carried, *own)))
    return Request(tuple(components), line.script, line.arguments)


def _at(components: Sequence[Component], place: int) -> Component:
    return components[place] if place < len(components) else ()


def _last_of_each(given: Iterable[Given]) -> Component:
    """Keep the last value of each option, and of each group that excludes itself."""
    kept: dict[str, Given] = {}
    for one in given:
        for rival in _rivals(one.name):
            kept.pop(rival, None)
        kept[one.name] = one
    return tuple(kept.values())


def _rivals(name: str) -> frozenset[str]:
    groups = (group for group in EXCLUSIVE if name in group)
    return next(groups, frozenset()) | {name}
