"""The program's edge: exit codes (frozen), errors in one line, the nearest word."""

from __future__ import annotations

import errno
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpcplat.cli import main as program
from hpcplat.cli.commands import COMMANDS
from hpcplat.cli.main import COMPLETES, main
from hpcplat.errors import ExitCode, InvalidError


def test_exit_codes_are_frozen() -> None:
    assert {code.name: int(code) for code in ExitCode} == {
        "DONE": 0,
        "MENDABLE": 1,
        "USAGE": 2,
        "BUG": 3,
        "INTERRUPTED": 130,
    }


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["clutser"], "No such command 'clutser'. Did you mean cluster?"),
        (["import", "--jsno"], "No such option: --jsno. Did you mean --json?"),
        (["import"], "Missing argument 'script'. See hpcplat import --help."),
        (["--bogus"], "No such option: --bogus. See hpcplat --help."),
    ],
)
def test_a_wrong_word_names_the_nearest(
    arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == ExitCode.USAGE
    shown = capsys.readouterr()
    assert shown.err.lower().startswith(f"hpcplat: {line}".lower())
    assert shown.err.count("\n") == 1
    assert shown.out == ""


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (InvalidError("Bad.", "Mend."), 1, "hpcplat: Bad. Mend.\n"),
        (KeyboardInterrupt(), 130, "hpcplat: interrupted\n"),
        (
            OSError(errno.ENOSPC, "Full disk", "/x"),
            1,
            "hpcplat: /x: Full disk. Free some space, or use another folder.\n",
        ),
        (BrokenPipeError(), 0, ""),
        (
            ExceptionGroup("", [InvalidError("Bad.", "Mend.")]),
            1,
            "hpcplat: Bad. Mend.\n",
        ),
        (
            RuntimeError("(sqlite3) attempt to write a readonly database"),
            1,
            "hpcplat: Attempt to write a readonly database. Check the owner and mode.\n",
        ),
    ],
)
def test_an_error_is_one_line_and_a_code(
    error: BaseException,
    status: int,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def fail(_: list[str]) -> int:
        raise error

    monkeypatch.setattr(program, "_dispatch", fail)
    assert main([]) == status
    assert capfd.readouterr().err == line


def test_a_fault_of_ours_keeps_a_log(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    def fail(_: list[str]) -> int:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(program, "_dispatch", fail)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert main([]) == ExitCode.BUG
    (log,) = tmp_path.glob("hpcplat-fault-*.log")
    assert "ZeroDivisionError: oops" in log.read_text()
    assert str(log) in capsys.readouterr().err


def test_the_overview_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == ExitCode.DONE
    shown = capsys.readouterr().out
    for name, entry in COMMANDS.items():
        assert f"  {name} " in shown
        assert entry.help in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_help_loads_neither_typer_nor_the_heavy_ones() -> None:
    heavy = "typer rich torch numpy zarr aim httpx fastapi sqlmodel pydantic yaml"
    code = (
        "import sys; from hpcplat.cli.main import main; main(['--help']);"
        f"print(sorted(set('{heavy}'.split()) & set(sys.modules)))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert shown.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("words", "found"),
    [("hpcplat j", "jobs"), ("hpcplat jobs --li", "--limit"), ("hpcplat sb", "sbatch")],
)
def test_the_shell_completes(words: str, found: str) -> None:
    env = {
        **os.environ,
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
        COMPLETES: "complete_bash",
    }
    code = "from hpcplat.cli.main import run; run()"
    shown = subprocess.run(
        [sys.executable, "-c", code],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert found in shown.stdout.split()


def test_every_command_loads() -> None:
    for entry in COMMANDS.values():
        assert importlib.import_module(entry.module).app
