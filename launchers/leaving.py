"""How a rank's process ends: with the code of its program, whatever libraries do then.

Torch's FSDP on gloo was seen to abort while the interpreter took it apart, in 3 of 50 runs
that had trained to their end: a good run would count as failed.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn


def run_and_leave(program: Callable[[], int]) -> NoReturn:
    """Run a program and end the process with its code: SystemExit's, or 1 if it raised.

    Threads that are no daemons are waited for and atexit's functions are called, as at
    any end of Python; what native libraries would take apart after that is left alone.
    """
    code = 1
    try:
        code = program()
    except SystemExit as end:
        code = code_of(end)
    except BaseException:  # noqa: BLE001 - this process's edge: its traceback is told
        sys.excepthook(*sys.exc_info())
    finally:
        leave(code)


def leave(code: int) -> NoReturn:
    """End this process: threads, atexit's functions, buffers; then at once."""
    try:
        _wait_for_threads()
        atexit._run_exitfuncs()
    except BaseException:  # noqa: BLE001 - their fault is told; the code stays
        sys.excepthook(*sys.exc_info())
    finally:
        with suppress(Exception):  # a broken pipe must not change how it ended
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def code_of(end: SystemExit) -> int:
    """Return the exit code that Python gives a SystemExit, its text printed."""
    if end.code is None:
        return 0
    if isinstance(end.code, int):
        return end.code & 0xFF
    print(end.code, file=sys.stderr)
    return 1


def _wait_for_threads() -> None:
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.current_thread():
            thread.join()
