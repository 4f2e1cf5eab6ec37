"""What the agents of a job start: the spec, resolved, as plain values.

Standard library only: an agent must be up in tens of milliseconds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from hpcplat.errors import InvalidError


@dataclass(frozen=True, slots=True)
class Shrink:
    """A smaller number of nodes that would do, and whose state each rank takes up then.

    ``origins`` are ranks of the whole world; empty: only a checkpoint has it all.
    """

    nodes: int
    origins: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """One job's processes, the same on every node.

    ``nodes`` work, ``spare_nodes`` stand by. ``argv`` is started ``ranks_per_node``
    times on each working node, in ``folder``. ``variables`` reach every rank as they
    are; ``secrets`` maps a name to ``env:NAME`` (its value is in the run folder's
    secrets file) or ``file:/path``. ``grace`` is in seconds, from SIGTERM to SIGKILL.
    ``keep_secrets``: a later start needs the secrets file again.

    ``recovers``: ranks that are lost are started again within the attempt, at most
    ``max_failures`` times in a row without a step in between. ``warm`` are modules that
    ranks import: a process that has them forks the ranks. ``agent_store``: the ranks
    meet at torch's store of the coordinator, not at one of rank 0. ``final_codes`` are
    exit codes of a rank that will not do better the next time. ``copies``: ranks keep
    copies of their state in the memory of their own and of another node. ``shrinks``
    are smaller worlds to go on with when nodes are lost and no spare is left. ``batch``
    is the number of samples of a step, ``stages`` that of pipeline stages, whose ranks
    have the same work to do (0: not known). ``node_failures`` nodes died under jobs in
    ``node_hours``, as the service saw.
    """

    key: str
    name: str
    nodes: int
    ranks_per_node: int
    argv: tuple[str, ...]
    spare_nodes: int = 0
    cpus_per_task: int = 1
    folder: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    grace: float = 5.0
    keep_secrets: bool = False
    recovers: bool = False
    max_failures: int = 3
    warm: tuple[str, ...] = ()
    agent_store: bool = False
    final_codes: tuple[int, ...] = ()
    copies: bool = False
    shrinks: tuple[Shrink, ...] = ()
    batch: int = 0
    stages: int = 0
    node_failures: int = 0
    node_hours: float = 0.0

    @property
    def world(self) -> int:
        """How many ranks there are."""
        return self.nodes * self.ranks_per_node

    def to_json(self) -> str:
        """Return it as it stands in the run folder."""
        mine = {field.name: getattr(self, field.name) for field in fields(self)}
        return json.dumps(mine, ensure_ascii=False, default=asdict) + "\n"


def read_plan(path: Path) -> LaunchPlan:
    """Return the plan in a file; InvalidError if it is none of this release's."""
    try:
        values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        known = {field.name for field in fields(LaunchPlan)}
        mine = {name: value for name, value in values.items() if name in known}
        lists = {
            name: tuple(mine.get(name, ()))
            for name in ("argv", "outputs", "warm", "final_codes")
        }
        smaller = tuple(map(_shrink, mine.get("shrinks", ())))
        return LaunchPlan(**{**mine, **lists, "shrinks": smaller})
    except (OSError, ValueError, TypeError, AttributeError, KeyError) as error:
        raise InvalidError(
            f"{path} is not a launch plan ({error}).", "Submit the job again."
        ) from error


def _shrink(values: Mapping[str, Any]) -> Shrink:
    return Shrink(int(values["nodes"]), tuple(map(int, values["origins"])))
