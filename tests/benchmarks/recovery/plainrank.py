"""One rank that SIGTERM ends at once, as it does most people's scripts: torchrun's row.

Ours would save first. torchrun ends the ranks that are left so, and waits for 30 s for
those that can't answer because they wait for a dead one.
"""

from __future__ import annotations

import sys

from hpcplat.signals import Asked
from launchers.leaving import run_and_leave
from launchers.megatron.__main__ import main


def _leave_signals(_: Asked) -> None:
    """Take none."""


if __name__ == "__main__":
    Asked.listen = _leave_signals  # type: ignore[assignment, method-assign]
    run_and_leave(lambda: main(sys.argv[1:]))
