from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpcplat.errors import InvalidError, NotFoundError
from launchers.secrets import remove, secret_values


def test_secrets_come_from_the_runs_file_and_from_paths(tmp_path: Path) -> None:
    file = tmp_path / "secrets.json"
    file.write_text(json.dumps({"A": "x\n", "OTHER": "y"}))
    own = tmp_path / "own"
    own.write_text("line\n\n")
    references = {"A": "env:WHATEVER", "B": f"file:{own}"}
    assert secret_values(references, file) == {"A": "x\n", "B": "line\n"}


def test_a_secret_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="secret A is not in"):
        secret_values({"A": "env:A"}, tmp_path / "none.json")
    with pytest.raises(NotFoundError, match="secret B can't be read"):
        secret_values({"B": "file:/no/such"}, tmp_path / "none.json")


def test_no_file_is_needed_where_nothing_was_carried(tmp_path: Path) -> None:
    assert secret_values({}, tmp_path / "none.json") == {}


def test_a_broken_file_is_said_without_its_content(tmp_path: Path) -> None:
    file = tmp_path / "secrets.json"
    file.write_text('{"A": "hunter2"')
    with pytest.raises(InvalidError) as raised:
        secret_values({"A": "env:A"}, file)
    assert "hunter2" not in str(raised.value)


def test_removing_twice_is_fine(tmp_path: Path) -> None:
    file = tmp_path / "secrets.json"
    file.touch()
    remove(file)
    remove(file)
    assert not file.exists()
