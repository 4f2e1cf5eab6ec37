import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcplat import eventlog
from hpcplat.cli import main
from hpcplat.errors import ExitCode, InvalidError, NotFoundError
from hpcplat.eventlog import EventKind, RunEvent
from hpcplat.runfolder import RunFolder
from hpcplat.tracking import MetricsWriter, provenance
from hpcplat.tracking.code_state import code_state, without_secrets
from hpcplat.tracking.difference import MISSING, differences
from hpcplat.tracking.export import as_csv, as_json_text
from hpcplat.tracking.lineage import lineage
from hpcplat.tracking.reproduction import obstacles, spec_to_repeat
from hpcplat.tracking.surroundings import parse_gpus, slurm_ids


def git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    done = subprocess.run(
        ["git", *identity, *words],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null"},
    )
    return done.stdout.strip()


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "trunk")
    (folder / "train.py").write_text("print(1)\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    git(folder, "remote", "add", "origin", "https://me:secret@example.org/code.git")
    return folder


@pytest.fixture
def record(tmp_path: Path, code: Path) -> Callable[[str], RunFolder]:
    """A run folder as a job leaves it."""

    def make(name: str) -> RunFolder:
        run = RunFolder(tmp_path / name)
        run.attempt(1).root.mkdir(parents=True)
        spec = {"name": "gpt", "kind": "command", "command": ["python", "train.py"]}
        run.spec.write_text(json.dumps(spec))
        plan = {"key": "k", "folder": str(code), "argv": ["python", "train.py"]}
        run.plan.write_text(json.dumps(plan))
        environ = {**os.environ, "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]"}
        provenance.record(run, 1, environ)
        nodes = {"nodes": ["n1", "n2"]}
        began = RunEvent(EventKind.RANKS_STARTED, "8 ranks", 1, 10.0, nodes)
        ended = RunEvent(EventKind.ATTEMPT_ENDED, "All well.", 1, 20.0, {"code": 0})
        for event in (began, ended):
            eventlog.append(run.events, event)
        return run

    return make


def test_a_clean_tree_is_its_commit(code: Path) -> None:
    state, diff = code_state(code)
    assert state.commit == git(code, "rev-parse", "HEAD")
    assert (state.branch, state.is_clean, diff) == ("trunk", True, "")
    assert state.remote == "https://example.org/code.git"


def test_changes_and_untracked_files_are_told(code: Path) -> None:
    (code / "train.py").write_text("print(2)\n")
    (code / "new.py").write_text("x")
    state, diff = code_state(code)
    assert not state.is_clean
    assert "+print(2)" in diff
    assert len(state.diff) == 64
    assert [name for name, _ in state.files] == ["new.py"]


def test_without_git_the_program_is_hashed(tmp_path: Path) -> None:
    (tmp_path / "go.py").write_text("x")
    state, _ = code_state(tmp_path, ["python", "-u", "go.py", "missing.py"])
    assert state.commit == ""
    assert [name for name, _ in state.files] == ["go.py"]


@pytest.mark.parametrize(
    ("remote", "shown"),
    [
        ("https://me:pass@host/a.git", "https://host/a.git"),
        ("https://token@host/a@b.git", "https://host/a@b.git"),
        ("git@host:a.git", "git@host:a.git"),
        ("/srv/a.git", "/srv/a.git"),
    ],
)
def test_a_remote_shows_no_secret(remote: str, shown: str) -> None:
    assert without_secrets(remote) == shown


def test_slurm_s_names_become_ours() -> None:
    environ = {"SLURM_JOB_ID": "7", "SLURM_JOB_PARTITION": "gpu", "HOME": "/"}
    assert slurm_ids(environ) == {"job_id": "7", "partition": "gpu"}


def test_gpus_are_read_from_what_the_driver_s_program_prints() -> None:
    text = "NVIDIA H100, 550.54.15, GPU-1, 81559 MiB\nnot a row\n"
    assert parse_gpus(text) == [
        {
            "name": "NVIDIA H100",
            "driver_version": "550.54.15",
            "uuid": "GPU-1",
            "memory.total": "81559 MiB",
        }
    ]


def test_one_record_answers_what_made_a_run(
    record: Callable[[str], RunFolder], code: Path
) -> None:
    found = lineage(record("run").root)
    assert found["code"]["commit"] == git(code, "rev-parse", "HEAD")
    assert found["environment"]["python"]["packages"]["pytest"]
    [attempt] = found["attempts"]
    assert attempt["slurm"] == {"job_id": "7", "nodes": "n[1-2]"}
    assert attempt["nodes"] == ["n1", "n2"]
    assert (attempt["exit_code"], attempt["reason"]) == (0, "All well.")


def test_a_diff_is_for_the_owner_only(
    record: Callable[[str], RunFolder], code: Path
) -> None:
    (code / "train.py").write_text("password = 'x'\n")
    run = record("run")
    assert (run.attempt(1).root / "code.diff").stat().st_mode & 0o077 == 0
    assert "password" not in json.dumps(lineage(run.root))


def test_what_is_no_run_folder_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no run folder"):
        lineage(tmp_path)


def test_nothing_stands_in_the_way_of_a_run_whose_makings_are_there(
    record: Callable[[str], RunFolder],
) -> None:
    found = lineage(record("run").root)
    assert obstacles(found) == []
    assert spec_to_repeat(found)["command"] == ["python", "train.py"]


@pytest.mark.parametrize("told_in", ["plan", "spec"])
def test_data_is_found_where_the_ranks_find_it(
    tmp_path: Path, told_in: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the folder that the job was told of, whatever the node's own default is."""
    monkeypatch.setenv("HPCPLAT_DATASETS", str(tmp_path / "elsewhere"))
    run, version = RunFolder(tmp_path / "run"), tmp_path / "data/text/versions/v-1"
    run.attempt(1).root.mkdir(parents=True)
    root, data = str(tmp_path / "data"), "text@v-1"
    plan = {"variables": {"HPCPLAT_DATASETS": root}} if told_in == "plan" else {}
    settings = {"data": {"root": root}} if told_in == "spec" else {}
    run.plan.write_text(json.dumps(plan))
    run.spec.write_text(json.dumps({"data": data, "settings": settings}))
    asked: list[tuple[str, Path | None]] = []

    def locate(name: str, root: Path | None) -> Path:
        asked.append((name, root))
        return version

    monkeypatch.setattr("hpcplat.datasets.store.locate", locate)
    provenance.record(run, 1, {})
    assert asked == [(data, Path(root))]
    found = lineage(run.root)
    assert f"data: the version {version} is gone" in obstacles(found)
    version.mkdir(parents=True)
    assert not [said for said in obstacles(found) if said.startswith("data")]


def test_what_is_gone_or_changed_is_named(
    record: Callable[[str], RunFolder], code: Path
) -> None:
    found = lineage(record("run").root)
    (code / "train.py").write_text("print(3)\n")
    git(code, "commit", "-qam", "second")
    (code / "train.py").write_text("print(4)\n")
    found["environment"]["conda"] = "/no/such/place"
    found["data"] = [{"reference": "text:v1", "digest": "ab" * 32}]
    said = "\n".join(obstacles(found))
    for word in (
        "at commit",
        "uncommitted",
        "/no/such",
        "data:",
    ):
        assert word in said


def test_data_is_named_by_digest_when_it_is_asked_for_again() -> None:
    record = {
        "spec": {"data": "text:latest"},
        "data": [{"reference": "text:latest", "digest": "ab" * 32}],
    }
    assert spec_to_repeat(record)["data"] == f"text@{'ab' * 32}"
    with pytest.raises(InvalidError, match=r"no spec\.json"):
        spec_to_repeat({"spec": {}, "data": []})


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(min_size=1), inner),
    max_leaves=10,
)


@given(values)
def test_a_value_does_not_differ_from_itself(value: object) -> None:
    assert list(differences(value, value, "x")) == []


@given(values, values)
def test_differences_are_seen_from_both_sides(left: object, right: object) -> None:
    one = {(d.path, repr(d.left)) for d in differences(left, right, "x")}
    other = {(d.path, repr(d.right)) for d in differences(right, left, "x")}
    assert one == other
    if left != right:
        assert one


def test_differences_are_named_by_path() -> None:
    left: dict[str, Any] = {"spec": {"nodes": 1, "lr": [1, 2]}, "folder": "/a"}
    right: dict[str, Any] = {"spec": {"nodes": 2, "lr": [1]}, "folder": "/b"}
    assert [tuple(found) for found in differences(left, right)] == [
        ("spec.nodes", 1, 2),
        ("spec.lr[1]", 2, MISSING),
    ]


def test_the_commands(
    record: Callable[[str], RunFolder], capsys: pytest.CaptureFixture[str], code: Path
) -> None:
    first = record("first").root
    (code / "train.py").write_text("print(2)\n")
    git(code, "commit", "-qam", "second")
    second = record("second").root
    assert main.main(["runs", "show", str(first)]) == ExitCode.DONE
    shown = capsys.readouterr().out
    assert "(trunk), clean" in shown
    assert "Slurm job 7 on n1, n2: All well." in shown
    assert main.main(["runs", "diff", str(first), str(second)]) == ExitCode.DONE
    assert "code.commit: " in capsys.readouterr().out
    assert main.main(["runs", "diff", str(first), str(first)]) == ExitCode.DONE
    assert "Nothing differs" in capsys.readouterr().out
    assert main.main(["runs", "reproduce", str(first)]) == ExitCode.MENDABLE
    assert "what differs stands above" in capsys.readouterr().err


def test_metrics_are_exported_whole(tmp_path: Path) -> None:
    for attempt in (1, 2):
        writer = MetricsWriter(tmp_path, attempt=attempt)
        writer.log({"loss": float("nan"), "lr": attempt}, step=1)
        writer.close()
    rows = as_csv(tmp_path).splitlines()
    assert rows[0] == "name,source,step,value,time,attempt,superseded"
    assert len(rows) == 5
    assert sum(row.endswith(",1") for row in rows[1:]) == 2
    content = json.loads(as_json_text(tmp_path))
    [loss] = [curve for curve in content["curves"] if curve["name"] == "loss"]
    assert loss["points"][0]["value"] == "nan"
