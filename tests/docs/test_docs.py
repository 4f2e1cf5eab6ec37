"""The pages: built without a complaint, current, their links and their commands right."""

from __future__ import annotations

import importlib
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from hpcplat.cli.commands import COMMANDS, DROP_INS
from tests.docs.generate import DOCS, PAGES

PROJECT = DOCS.parent
TEXTS = sorted([*DOCS.rglob("*.md"), *PROJECT.glob("*.md")])
BLOCK = re.compile(
    r"^ *```(?:console|bash|sh|shell|text)?\n(.*?)^ *```", re.DOTALL | re.MULTILINE
)
# `hpcplat …` within a line; what is in capitals there stands for something else.
SPAN = re.compile(r"(?<!`)`(hpcplat [a-z][^`\n]*)`(?!`)")
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)|(?:src|href)=\"([^\"#]+)\"")
# Where a shell's command ends.
ENDS = {"|", ">", ">>", "2>", "&&", "||", ";", "&", "<", "<<", "2>&1", "1>&2"}


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_a_page_made_from_code_is_current(name: str) -> None:
    made = (DOCS / name).read_text()
    assert made == PAGES[name](), "run: python -m tests.docs.generate"


@pytest.mark.slow
def test_the_site_is_built_without_a_complaint(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path],
        cwd=PROJECT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    built = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.html")}
    home = (tmp_path / "index.html").read_text()
    for page in DOCS.rglob("*.md"):
        place = page.relative_to(DOCS).with_suffix("").as_posix()
        folder = place.removesuffix("index").rstrip("/")
        assert f"{folder}/index.html".lstrip("/") in built
        # Every page is to be found from the first one, without a search.
        if folder:
            assert f'href="{folder}/"' in home, f"{folder} is in no navigation"


@pytest.mark.parametrize("page", TEXTS, ids=lambda path: str(path.relative_to(PROJECT)))
def test_relative_links_lead_somewhere(page: Path) -> None:
    for found in LINK.finditer(_without_code(page.read_text())):
        target = found[1] or found[2]
        if not re.match(r"[a-z]+:", target):
            assert (page.parent / target).exists(), f"{target} is not there"


@pytest.mark.parametrize("page", TEXTS, ids=lambda path: str(path.relative_to(PROJECT)))
def test_commands_in_the_text_exist(page: Path) -> None:
    if page == DOCS / "reference/cli.md":  # made by the commands themselves
        return
    for line in _commands(page.read_text()):
        _check(line)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("hpcplat submitt job.yaml", "submitt"),
        ("hpcplat jobs --nonesuch", "--nonesuch"),
        ("hpcplat data nonesuch", "nonesuch"),
        ("hpcplat cluster up --color=red", "--color"),
    ],
)
def test_a_command_that_does_not_exist_is_found(line: str, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        _check(line)


def _without_code(text: str) -> str:
    return re.sub(
        r"`[^`\n]*`",
        "",
        re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE),
    )


def _commands(text: str) -> Iterator[str]:
    """Yield what runs hpcplat: lines of blocks (continued ones as one), and spans."""
    for block in BLOCK.finditer(text):
        for line in block[1].replace("\\\n", " ").splitlines():
            command = re.sub(r"^ *([$#] )?", "", line)
            if command.startswith("hpcplat "):
                yield command
    for span in SPAN.finditer(
        re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)
    ):
        yield span[1].replace("…", "")


def _check(line: str) -> None:
    """Have the command's own parser read the line, and run nothing."""
    words = list(_words(line))[1:]
    if not words or words[0].startswith("-") or words[0] in DROP_INS:
        return  # of the whole program, or in sbatch's own words
    name, *rest = words
    assert name in COMMANDS, f"{name} is no command: {line}"
    command: Any = typer.main.get_command(
        importlib.import_module(COMMANDS[name].module).app
    )
    if rest and rest[0] in getattr(command, "commands", {}):
        command, rest = command.commands[rest[0]], rest[1:]
    elif getattr(command, "commands", {}) and rest and not rest[0].startswith("-"):
        raise AssertionError(f"{rest[0]} is no command of {name}: {line}")
    known = {
        spelled
        for one in command.params
        for spelled in (*one.opts, *one.secondary_opts)
    }
    for option in _options(rest):
        assert option in known | {"--help", "-h"}, f"{option} is no option: {line}"


def _words(line: str) -> Iterator[str]:
    for word in shlex.split(line, comments=True):
        if word in ENDS:
            return
        yield word


def _options(words: list[str]) -> Iterator[str]:
    for word in words:
        if word == "--":
            return
        if word.startswith("--"):
            yield word.split("=")[0]
        elif re.match(r"-[A-Za-z]", word):
            yield word[:2]
