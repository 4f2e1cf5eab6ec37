"""What agents and their coordinator tell each other: frozen records, a line each."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import get_args

from hpcplat.errors import InvalidError


@dataclass(frozen=True, slots=True)
class Join:
    """An agent is up: where it stands, and that it knows the word.

    ``host`` is the machine's own name, ``via`` the address by which the agent reached
    the coordinator, ``port`` a port that was free there. ``problem`` says why the
    agent can start nothing. ``keeper`` is the port of the node's keeper (0: none),
    ``switch`` the node's place in the network, as far as Slurm knows it.
    """

    word: str
    node: str
    node_index: int
    host: str
    via: str
    port: int
    problem: str = ""
    keeper: int = 0
    switch: str = ""


@dataclass(frozen=True, slots=True)
class Start:
    """Start these ranks: global ranks in the order of their local ranks.

    ``generation`` counts the starts within an attempt; answers name it, so that news
    of ranks of an earlier start is told apart. ``agent_store``: the master's address is
    that of a store of the coordinator's, which torch need not serve itself.

    ``resume``: go on from the copies of that step in the keepers' memory (-1: from disk),
    each rank from that of ``origins`` at its place (empty: its own). ``sources`` are
    (origin, address, port) of the keepers that have what this node's has not; ``buddy``
    is the keeper that new copies go to.
    """

    generation: int
    ranks: tuple[int, ...]
    world_size: int
    node_rank: int
    master_address: str
    master_port: int
    agent_store: bool = False
    resume: int = -1
    buddy: tuple[str, int] | tuple[()] = ()
    sources: tuple[tuple[int, str, int], ...] = ()
    origins: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Halt:
    """End the ranks of this generation at once, by SIGKILL: others will be started."""

    generation: int


@dataclass(frozen=True, slots=True)
class Ended:
    """A rank ended: with which code (128 + signal), when, and its last lines.

    ``stopped``: after the agent had told it to. ``problem``: why it never started.
    ``out_of_memory``: the kernel ended it, or one beside it, to make room. ``step``: the
    last that it had done (0: none since it was started).
    """

    generation: int
    rank: int
    code: int
    time: float
    stopped: bool = False
    tail: tuple[str, ...] = ()
    problem: str = ""
    out_of_memory: bool = False
    step: int = 0


@dataclass(frozen=True, slots=True)
class Beacon:
    """An agent lives: its ranks, the steps they have done, and what they are at.

    ``steps`` are those since the ranks were started (0: none yet), ``ages`` the seconds
    since each one's last beat, ``phases`` hpcplat.pulse.Phase, ``states`` the letters
    of proc(5) for their processes (T: stopped), ``owns`` hpcplat.pulse.Beat.own. All by
    place in ``ranks``.
    """

    generation: int
    ranks: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    phases: tuple[int, ...] = ()
    ages: tuple[float, ...] = ()
    states: tuple[str, ...] = ()
    owns: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Inventory:
    """What a node's keeper holds after its ranks have ended: a copy at each place."""

    generation: int
    ranks: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Look:
    """See what the ranks of this generation are at: none of them goes on."""

    generation: int


@dataclass(frozen=True, slots=True)
class Stacks:
    """Where ranks stand in their programs, one text for each."""

    generation: int
    ranks: tuple[int, ...] = ()
    texts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PassSignal:
    """Send the ranks a signal, by name (``SIGUSR2``)."""

    name: str


@dataclass(frozen=True, slots=True)
class Stop:
    """End all ranks: SIGTERM, and SIGKILL after ``grace`` seconds."""

    grace: float


@dataclass(frozen=True, slots=True)
class Finish:
    """The attempt is over: leave with this exit code."""

    code: int


Message = (
    Join
    | Start
    | Halt
    | Ended
    | Beacon
    | Inventory
    | Look
    | Stacks
    | PassSignal
    | Stop
    | Finish
)

_KINDS: dict[str, type[Message]] = {kind.__name__: kind for kind in get_args(Message)}


def encode(message: Message) -> bytes:
    """Return a message as one line."""
    values = {"kind": type(message).__name__, **asdict(message)}
    return json.dumps(values, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> Message:
    """Return the message in a line; InvalidError if it holds none."""
    try:
        values = json.loads(line)
        kind = _KINDS[values.pop("kind")]
        lists = {k: tuple(v) for k, v in values.items() if isinstance(v, list)}
        return kind(**{**values, **lists})
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InvalidError(f"{line[:80]!r} is no message ({error}).") from error
