"""What the agents do with a job's ranks, on the real Slurm."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from hpcplat import processes
from hpcplat.batchscript import Part
from hpcplat.eventlog import EventKind
from hpcplat.jobs.array import ArrayChunk

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

Submit = Callable[..., Any]  # conftest.Submitter

TWO_NODES = {"nodes": 2, "gpus_per_node": 2, "gpu_type": "h100"}


def _variables(log: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in log.splitlines() if "=" in line)


def _marked(mark: str) -> list[psutil.Process]:
    """Return the processes whose command line holds a mark."""
    found = psutil.process_iter(["cmdline"])
    return [p for p in found if mark in " ".join(p.info["cmdline"] or ())]


def test_ranks_get_the_environment_of_torch(submit: Submit) -> None:
    job = submit(["env"], resources=TWO_NODES).wait()
    assert (job.state(), job.exit_code()) == ("COMPLETED", 0)
    assert (job.folder.logs / "slurm.log").exists()
    seen = [_variables(job.log(rank)) for rank in range(4)]
    assert [v["RANK"] for v in seen] == ["0", "1", "2", "3"]
    assert [v["LOCAL_RANK"] for v in seen] == ["0", "1", "0", "1"]
    assert [v["NODE_RANK"] for v in seen] == ["0", "0", "1", "1"]
    assert [v["SLURM_PROCID"] for v in seen] == ["0", "1", "2", "3"]
    assert {v["WORLD_SIZE"] for v in seen} == {"4"}
    assert {v["LOCAL_WORLD_SIZE"] for v in seen} == {"2"}
    assert {v["CUDA_VISIBLE_DEVICES"] for v in seen} == {"0,1"}
    assert len({(v["MASTER_ADDR"], v["MASTER_PORT"]) for v in seen}) == 1
    assert seen[0]["SLURMD_NODENAME"] != seen[2]["SLURMD_NODENAME"]


def test_ranks_meet_at_the_master_port(submit: Submit) -> None:
    program = (
        "import os, socket, time\n"
        "place = os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])\n"
        "if os.environ['RANK'] == '0':\n"
        "    server = socket.create_server(place)\n"
        "    print('met', server.accept()[0].recv(99).decode())\n"
        "else:\n"
        "    for _ in range(100):\n"
        "        try: socket.create_connection(place).send(b'rank 1'); break\n"
        "        except OSError: time.sleep(0.1)\n"
    )
    job = submit(["python3", "-c", program], resources={"nodes": 2}).wait()
    assert job.log(0) == "met rank 1\n"


def test_the_first_failing_rank_names_the_reason(submit: Submit) -> None:
    script = (
        'echo "I am $RANK"; [ "$RANK" = 2 ] && { echo "no gold"; exit 7; }; sleep 99'
    )
    began = time.monotonic()
    job = submit(script, resources=TWO_NODES).wait()
    assert time.monotonic() - began < 20
    assert (job.state(), job.exit_code()) == ("FAILED", 7)
    verdict = job.verdict()
    assert verdict["reason"].startswith("Rank 2 on ")
    assert verdict["reason"].endswith("ended with exit code 7. Its last line: no gold")
    assert verdict["tail"] == ["I am 2", "no gold"]
    assert verdict["rank"] == 2


def test_a_rank_that_is_killed_gives_128_and_the_signal(submit: Submit) -> None:
    job = submit("kill -SEGV $$").wait()
    assert job.exit_code() == 139
    assert "SIGSEGV" in job.verdict()["reason"]


def test_a_missing_program_is_named(submit: Submit) -> None:
    job = submit(["no-such-program"]).wait()
    assert job.exit_code() == 127
    assert "no-such-program was not found" in job.verdict()["reason"]


def test_a_missing_folder_is_named(submit: Submit) -> None:
    job = submit(["true"], environment={"folder": "/no/such/folder"}).wait()
    assert job.exit_code() == 1
    assert "/no/such/folder is not there" in job.verdict()["reason"]


def test_a_script_may_name_its_own_interpreter(submit: Submit) -> None:
    job = submit("#!/usr/bin/env python3\nprint(6 * 7)\n").wait()
    assert job.log(0) == "42\n"


def test_a_script_may_be_larger_than_an_argument(submit: Submit) -> None:
    script = "".join(f": {'x' * 60} {i}\n" for i in range(3000)) + "echo whole\n"
    assert len(script) > 128 * 1024
    assert submit(script).wait().log(0) == "whole\n"


def test_scancel_ends_all_that_ever_started(submit: Submit, tmp_path: Path) -> None:
    """Ranks that ignore SIGTERM, and children that hid in sessions of their own."""
    mark = f"9{os.getpid()}7"
    script = (
        "trap '' TERM\n"
        f"setsid sleep {mark} &\n"
        f"(setsid sh -c '(trap \"\" TERM; sleep {mark}) & exit' &)\n"
        f"sleep 0.2; echo up; sleep {mark}; sleep {mark}\n"
    )
    job = submit(script, resources={"nodes": 2}, recovery={"grace": "1s"})
    job.until_logged("up", rank=0)
    job.until_logged("up", rank=1)
    assert len(_marked(mark)) >= 6
    began = time.monotonic()
    job.cancel()
    job.wait()
    assert time.monotonic() - began < 10
    assert job.state() == "CANCELLED"
    assert not _marked(mark)


def test_a_rank_that_obeys_is_cancelled_at_once(submit: Submit) -> None:
    job = submit("trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.1; done")
    job.until_logged("up")
    job.cancel()
    job.wait()
    assert job.log(0).endswith("bye\n")
    assert "SIGTERM" in job.verdict()["reason"]


def test_what_a_rank_leaves_behind_is_ended(submit: Submit) -> None:
    mark = f"8{os.getpid()}7"
    job = submit(f"setsid sleep {mark} & sleep {mark} & echo done").wait()
    assert job.state() == "COMPLETED"
    assert not _marked(mark)


def test_a_warning_reaches_those_who_know_it_and_no_other(submit: Submit) -> None:
    """The shell around the program, and its helper, do not die of SIGUSR2."""
    program = (
        "import signal, subprocess, sys, time\n"
        "helper = subprocess.Popen(['sleep', '60'])\n"
        "def leave(*_):\n"
        "    print('helper', helper.poll(), flush=True); helper.kill(); sys.exit(0)\n"
        "signal.signal(signal.SIGUSR2, leave)\n"
        "print('up', flush=True)\n"
        "while True: time.sleep(0.1)\n"
    )
    script = f"cat >p.py <<'EOF'\n{program}EOF\npython3 p.py; echo shell $?"
    job = submit(script)
    job.until_logged("up")
    job.cancel("--signal=USR2", "--batch")
    job.wait()
    assert job.log(0) == "up\nhelper None\nshell 0\n"
    assert job.state() == "COMPLETED"
    assert job.verdict()["warned"] is True
    assert job.events(EventKind.SIGNAL_PASSED)


def test_slurm_warns_ahead_of_the_time_limit(submit: Submit) -> None:
    script = "trap 'echo warned; exit 0' USR2; echo up; while :; do sleep 0.1; done"
    job = submit(
        script, resources={"time": "2m"}, recovery={"warning": "20s"}
    )  # sent up to 60 s early, yet never while a busy machine still starts the job
    job.wait(150)
    assert job.log(0) == "up\nwarned\n"


def test_missing_outputs_fail_a_job_that_ended_well(submit: Submit) -> None:
    script = "mkdir -p out; touch out/a.pt"
    good = submit(script, outputs=["out/*.pt", "out"])
    bad = submit(script, outputs=["out/*.pt", "report.html"])
    assert (good.wait().state(), bad.wait().state()) == ("COMPLETED", "FAILED")
    assert "report.html is not there" in bad.verdict()["reason"]


def test_secrets_reach_ranks_and_are_gone_then(submit: Submit, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("from a file\n")
    references = {"A": "env:WHATEVER", "B": f"file:{path}"}
    value = "s3cr€t $x 'y'"
    job = submit(
        'printf "%s|%s|" "$A" "$B"; sleep 1',
        secrets={"A": value},
        environment={"secrets": references},
    )
    assert stat.S_IMODE(job.folder.secrets.stat().st_mode) == 0o600
    job.wait()
    assert job.log(0) == f"{value}|from a file|"
    assert not job.folder.secrets.exists()
    others = [p for p in job.folder.root.rglob("*") if p.name != "rank-0.log"]
    texts = [p.read_text() for p in others if p.is_file()]
    assert not any("s3cr" in text or "from a file" in text for text in texts)


@pytest.mark.parametrize(("status", "kept"), [(0, False), (1, True)])
def test_a_job_that_may_run_again_keeps_its_secrets_till_it_succeeds(
    submit: Submit, status: int, *, kept: bool
) -> None:
    job = submit(
        f'echo "$A"; exit {status}',
        secrets={"A": "a"},
        environment={"secrets": {"A": "env:A"}},
        recovery={"requeue": True, "max_failures": 1},
    ).wait()
    assert job.log(0) == "a\n" * (1 + status)  # a failure is tried once more
    assert job.folder.secrets.exists() is kept


def test_a_missing_secret_is_named_not_shown(submit: Submit) -> None:
    job = submit("echo no", environment={"secrets": {"A": "file:/no/such"}}).wait()
    assert job.state() == "FAILED"
    assert "secret A can't be read from /no/such" in job.verdict()["reason"]


def test_a_requeue_is_a_new_attempt_with_logs_of_its_own(submit: Submit) -> None:
    script = (
        'echo "attempt $HPCPLAT_ATTEMPT"; [ "$HPCPLAT_ATTEMPT" = 5 ] || exec sleep 99'
    )
    job = submit(script, recovery={"requeue": True}, part=Part(first_attempt=4))
    job.until_logged("attempt 4", attempt=4)
    assert processes.run(["scontrol", "requeue", job.job_id], timeout=20).ok
    while job.state() != "PENDING":
        time.sleep(0.2)
    # Not at once: the node that has just killed it would refuse to launch it.
    update = ["scontrol", "update", f"jobid={job.job_id}", "StartTime=now+2"]
    assert processes.run(update, timeout=20).ok
    job.until_logged("attempt 5", attempt=5)
    job.wait()
    assert job.folder.attempts() == (4, 5)
    assert job.log(0, 4) == "attempt 4\n"


def test_array_tasks_have_folders_and_the_asked_index(submit: Submit) -> None:
    chunk = ArrayChunk(option="0-1", offset=1000, tasks=2)
    job = submit(
        'echo "$SLURM_ARRAY_TASK_ID $HPCPLAT_ARRAY_INDEX"',
        array="1000-1001",
        part=Part(chunk=chunk),
    )
    for index in (1000, 1001):
        log = job.folder.task(index).attempt(1).rank_log(0)
        _wait_for(log, f"{index} {index}\n")


def _wait_for(path: Path, text: str) -> None:
    end = time.monotonic() + 60
    while not (path.exists() and path.read_text() == text):
        assert time.monotonic() < end, path
        time.sleep(0.1)


def test_ranks_may_start_steps_of_their_own(submit: Submit) -> None:
    job = submit(
        "srun --overlap -N1 -n1 --mem=0 echo step", resources={"nodes": 1}
    ).wait()
    assert "step" in job.log(0)
