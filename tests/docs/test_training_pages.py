"""The specs of the training pages are right, and what is said of them is what is said."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from hpcplat.cli.main import main as hpcplat
from hpcplat.jobs import read_spec
from hpcplat.training import training_of

HOW_TO = Path(__file__).parents[2] / "docs/how-to"
GPT = (HOW_TO / "train-a-gpt.md").read_text()
CHECKS = re.findall(
    r"^\$ hpcplat (spec check .*)\n((?:(?!\$|```).*\n)+)", GPT, re.MULTILINE
)


def specs(page: str) -> dict[str, str]:
    """Return the specs of a page by the name in their first line."""
    found = re.findall(r"```yaml\n# (\S+)\n(.*?)```", page, re.DOTALL)
    return dict(found)


def test_the_checks_of_the_page_are_found() -> None:
    assert len(CHECKS) == 2


@pytest.mark.parametrize(("command", "said"), CHECKS)
def test_a_check_says_what_the_page_says(
    command: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in specs(GPT).items():
        Path(name).write_text(text)
    hpcplat(shlex.split(command))
    out, err = capsys.readouterr()
    assert out + err == said


def test_the_model_of_the_page_takes_the_built_in_tokenizer(tmp_path: Path) -> None:
    path = tmp_path / "gpt.yaml"
    path.write_text(specs(GPT)["gpt.yaml"])
    assert training_of(read_spec(path)).model.vocab_size == 257


def test_the_specs_of_own_scripts_are_right(tmp_path: Path) -> None:
    page = (HOW_TO / "bring-your-own-script.md").read_text()
    found = specs(page)
    assert set(found) == {"mine.yaml", "digits.yaml"}
    for name, text in found.items():
        path = tmp_path / name
        path.write_text(text)
        assert read_spec(path).command
