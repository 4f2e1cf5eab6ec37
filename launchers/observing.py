"""The observer beside an agent: node metrics, TensorBoard files, the attempt's record.

It is a process of its own, and unimportant: nothing waits for it but its own end.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Final

from hpcplat.allocation import NodePlace
from launchers import arguments, children

END_SECONDS: Final = 2.0  # to copy what was written last


def start_observer(
    place: arguments.Arguments, node: NodePlace
) -> subprocess.Popen[bytes]:
    """Start the observer of this node; the first node's records the attempt too."""
    words = [sys.executable, "-I", "-m", "hpcplat.tracking.observer"]
    words += [str(place.run.root), "--attempt", str(place.attempt), "--node", node.node]
    return children.start_beside(words + ["--first"] * (node.node_index == 0))


def end_observer(observer: subprocess.Popen[bytes]) -> None:
    """Let it copy the last values and end; one that does not is killed by the agent."""
    if observer.returncode is None:
        observer.terminate()
    try:
        observer.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        return
