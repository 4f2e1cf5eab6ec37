"""What a person is told when a command fails, and the exit code that goes with it."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from typing import Final

from hpcplat.errors import ExitCode, HpcplatError

# What the operating system refuses and a person can mend, and how.
REMEDIES: Final = {
    errno.ENOSPC: "Free some space, or use another folder.",
    errno.EDQUOT: "Your disk quota is used up: remove files, or use another folder.",
    errno.EROFS: "Use a folder that can be written.",
    errno.EACCES: "Check the owner and mode.",
    errno.EPERM: "Check the owner and mode.",
    errno.EMFILE: "Raise the limit: ulimit -n.",
    errno.ENOMEM: "Free some memory.",
}


# What SQLite says of a disk, and how to mend it (sqlite3_errstr).
SQLITE_REMEDIES: Final = {
    "database or disk is full": "Free some space, or use another folder.",
    "attempt to write a readonly database": "Check the owner and mode.",
    "unable to open database file": "Check HPCPLAT_DATA, its owner and mode.",
}


def mendable(error: HpcplatError) -> int:
    """Say what is wrong and the remedy, a line for each fault."""
    for line in str(error).splitlines():
        _say(line)
    return ExitCode.MENDABLE


def usage(message: str) -> int:
    """Say what is wrong with the command line."""
    _say(message)
    return ExitCode.USAGE


def closed() -> int:
    """Say that the shell closed the standard output (``>&-``)."""
    _say("the standard output is closed. Send it to a file, or to /dev/null.")
    return ExitCode.MENDABLE


def interrupted() -> int:
    """Say that Ctrl-C was heard (130, as in every shell)."""
    _say("interrupted")
    return ExitCode.INTERRUPTED


def unread() -> int:
    """End quietly: whoever read our output has seen enough."""
    drop_unwritten()
    return ExitCode.DONE


def drop_unwritten() -> None:
    """Forget output that can't be written: it was said, or nobody reads on.

    Python flushes its output once more at exit, and would complain in its own words.
    """
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def of_the_system(error: OSError) -> int:
    """Say what the operating system refused, or keep a log where it is our fault."""
    remedy = REMEDIES.get(error.errno or 0)
    if remedy is None:
        return ours(error)
    where = f"{error.filename}: " if error.filename else ""
    _say(f"{where}{error.strerror}. {remedy}")
    return ExitCode.MENDABLE


def unforeseen(error: Exception) -> int:
    """Say what can be mended after all; keep a log of the rest."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]  # a service in this process failed in its thread
    if isinstance(error, HpcplatError):
        return mendable(error)
    if isinstance(error, OSError):
        return of_the_system(error)
    if isinstance(error, UnicodeEncodeError) and "surrogates" in error.reason:
        around = error.object[max(0, error.start - 20) : error.end + 20]
        _say(f"{around!r} is not valid UTF-8. Write it in UTF-8.")
        return ExitCode.MENDABLE
    for words, remedy in SQLITE_REMEDIES.items():
        if words in str(error):
            _say(f"{words[0].upper()}{words[1:]}. {remedy}")
            return ExitCode.MENDABLE
    return ours(error)


def ours(error: BaseException) -> int:
    """Keep the traceback in a file, and say where it is."""
    # Start-up is felt at every use; these two are a third of it, and for bugs alone.
    import tempfile
    import traceback

    report = "".join(traceback.format_exception(error))
    what = f"a fault of hpcplat: {type(error).__name__}: {error}"
    try:
        handle, path = tempfile.mkstemp(prefix="hpcplat-fault-", suffix=".log")
        with os.fdopen(handle, "w") as file:
            file.write(f"{sys.argv!r}\n{report}")
    except OSError:  # no place for a log: the screen is what is left
        print(report, file=sys.stderr)
        _say(what)
        return ExitCode.BUG
    _say(f"{what} (the log is {path}; please report it)")
    return ExitCode.BUG


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # a full disk: the exit code must do
        print(f"hpcplat: {text}", file=sys.stderr)
