"""Memory: how much there is for copies, and who was killed for it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from launchers.children import memory_kills
from launchers.recovery.room import Room, free_memory, room_for

MEMINFO = "MemTotal: 9000 kB\nMemFree: 10 kB\nMemAvailable:   8000 kB\n"
GROUPS = Path("/sys/fs/cgroup/memory")


def machine(root: Path, cgroup: str, files: dict[str, str]) -> Path:
    """Make what the kernel shows of a machine, below a folder."""
    every = {"proc/meminfo": MEMINFO, "proc/self/cgroup": cgroup, **files}
    for name, content in every.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


def test_without_limits_the_kernels_word_counts(tmp_path: Path) -> None:
    group = "sys/fs/cgroup/a/memory."
    files = {f"{group}max": "max\n", f"{group}current": "5\n"}
    assert free_memory(machine(tmp_path, "0::/a\n", files)) == 8000 * 1024


def test_the_tightest_group_above_counts(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/job/memory.max": "1000000",
        "sys/fs/cgroup/job/memory.current": "400000",
        "sys/fs/cgroup/job/step/memory.max": "max",
        "sys/fs/cgroup/job/step/memory.current": "300000",
    }
    assert free_memory(machine(tmp_path, "0::/job/step\n", files)) == 600_000


def test_version_1_has_other_names(tmp_path: Path) -> None:
    group = "sys/fs/cgroup/memory/job/memory."
    files = {
        f"{group}limit_in_bytes": "2000000",
        f"{group}usage_in_bytes": "500000",
        f"{group}oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": "7",
    }
    root = machine(tmp_path, "4:cpu:/x\n3:memory:/job\n0::/\n", files)
    assert free_memory(root) == 1_500_000
    assert memory_kills(root) == 3


def test_without_a_group_the_whole_machine_is_counted(tmp_path: Path) -> None:
    files = {"proc/vmstat": "nr_free_pages 5\noom_kill 2\n"}
    assert memory_kills(machine(tmp_path, "0::/\n", files)) == 2
    events = {"sys/fs/cgroup/a/memory.events": "low 0\noom 1\noom_kill 1\n"}
    assert memory_kills(machine(tmp_path, "0::/a\n", events)) == 1


def test_copies_of_all_ranks_here_and_of_a_neighbour_must_fit() -> None:
    here = room_for(1000, 2)
    assert here.needed == 8000
    assert here.suffices
    assert not Room(8000, 8000).suffices  # nothing would be left


@pytest.fixture
def small_group() -> Iterator[Path]:
    """A control group of 64 MB, where the kernel lets one be made."""
    folder = GROUPS / f"hpcplat-test-{os.getpid()}"
    try:
        folder.mkdir()
        (folder / "memory.limit_in_bytes").write_text(str(64 << 20))
    except OSError as error:
        pytest.skip(f"no memory control group can be made here: {error}")
    yield folder
    folder.rmdir()


def test_the_kernel_counts_whom_it_killed_for_memory(small_group: Path) -> None:
    program = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from launchers.children import memory_kills\n"
        f"Path({str(small_group / 'cgroup.procs')!r}).write_text(str(os.getpid()))\n"
        "before, child = memory_kills(), os.fork()\n"
        "if not child:\n"
        "    hog = bytearray(os.urandom(1 << 20)) * 256\n"
        "    os._exit(0)\n"
        "status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])\n"
        "print(status, memory_kills() - before)\n"
    )
    words = [sys.executable, "-c", program]
    found = subprocess.run(words, capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["-9", "1"]
