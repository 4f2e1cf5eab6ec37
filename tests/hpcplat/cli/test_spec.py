from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpcplat.cli.main import main
from hpcplat.jobs import JobKind


def _run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["spec", *words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_schema_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _run(capsys, "schema")
    assert code == 0
    assert "resources" in json.loads(out)["properties"]


@pytest.mark.parametrize("kind", JobKind)
def test_a_template_passes_the_check(
    kind: JobKind, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = _run(capsys, "template", kind)
    assert code == 0
    file = tmp_path / "job.yaml"
    file.write_text(out)
    code, out, _ = _run(capsys, "check", str(file), "--set", "name=other")
    assert code == 0
    assert "is right" in out
    assert "'other'" in out


def test_faults_are_told_one_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("name: x\ncommand: [a]\nresources: {gpu_per_node: 1, nodes: 0}\n")
    code, _, err = _run(capsys, "check", str(file))
    assert code == 1
    assert "resources.gpu_per_node: There is no such key." in err
    assert "resources.nodes: 0 is below the limit 1." in err


def test_a_presets_settings_are_checked_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("name: x\nkind: train\npreset: gpt-tiny\nsettings: {stps: 5}\n")
    code, _, err = _run(capsys, "check", str(file))
    assert code == 1
    assert "settings.stps" in err


@pytest.mark.parametrize("value", ["1e400", "-1e400"])
def test_submission_says_what_the_check_says(
    value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A number that JSON can't carry is refused before anything is asked."""
    file = tmp_path / "job.yaml"
    file.write_text(
        f"name: x\nkind: train\npreset: gpt-tiny\nsettings: {{steps: {value}}}\n"
    )
    code, _, said = _run(capsys, "check", str(file))
    assert code == 1
    assert main(["submit", str(file)]) == 1
    assert capsys.readouterr().err == said
    assert "is not a finite number. Write one that is." in said
