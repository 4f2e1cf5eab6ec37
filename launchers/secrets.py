"""A job's secrets, as its agents find them: by the run folder's file, or by a path."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from hpcplat.errors import InvalidError, NotFoundError


def secret_values(references: Mapping[str, str], file: Path) -> dict[str, str]:
    """Return the secrets by name; NotFoundError names one whose value is not there.

    ``env:`` values were put into ``file`` at submission, ``file:`` ones are read now
    (less one line end, as editors leave it).
    """
    carried = _carried(file) if _needs_file(references) else {}
    return {
        name: _from_path(name, reference.removeprefix("file:"))
        if reference.startswith("file:")
        else _from_file(name, carried, file)
        for name, reference in references.items()
    }


def remove(file: Path) -> None:
    """Remove the file that carried secrets; one that is not there is fine."""
    file.unlink(missing_ok=True)


def _needs_file(references: Mapping[str, str]) -> bool:
    return any(reference.startswith("env:") for reference in references.values())


def _carried(file: Path) -> dict[str, str]:
    try:
        values: dict[str, str] = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise InvalidError(
            f"{file} can't be read ({type(error).__name__}).", "Submit the job again."
        ) from error
    return values


def _from_file(name: str, carried: Mapping[str, str], file: Path) -> str:
    if name not in carried:
        raise NotFoundError(
            f"The value of the secret {name} is not in {file}.", "Submit the job again."
        )
    return carried[name]


def _from_path(name: str, path: str) -> str:
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise NotFoundError(
            f"The secret {name} can't be read from {path}.",
            "Make the file readable for yourself on the nodes.",
        ) from error
    return text.removesuffix("\n")
