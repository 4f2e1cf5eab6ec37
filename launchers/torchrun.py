"""Starts a PyTorch script as torchrun would: ``python -m launchers.torchrun train.py …``.

The agent has started the ranks already; what is left of torchrun's promises are its
variables (docs.pytorch.org, "torchrun", Environment Variables) and running the script in
a process that may be warm.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Mapping
from pathlib import Path

from hpcplat.allocation import RankPlacement, rank_placement
from hpcplat.errors import ExitCode, HpcplatError, InvalidError
from launchers.leaving import run_and_leave

ROLE = "default"


def torchrun_variables(
    place: RankPlacement, environment: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables of torchrun that the agent has not set."""
    nodes = max(place.world_size // place.local_world_size, 1)
    promised = {
        "GROUP_RANK": place.node_rank,
        "GROUP_WORLD_SIZE": nodes,
        "ROLE_NAME": ROLE,
        "ROLE_RANK": place.rank,
        "ROLE_WORLD_SIZE": place.world_size,
        "TORCHELASTIC_RUN_ID": place.job_key,
        "TORCHELASTIC_RESTART_COUNT": place.generation,
        "TORCHELASTIC_MAX_RESTARTS": 0,
        "OMP_NUM_THREADS": place.cpus_per_task,
        "PYTHON_EXEC": sys.executable,
    }
    return {
        name: str(value) for name, value in promised.items() if name not in environment
    }


def run_script(words: list[str]) -> None:
    """Run ``script.py arguments`` or ``-m module arguments`` as the main program."""
    if words[:1] == ["-m"] and len(words) > 1:
        sys.argv = words[1:]
        sys.path.insert(0, str(Path.cwd()))
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    elif words and Path(words[0]).is_file():
        sys.argv = words
        sys.path.insert(0, str(Path(words[0]).parent.resolve()))
        runpy.run_path(words[0], run_name="__main__")
    else:
        raise InvalidError(
            f"{words[0] if words else 'The script'} is not there.",
            "Write: python -m launchers.torchrun train.py ARGUMENTS.",
        )


def main(words: list[str]) -> int:
    """Run a rank; the script's own exit passes through. Returns the exit code."""
    try:
        os.environ.update(torchrun_variables(rank_placement(), os.environ))
        run_script(words)
    except HpcplatError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return ExitCode.MENDABLE
    return ExitCode.DONE


if __name__ == "__main__":
    run_and_leave(lambda: main(sys.argv[1:]))
