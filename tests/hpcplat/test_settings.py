"""Settings: defaults, refusals, and a token that others can't read."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcplat.errors import InvalidError
from hpcplat.settings import read_settings, secret_from_environment


def test_without_anything_said_all_is_in_the_users_folder(tmp_path: Path) -> None:
    settings = read_settings({"HPCPLAT_DATA": str(tmp_path)})
    assert settings.url == ""
    assert settings.runs == tmp_path / "runs"
    assert settings.database == f"sqlite:///{tmp_path}/hpcplat.db"
    assert settings.resident
    assert not read_settings({"HPCPLAT_RESIDENT": "off"}).resident


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000"),
        ("https://site.example", "https://site.example"),
        ("unix:/run/s", "unix:/run/s"),
        ("  ", ""),
    ],
)
def test_addresses_of_services(given: str, url: str) -> None:
    assert read_settings({"HPCPLAT_URL": given}).url == url


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HPCPLAT_URL", "localhost:8000"),
        ("HPCPLAT_URL", "file:///etc"),
        ("HPCPLAT_TIMEOUT", "soon"),
        ("HPCPLAT_TIMEOUT", "-1"),
        ("HPCPLAT_TIMEOUT", "nan"),
        ("HPCPLAT_RESIDENT", "no"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(InvalidError, match=name):
        read_settings({name: value})


def test_the_token_is_of_the_variable_or_of_a_private_file(tmp_path: Path) -> None:
    path = tmp_path / "token"
    environ = {"HPCPLAT_TOKEN_FILE": str(path)}
    assert read_settings(environ).bearer() == ""
    path.write_text("from-file\n")
    path.chmod(0o600)
    assert read_settings(environ).bearer() == "from-file"
    assert read_settings({**environ, "HPCPLAT_TOKEN": "own"}).bearer() == "own"
    path.chmod(0o644)
    with pytest.raises(InvalidError, match="chmod 600"):
        read_settings(environ).bearer()


def test_a_secret_that_is_not_set_is_named() -> None:
    assert secret_from_environment("A", {"A": "1"}) == "1"
    with pytest.raises(InvalidError, match="B"):
        secret_from_environment("B", {})
