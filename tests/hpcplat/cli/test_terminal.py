"""A person at a terminal: top, logs -f, --watch, Ctrl-C; nothing wider than the screen."""

from __future__ import annotations

import json
import re
import subprocess
import time
from typing import Any

import pytest

from tests.hpcplat.cli.person import HPCPLAT, Person

pexpect = pytest.importorskip("pexpect")

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def terminal(person: Person, *words: str, columns: int = 80) -> Any:  # noqa: ANN401 - pexpect.spawn, untyped
    """Start a command on a terminal of 24 lines.

    stty sets the width before the command starts: pexpect would do so at some time after.
    """
    env = {**person.env, "TERM": "xterm-256color"}
    sized = f'stty cols {columns} rows 24; exec "$@"'
    return pexpect.spawn(
        "/bin/sh",
        ["-c", sized, "sh", str(HPCPLAT), *words],
        env=env,
        cwd=str(person.folder),
        dimensions=(24, columns),
        encoding="utf-8",
        timeout=60,
    )


def lines_of(text: str) -> list[str]:
    return [ANSI.sub("", line).rstrip() for line in re.split(r"\r*\n", text)]


def submitted(person: Person, *words: str) -> str:
    return str(json.loads(person.out("run", "--json", *words))["id"])


def cancel(person: Person, job: str) -> None:
    person.run("cancel", job)


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_lists_fit_the_screen(person: Person, columns: int) -> None:
    job = submitted(
        person, "-J", "a rather long name, " * 3 + "is it", "--", "sleep", "60"
    )
    for command in ("jobs", "nodes"):
        shell = terminal(person, command, columns=columns)
        shell.expect(pexpect.EOF)
        lines = lines_of(shell.before)
        assert max(map(len, lines)) <= columns, command
        assert lines[0].startswith({"jobs": "ID", "nodes": "NODE"}[command])
        shell.close()
        assert shell.exitstatus == 0
    cancel(person, job)


def test_output_to_a_file_has_no_colours(person: Person) -> None:
    job = submitted(person, "-J", "plain", "--", "true")
    shown = "".join(person.out(c, job) for c in ("show", "events", "wait"))
    assert "\x1b" not in shown + person.out("jobs") + person.out("nodes")


def test_top_shows_the_queue_and_ends_with_q(person: Person) -> None:
    job = submitted(person, "-J", "watched", "-G", "2", "--", "sleep", "100")
    shell = terminal(person, "top", "-i", "0.5")
    shell.expect("RUNNING")
    shell.expect(r"2/\d+ GPUs")
    shell.expect("watched")
    cancel(person, job)
    shell.expect("No job runs or waits.")
    shell.send("q")
    shell.expect(pexpect.EOF)
    assert "\x1b[?1049l" in shell.before  # the first screen is back
    shell.close()
    assert shell.exitstatus == 0


def test_logs_are_followed_to_the_end(person: Person) -> None:
    script = "for i in 1 2 3; do echo line $i; sleep 1; done"
    job = submitted(person, "-J", "talker", "--", "sh", "-c", script)
    shell = terminal(person, "logs", "-f", job)
    for number in (1, 2, 3):
        shell.expect(f"line {number}\r\n")
    shell.expect(pexpect.EOF)
    shell.close()
    assert shell.exitstatus == 0


def test_watch_tells_the_story(person: Person) -> None:
    shell = terminal(person, "run", "-w", "-J", "story", "--", "sleep", "2")
    shell.expect("Submitted job")
    for state in ("QUEUED", "PENDING", "COMPLETED"):
        shell.expect(f"\x1b\\[3[0-9]m{state}")
    shell.expect(pexpect.EOF)
    shell.close()
    assert shell.exitstatus == 0


def test_ctrl_c_leaves_the_job_and_says_so(person: Person) -> None:
    shell = terminal(person, "run", "-w", "-J", "left", "--", "sleep", "60")
    shell.expect("PENDING")
    shell.sendintr()
    shell.expect(r"job (\w{16}) goes on")
    job = shell.match[1]
    shell.expect(pexpect.EOF)
    shell.close()
    assert shell.exitstatus == 130
    assert json.loads(person.out("show", job, "--json"))["state"] in {
        "PENDING",
        "RUNNING",
    }
    cancel(person, job)


def test_ctrl_c_in_sbatch_says_what_was_submitted(person: Person) -> None:
    shell = terminal(person, "sbatch", "--wait", "--wrap", "sleep 60")
    shell.expect(r"Submitted batch job (\d+)")
    number = shell.match[1]
    shell.sendintr()
    shell.expect(f"job {number} was submitted")
    shell.expect(pexpect.EOF)
    shell.close()
    assert shell.exitstatus == 130
    cancel(person, number)


def test_ctrl_c_before_an_answer_says_that_nothing_was_submitted(
    person: Person,
) -> None:
    shell = terminal(person, "sbatch", "-J", "typed")  # waits for a script
    shell.sendline("#!/bin/sh")
    time.sleep(3)  # the terminal echoes at once, also before anybody reads
    shell.sendintr()
    shell.expect("interrupted")
    shell.expect(pexpect.EOF)
    shell.close()
    assert shell.exitstatus == 130
    assert person.out("jobs", "--name", "typed") == ""


def test_a_pipe_that_closes_is_no_error(person: Person) -> None:
    command = f"{HPCPLAT} --help | head -1"
    shown = subprocess.run(
        ["/bin/sh", "-c", command], env=person.env, capture_output=True, check=True
    )
    assert shown.stderr == b""
