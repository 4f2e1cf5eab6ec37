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


def _shell(line: str, **variables: str) -> tuple[int, str, str]:
    """Run a shell's line; ``$HPCPLAT`` is the program, ``$PYTHON`` the interpreter."""
    program = Path(sys.executable).with_name("hpcplat")
    told = {"HPCPLAT": str(program), "PYTHON": sys.executable, **variables}
    done = subprocess.run(
        ["/bin/sh", "-c", line],
        env={**os.environ, **told},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_a_closed_output_is_said_in_one_line() -> None:
    said = "the standard output is closed. Send it to a file, or to /dev/null."
    assert _shell("$HPCPLAT jobs >&-") == (1, "", f"hpcplat: {said}\n")
    assert _shell("$HPCPLAT --version >&- 2>&-")[0] == 1
    status, out, _ = _shell("$HPCPLAT bogus 2>&-")
    assert (status, out) == (2, "")


def test_a_full_disk_is_said_in_one_line() -> None:
    code = (
        "import hpcplat.cli.main as p; p._dispatch = lambda _: print(1, flush=True);"
        "p.run()"
    )
    told = "hpcplat: No space left on device. Free some space, or use another folder.\n"
    for command in ("$HPCPLAT --help", f'$PYTHON -c "{code}"'):
        assert _shell(f"{command} >/dev/full") == (1, "", told)
    assert _shell("$HPCPLAT bogus 2>/dev/full") == (2, "", "")


def test_a_terminal_that_knows_ascii_alone_is_served() -> None:
    code = "from hpcplat.cli import streams as s; s.prepare(); print('… ≥ █⣿ 語')"
    status, out, err = _shell(f'$PYTHON -c "{code}"', PYTHONIOENCODING="ascii")
    assert (status, out, err) == (0, "... >= #* ?\n", "")
    status, out, _ = _shell("$HPCPLAT --help", PYTHONIOENCODING="ascii")
    assert status == 0
    assert out.startswith("Usage: hpcplat COMMAND [ARGUMENTS] ...")


def test_a_word_that_is_no_utf_8_is_said_in_one_line() -> None:
    status, _, err = _shell(r"$HPCPLAT plot $(printf '\377')")
    assert status == 1
    assert err == "hpcplat: '\\udcff' is not valid UTF-8. Write it in UTF-8.\n"


def test_ctrl_c_while_the_program_loads_is_one_line() -> None:
    code = """
import sys
from hpcplat.cli.start import run
class Pressed:
    def find_spec(self, name, path=None, target=None):
        if name == "hpcplat.cli.faults":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Pressed())
run()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (130, "hpcplat: interrupted\n")


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
