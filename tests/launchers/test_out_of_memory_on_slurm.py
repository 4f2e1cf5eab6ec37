"""The kernel kills for memory, for real: nodes of the real Slurm in a control group."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from hpcplat.cluster import Cluster
from hpcplat.eventlog import EventKind
from launchers.cgroups import MemoryGroup, memory_groups

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

Submit = Callable[..., Any]  # conftest.Submitter
LIMIT: Final = 512 * 1024 * 1024  # bytes, for the daemons of all nodes and their jobs
KILLED: Final = "was killed by the kernel: the job's memory was used up."
# Nothing enforces what is asked of Slurm here: the control group does.
HUNGRY: Final = "exec python3 -c \"x = b'x' * 2_000_000_000\""


def _with_controller() -> MemoryGroup | None:
    """Return the control group of this process that counts memory, if there is one."""
    with contextlib.suppress(OSError):
        for group in memory_groups():
            if (group.folder / "memory.events").exists() or not group.is_v2:
                return group
    return None


def _move(group: Path, pids: list[int]) -> None:
    for pid in pids:
        (group / "cgroup.procs").write_text(str(pid))


@pytest.fixture
def little_memory(cluster: Cluster) -> Iterator[None]:
    """Give all nodes of the session's cluster, together, 512 MB; needs root."""
    ours = _with_controller()
    if os.geteuid() != 0 or ours is None:
        pytest.skip("no control group of ours can limit memory here")
    group = (
        ours.top if not ours.is_v2 else ours.folder
    ) / f"hpcplat-test-{os.getpid()}"
    limit = "memory.max" if ours.is_v2 else "memory.limit_in_bytes"
    pids = [node.pid for node in cluster.status().nodes if node.pid is not None]
    try:
        group.mkdir()
        (group / limit).write_text(str(LIMIT))
        _move(group, pids)
    except OSError as error:
        with contextlib.suppress(OSError):
            group.rmdir()
        pytest.skip(f"no control group can be made here: {error}")
    try:
        yield
    finally:
        _move(ours.folder, pids)
        for _ in range(100):  # a step daemon of the last job may be in it still
            with contextlib.suppress(OSError):
                group.rmdir()
                break
            time.sleep(0.1)
        else:
            pytest.fail(f"{group} can't be removed")


@pytest.mark.usefixtures("little_memory")
def test_a_rank_that_the_kernel_kills_for_memory_is_named(submit: Submit) -> None:
    script = f'[ "$RANK" = 1 ] || exec sleep 60; {HUNGRY}'
    job = submit(script, resources={"nodes": 2}).wait()
    assert job.state() == "FAILED"
    assert KILLED in job.verdict()["reason"]
    assert job.verdict()["reason"].startswith("Rank 1 on ")


@pytest.mark.usefixtures("little_memory")
def test_a_job_that_needs_more_than_there_is_ends_and_says_so(submit: Submit) -> None:
    again = {"requeue": True, "max_failures": 2}
    job = submit(HUNGRY, resources={"nodes": 2}, recovery=again).wait()
    assert job.state() == "FAILED"
    reason = job.verdict()["reason"]
    assert KILLED in reason
    assert len(job.events(EventKind.RANK_FAILED)) == 3
    assert all(KILLED in one.what for one in job.events(EventKind.RANK_FAILED))
