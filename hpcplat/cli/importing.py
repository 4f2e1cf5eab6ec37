"""`hpcplat import SCRIPT`: an sbatch script as a spec, with notes on what differs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
import yaml

from hpcplat.errors import InvalidError, NotFoundError
from hpcplat.jobs import spec_of
from hpcplat.sbatchline.body import parse_body
from hpcplat.sbatchline.commandline import parse
from hpcplat.sbatchline.directives import parse_script
from hpcplat.sbatchline.precedence import from_environment, request
from hpcplat.sbatchline.specs import Imported, imported

app = typer.Typer()


@app.command()
def import_(
    script: Annotated[Path, typer.Argument(help="A batch script.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Turn an sbatch script into a spec.

    The spec goes to the standard output. What it can't say the way the script did
    stands in comments at its top, and on the standard error.
    """
    found = imported_from(read_script(script), str(script))
    spec_of(found.values)  # refused here rather than at the submission
    for note in found.notes:
        print(f"{script}: {note}", file=sys.stderr)
    if as_json:
        print(json.dumps({"spec": found.values, "notes": found.notes}, indent=2))
    else:
        print(yaml_of(found), end="")


def imported_from(text: str, path: str) -> Imported:
    """Return the spec and the notes for a script's text."""
    asked = request(parse([path]), parse_script(text), from_environment({}))
    return imported(asked, parse_body(text), path)


def read_script(path: Path) -> str:
    """Return a batch script's text; one line and the remedy where that can't be."""
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise NotFoundError(f"{path} is not there.", "Check the name.") from error
    except OSError as error:
        raise InvalidError(
            f"{path} can't be read ({error.strerror}).", "Name a readable file."
        ) from error
    if not content.startswith(b"#!"):
        raise InvalidError(
            f"{path} is no batch script: it does not begin with #!.",
            "Put #!/bin/bash on its first line.",
        )
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise InvalidError(f"{path} is not UTF-8.", "Save it as UTF-8.") from error


def yaml_of(found: Imported) -> str:
    """Return the spec as YAML, the notes as comments ahead of it."""
    notes = "".join(f"# {note}\n" for note in found.notes)
    text: str = yaml.dump(
        found.values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=88
    )
    return notes + text


class _Dumper(yaml.SafeDumper):
    """YAML with scripts as blocks, the way a person writes them."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)
