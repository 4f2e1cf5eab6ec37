"""Settings, read once at the edge: which service, which folders, which database.

One of the two modules that read the environment; docs/reference/settings.md lists all.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import platformdirs

from hpcplat.errors import InvalidError

URL: Final = "HPCPLAT_URL"
DATA: Final = "HPCPLAT_DATA"
RUNS: Final = "HPCPLAT_RUNS"
DATASETS: Final = "HPCPLAT_DATASETS"
DATABASE: Final = "HPCPLAT_DATABASE"
POLICY: Final = "HPCPLAT_POLICY"
TOKEN: Final = "HPCPLAT_TOKEN"
TOKEN_FILE: Final = "HPCPLAT_TOKEN_FILE"
TIMEOUT: Final = "HPCPLAT_TIMEOUT"
RESIDENT: Final = "HPCPLAT_RESIDENT"

APP: Final = "hpcplat"
SERVICE_FILE: Final = "service"  # in the configuration folder: the URL of `login`
SECONDS: Final = 30.0
LONGEST_TOKEN: Final = 4096  # bytes of a token file


@dataclass(frozen=True, slots=True)
class Settings:
    """What this process was told, with every default filled in.

    ``url``: the service (``http://…``, ``https://…``, ``unix:/path``); empty: none,
    work in this process. ``policy``: a YAML file of the site's SitePolicy, or None.
    ``timeout``: seconds that the client waits for an answer. ``resident``: whether a
    service of one's own may stay warm between commands.
    """

    url: str
    data: Path
    runs: Path
    datasets: Path
    database: str
    policy: Path | None
    token: str
    token_file: Path
    timeout: float
    resident: bool

    def bearer(self) -> str:
        """Return the token: of the variable, else of the file; empty if there is none.

        Raises InvalidError if others can read the file.
        """
        return self.token or _token_in(self.token_file)


def read_settings(environ: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings of this process; InvalidError for one that can't be."""
    data = _folder(environ, DATA, platformdirs.user_data_path(APP))
    config = platformdirs.user_config_path(APP)
    policy = environ.get(POLICY)
    return Settings(
        url=_url(environ.get(URL, remembered_url(config)).strip()),
        data=data,
        runs=_folder(environ, RUNS, data / "runs"),
        datasets=datasets_folder(environ),
        database=environ.get(DATABASE) or f"sqlite:///{data / 'hpcplat.db'}",
        policy=Path(policy).expanduser() if policy else None,
        token=environ.get(TOKEN, "").strip(),
        token_file=_folder(environ, TOKEN_FILE, config / "token"),
        timeout=_seconds(environ.get(TIMEOUT, "")),
        resident=_is_on(environ.get(RESIDENT, "")),
    )


def datasets_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder that holds the datasets."""
    data = _folder(environ, DATA, platformdirs.user_data_path(APP))
    return _folder(environ, DATASETS, data / "datasets")


def own_environment() -> dict[str, str]:
    """Return this process's environment, for Slurm's commands to be given a part of."""
    return dict(os.environ)


def secret_from_environment(name: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return the value of a secret that a spec takes from here (``env:NAME``)."""
    try:
        return environ[name]
    except KeyError as error:
        raise InvalidError(
            f"The secret {name} is not set in your environment.", f"export {name}=…"
        ) from error


def remembered_url(config: Path) -> str:
    """Return the service that `hpcplat login` chose; empty if there is none."""
    try:
        return (config / SERVICE_FILE).read_text(errors="replace").strip()
    except OSError:
        return ""


def _folder(environ: Mapping[str, str], name: str, default: Path) -> Path:
    text = environ.get(name)
    return (Path(text).expanduser() if text else default).absolute()


def _url(text: str) -> str:
    if not text or text.startswith(("http://", "https://")):
        return text.rstrip("/")
    if text.startswith("unix:"):
        return "unix:" + str(Path(text.removeprefix("unix:")).expanduser())
    raise InvalidError(
        f"{URL} is {text!r}, which is no address of a service.",
        "Write https://host, http://127.0.0.1:8000 or unix:/path/to/socket.",
    )


def _seconds(text: str) -> float:
    if not text:
        return SECONDS
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 86_400:
        raise InvalidError(f"{TIMEOUT} is {text!r}.", "Give seconds, such as 30.")
    return seconds


def _is_on(text: str) -> bool:
    if text not in ("", "on", "off"):
        raise InvalidError(f"{RESIDENT} is {text!r}.", "Say on or off.")
    return text != "off"


def _token_in(path: Path) -> str:
    try:
        if path.stat().st_mode & 0o077:
            raise InvalidError(
                f"Others can read your token in {path}.", f"chmod 600 {path}"
            )
        return path.read_bytes()[:LONGEST_TOKEN].decode("ascii").strip()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidError(
            f"The token in {path} can't be read ({error}).", "Store it again."
        ) from error
