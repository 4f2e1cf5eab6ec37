"""Start of one rank: ``python -I -m launchers.megatron SPEC`` in an hpcplat job."""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from pathlib import Path

from hpcplat.allocation import rank_placement
from hpcplat.errors import ExitCode, HpcplatError
from hpcplat.jobs import read_spec
from launchers import stacks
from launchers.leaving import run_and_leave
from launchers.megatron.run import train


def main(arguments: list[str]) -> int:
    """Run one rank; ``arguments`` name the job spec. Returns the exit code."""
    # Megatron's overlap of tensor-parallel communication relies on one queue; it warns
    # otherwise, on CPUs too. Torch warns of names that Megatron still uses.
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")
    warnings.filterwarnings(
        "ignore", category=FutureWarning, module="torch.distributed"
    )
    warnings.filterwarnings("ignore", category=UserWarning, module="megatron.core")
    stacks.listen()
    try:
        place = rank_placement()
        return train(read_spec(Path(arguments[0])), place)
    except HpcplatError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return ExitCode.MENDABLE
    except Exception:  # noqa: BLE001 - the process's edge: its code tells them apart
        traceback.print_exc()
        return ExitCode.BUG


if __name__ == "__main__":
    run_and_leave(lambda: main(sys.argv[1:]))
