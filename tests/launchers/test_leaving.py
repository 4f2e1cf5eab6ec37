"""A rank ends with its program's code, after its threads and atexit's functions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ENDS = """
import atexit, os, sys, threading, time
from launchers.leaving import run_and_leave

def late():
    time.sleep(0.1)
    print("thread")

class TakenApart:
    def __del__(self, abort=os.abort):
        abort()

kept = TakenApart()
def program():
    threading.Thread(target=late).start()
    atexit.register(print, "atexit")
    {end}
run_and_leave(program)
"""


@pytest.mark.parametrize(
    ("end", "code", "error"),
    [
        ("return 0", 0, ""),
        ("return 75", 75, ""),
        ("sys.exit(3)", 3, ""),
        ("sys.exit()", 0, ""),
        ("sys.exit('what is wrong')", 1, "what is wrong"),
        ("raise ValueError('a fault')", 1, "ValueError: a fault"),
        ("raise KeyboardInterrupt", 1, "KeyboardInterrupt"),
    ],
)
def test_the_code_is_the_programs_and_all_is_told(
    end: str, code: int, error: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENDS.format(end=end)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, "what is taken apart later changes nothing"
    assert done.stdout.split() == ["thread", "atexit"]
    assert error in done.stderr
    assert bool(error) == bool(done.stderr)
