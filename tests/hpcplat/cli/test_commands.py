"""The commands, on the real Slurm, by way of the service that stays warm."""

from __future__ import annotations

import json
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.hpcplat.cli.person import HPCPLAT, Person, stop_resident

SLOW_AT_FIRST = "[ ${SLURM_RESTART_COUNT:-0} -gt 0 ] || sleep 100"

pytestmark = [pytest.mark.slurm, pytest.mark.slow]


@pytest.fixture(scope="module")
def done(person: Person) -> dict[str, Any]:
    """A job that completed."""
    script = 'echo from rank $RANK; echo "$GREETING"'
    words = ("--set", "environment.variables.GREETING=a, 'b' $c")
    person.run(
        "run", "-J", "done", "-n", "2", *words, "--watch", "--", "sh", "-c", script
    )
    job: dict[str, Any] = json.loads(person.out("show", "done", "--json"))
    return job


def test_a_job_runs_where_it_was_submitted(person: Person) -> None:
    out = person.out("run", "-w", "-J", "here", "--", "pwd")
    assert re.search(r"^Submitted job \w{16} \(Slurm job \d+\)\.$", out, re.MULTILINE)
    assert "COMPLETED" in out.splitlines()[-1]
    assert person.out("logs", "here") == str(person.folder)


def test_submit_with_changes(person: Person) -> None:
    spec = person.folder / "job.yaml"
    spec.write_text("name: filed\nresources: {time: 5m}\ncommand: [hostname]\n")
    shown = json.loads(
        person.out("submit", str(spec), "--set", "name=changed", "--json")
    )
    assert shown["name"] == "changed"
    assert person.out("wait", "changed") == f"{shown['id']} COMPLETED"


def test_a_dry_run_is_the_script_and_no_job(person: Person) -> None:
    before = person.out("jobs")
    script = person.out("run", "--dry-run", "-G", "h100:2", "--", "true")
    assert script.startswith("#!")
    assert "--gres=gpu:h100:2" in script
    assert person.out("jobs") == before


def test_what_is_shown(person: Person, done: dict[str, Any]) -> None:
    assert done["state"] == "COMPLETED"
    assert done["attempts_list"][0]["exit_code"] == 0
    shown = person.out("show", done["id"])
    assert f"Job:       {done['id']}  done" in shown
    assert person.out("logs", "done", "--rank", "1") == ("from rank 1\na, 'b' $c")
    events = person.out("events", "done").splitlines()
    assert [line.split()[2] for line in events][:2] == ["QUEUED", "PENDING"]
    assert person.out("show", "--script", "done").startswith("#!")


@pytest.mark.parametrize("length", [16, 12])
def test_ids_may_be_shortened(
    person: Person, done: dict[str, Any], length: int
) -> None:
    assert (
        json.loads(person.out("show", "--json", done["id"][:length]))["id"]
        == done["id"]
    )


def test_slurms_number_names_a_job(person: Person, done: dict[str, Any]) -> None:
    found = json.loads(person.out("show", "--json", str(done["slurm_job_id"])))
    assert found["id"] == done["id"]


def test_the_list(person: Person, done: dict[str, Any]) -> None:
    rows = [line.split("\t") for line in person.out("jobs").splitlines()]
    assert [done["id"], "done", "COMPLETED"] in [row[:3] for row in rows]
    assert person.out("jobs", "--state", "failed", "--name", "done") == ""
    assert (
        json.loads(person.out("jobs", "--json", "--name", "done"))[0]["id"]
        == done["id"]
    )
    refused = person.run("jobs", "--state", "gone", status=1).stderr
    assert refused.startswith("hpcplat: gone is no state. Use one of QUEUED")


def test_a_failure_is_exit_code_1(person: Person) -> None:
    out = person.out("run", "-w", "-J", "bad", "--", "sh", "-c", "exit 7", status=1)
    assert "FAILED" in out.splitlines()[-1]
    assert "exit code 7" in out.splitlines()[-1]
    assert person.out("wait", "bad", status=1).split()[1] == "FAILED"


def test_cancel(person: Person) -> None:
    person.run("run", "-J", "long", "--", "sleep", "600")
    assert person.out("cancel", "long").startswith("Cancelling ")
    assert person.out("wait", "long", status=1).split()[1] == "CANCELLED"


def test_requeue_makes_a_second_attempt(person: Person) -> None:
    words = ("--set", "recovery.requeue=true")
    person.run("run", "-J", "again", *words, "--", "sh", "-c", SLOW_AT_FIRST)
    wait_for(person, "again", "RUNNING")
    assert person.out("requeue", "again").startswith("Requeued ")
    # It need not wait for two minutes, as Slurm would have it.
    assert person.out("wait", "again").split()[1] == "COMPLETED"
    attempts = json.loads(person.out("show", "again", "--json"))["attempts_list"]
    assert len(attempts) >= 2
    assert attempts[-1]["state"] == "COMPLETED"


def test_tasks_of_an_array(person: Person) -> None:
    words = ("--set", "array=0-2")
    person.run(
        "run", "-w", "-J", "many", *words, "--", "sh", "-c", "echo $SLURM_ARRAY_TASK_ID"
    )
    assert person.out("logs", "many_2") == "2"
    assert person.run("show", "many_9", status=None).returncode in {0, 1}


def test_a_name_of_several_live_jobs_is_not_guessed(person: Person) -> None:
    ids = [
        json.loads(person.out("run", "--json", "-J", "twin", "--", "sleep", "60"))["id"]
        for _ in range(2)
    ]
    refused = person.run("cancel", "twin", status=1).stderr
    assert "is the name of 2 jobs that are not over. Give an id: " in refused
    assert all(job in refused for job in ids)
    person.run("cancel", *ids)


def test_nodes_show_who_uses_what(person: Person) -> None:
    person.run("run", "-J", "gpus", "-G", "3", "--", "sleep", "60")
    wait_for(person, "gpus", "RUNNING")
    rows = [line.split("\t") for line in person.out("nodes").splitlines()]
    assert "AAA·" in [row[1] for row in rows]
    told = json.loads(person.out("nodes", "--json"))
    assert {"root": 3} in [node["gpu_users"] for node in told["nodes"]] or (
        3 in [sum(node["gpu_users"].values()) for node in told["nodes"]]
    )
    person.run("cancel", "gpus")


def test_what_sbatch_submitted_is_known(person: Person) -> None:
    out = person.out("sbatch", "-J", "by sbatch", "-a", "1-2", "--wrap", "sleep 3")
    number = out.removeprefix("Submitted batch job ")
    het = person.out("sbatch", "--comment", "my own", "-J", "het", "-N1", ":", "-N1",
                     "--wrap", "sleep 3")  # fmt: skip
    shown = json.loads(person.out("show", number, "--json"))
    assert (shown["name"], shown["tasks"], shown["kind"]) == ("by sbatch", 2, "sbatch")
    assert person.out("wait", number, het.split()[-1]).count("COMPLETED") == 2
    assert list((person.folder / "data" / "sbatch").iterdir()) == []


def test_the_log_of_an_sbatch_job_is_read_where_it_lies(person: Person) -> None:
    words = (
        "-J",
        "teller",
        "-o",
        "%x-%j.txt",
        "--wrap",
        "echo told; sleep 2; echo all",
    )
    person.run("sbatch", *words)
    assert person.out("logs", "-f", "teller") == "told\nall"
    assert person.out("logs", "teller", "--tail", "1") == "all"


def test_logs_that_are_empty_or_not_there_say_why(person: Person) -> None:
    person.run("run", "-w", "-J", "unfound", "--", "no-such-program", status=1)
    for words in (("logs", "unfound"), ("logs", "-f", "unfound")):
        shown = person.run(*words)
        assert shown.stdout == ""
        assert shown.stderr == (
            "hpcplat: It printed nothing: the job is FAILED."
            " Rank 0 on n1 could not start: no-such-program was not found.\n"
        )
    for follow in ((), ("-f",)):
        shown = person.run("logs", "unfound", "--rank", "99", *follow, status=1)
        assert shown.stderr == (
            "hpcplat: Attempt 1 has no log of rank 99. There are those of: 0.\n"
        )


def test_a_refused_sbatch_leaves_nothing(person: Person) -> None:
    before = person.out("jobs")
    assert (
        person.run("sbatch", "-p", "nowhere", "--wrap", "true", status=1).stdout == ""
    )
    assert list((person.folder / "data" / "sbatch").iterdir()) == []
    assert person.out("jobs") == before


def test_doctor_finds_nothing_to_mend(person: Person) -> None:
    out = person.out("doctor")
    assert out.splitlines()[-1] == "Nothing must be mended."
    found = json.loads(person.out("doctor", "--json"))
    assert "bad" not in {finding["verdict"] for finding in found}
    assert {"Slurm", "slurmctld", "GPUs", "accounts", "service"} <= {
        finding["what"] for finding in found
    }


def test_without_the_resident_the_same_is_said(
    person: Person, done: dict[str, Any]
) -> None:
    alone = Person(
        person.cluster, person.folder, {**person.env, "HPCPLAT_RESIDENT": "off"}
    )
    assert alone.out("show", done["id"], "--json") == person.out(
        "show", done["id"], "--json"
    )


def test_watching_survives_the_service(person: Person) -> None:
    """The service is killed twice while somebody waits."""
    person.run("run", "-J", "survivor", "--", "sleep", "9")
    with subprocess.Popen(
        [str(HPCPLAT), "wait", "survivor", "--json"],
        env=person.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as waiting:
        for _ in range(2):
            time.sleep(2.5)
            stop_resident(person)
        out, _ = waiting.communicate(timeout=90)
    assert waiting.returncode == 0
    assert json.loads(out)[0]["state"] == "COMPLETED"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("show", "nobody"), "There is no job 'nobody'. List yours: hpcplat jobs."),
        (("submit", "none.yaml"), "none.yaml is not there. Check the name."),
        (("run", "-G", "many", "--", "true"), "--gpus many is no count."),
        (("run", "-G", "v100:1", "--", "true"), "has no GPU of type v100."),
        (
            ("run", "--set", "x", "--", "true"),
            "'x' is not a change. Write --set a.b=c.",
        ),
        (
            ("run", "-t", "soon", "--", "true"),
            "resources.time: 'soon' is not a duration.",
        ),
    ],
)
def test_bad_input_is_one_line(
    person: Person, words: tuple[str, ...], line: str
) -> None:
    shown = person.run(*words, status=1)
    assert line in shown.stderr
    assert shown.stderr.count("\n") == 1
    assert shown.stdout == ""


def test_a_service_that_is_down(person: Person) -> None:
    env = {**person.env, "HPCPLAT_URL": "http://127.0.0.1:9"}
    away = Person(person.cluster, person.folder, env)
    shown = away.run("jobs", status=1).stderr
    assert "does not answer" in shown
    assert "HPCPLAT_URL" in shown
    assert shown.count("\n") == 1


def wait_for(person: Person, name: str, state: str) -> None:
    deadline = time.monotonic() + 180
    while json.loads(person.out("show", name, "--json"))["state"] != state:
        assert time.monotonic() < deadline
        time.sleep(0.3)


def test_login_keeps_the_address(person: Person, tmp_path: Path) -> None:
    env = {k: v for k, v in person.env.items() if k != "HPCPLAT_URL"}
    home = Person(
        person.cluster, person.folder, {**env, "XDG_CONFIG_HOME": str(tmp_path)}
    )
    (socket,) = (person.folder / "data").glob("resident-*.sock")
    assert "Commands go there from now on." in home.out("login", f"unix:{socket}")
    assert (tmp_path / "hpcplat" / "service").read_text() == f"unix:{socket}\n"
    home.run("jobs")
    home.run("logout")
    assert not (tmp_path / "hpcplat" / "service").exists()
