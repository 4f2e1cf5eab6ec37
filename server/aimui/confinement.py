"""`python -I -m server.aimui.confinement --keep FOLDER … -- PROGRAM …`.

Runs a program in a root folder that holds the system's programs and libraries (read
only), Python, and the folders named: no home, no configuration, no network, no process
of anybody else. Namespaces of Linux do it, without any privilege (user_namespaces(7),
mount_namespaces(7), pivot_root(2)).

Where the system does not allow it the program runs as it is, and that is said, unless
``--required`` is given.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import platform
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

# linux/sched.h
_NEW_MOUNTS, _NEW_USERS, _NEW_PROCESSES = 0x00020000, 0x10000000, 0x20000000
_NEW_NETWORK, _NEW_IPC = 0x40000000, 0x08000000
# linux/mount.h
_BIND, _RECURSIVE, _PRIVATE, _DETACH = 0x1000, 0x4000, 1 << 18, 2
_NOSUID, _NODEV = 2, 4
_AT_FDCWD, _AT_RECURSIVE, _READ_ONLY = -100, 0x8000, 1
# linux/prctl.h
_PARENT_DEATH_SIGNAL, _NO_NEW_PRIVILEGES = 1, 38
# asm/unistd.h: the C library has no functions for these
_PIVOT_ROOT: Final = {"x86_64": 155, "aarch64": 41}
_MOUNT_SETATTR: Final = 442

LOOKS_EVERY: Final = 0.25  # seconds
NOBODY: Final = 65534
SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")
FILES: Final = (
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/mime.types",
    "/dev/null",
    "/dev/zero",
    "/dev/random",
    "/dev/urandom",
)
ALLOWED_IN: Final = ("/tmp", "/dev/shm")

_libc = ctypes.CDLL(None, use_errno=True)


class _Attributes(ctypes.Structure):
    """struct mount_attr."""

    _fields_ = tuple(
        (name, ctypes.c_uint64) for name in ("set", "clear", "kind", "user")
    )


def main(words: list[str]) -> int:
    """Run the program to its end; return its exit status."""
    options = _parser().parse_args(words)
    root = Path(tempfile.mkdtemp(prefix="hpcplat-root-"))
    try:
        _leave_the_others()
    except OSError as error:
        root.rmdir()
        return _unconfined(options, error)
    # The first process of a new process namespace: all below end with it.
    child = os.fork()
    if child == 0:
        _run_as_child(root, options)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os.kill(child, signal.SIGKILL))
    status = _await(child, os.getppid())
    root.rmdir()
    return os.waitstatus_to_exitcode(status) & 0xFF


def _await(child: int, parent: int) -> int:
    """Wait for the child's end; end it when whoever started us is gone."""
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        if os.getppid() != parent:
            os.kill(child, signal.SIGKILL)
        time.sleep(LOOKS_EVERY)


def _run_as_child(root: Path, options: argparse.Namespace) -> None:
    _check(_libc.prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0))
    folder = Path.cwd()
    try:
        _build(root, options.keep)
        os.chdir(folder)
        _check(_libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
        os.execv(options.program[0], options.program)
    except OSError as error:
        print(f"hpcplat: confinement: {error}", file=sys.stderr, flush=True)  # noqa: T201
    os._exit(126)


def _unconfined(options: argparse.Namespace, error: OSError) -> int:
    words = f"hpcplat: the program can't be confined on this system ({error})"
    print(words, file=sys.stderr, flush=True)  # noqa: T201 - a program
    if not options.required:
        os.execv(options.program[0], options.program)
    return 1


def _leave_the_others() -> None:
    """Enter namespaces of our own; inside we are an ordinary user."""
    user, group = os.geteuid(), os.getegid()
    flags = _NEW_USERS | _NEW_PROCESSES | _NEW_NETWORK | _NEW_IPC
    _check(_libc.unshare(flags))
    Path("/proc/self/setgroups").write_text("deny")
    # Root outside is nobody inside: a program that it starts has no capabilities.
    Path("/proc/self/uid_map").write_text(f"{user or NOBODY} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group or NOBODY} {group} 1")


def _build(root: Path, keep: Iterable[Path]) -> None:
    """Make the new root and go there; the old one is out of reach then."""
    _check(_libc.unshare(_NEW_MOUNTS))  # here, so that the parent sees the old one
    _mount(None, "/", None, _PRIVATE | _RECURSIVE)
    _mount("tmpfs", str(root), "tmpfs", _NOSUID | _NODEV)
    for name in ALLOWED_IN:
        _inside(root, name).mkdir(parents=True, exist_ok=True)
    for source in _read_only():
        _show(root, source, writable=False)
    for path in keep:
        _show(root, path.resolve(), writable=True)
    _inside(root, "/proc").mkdir()
    _mount("proc", str(_inside(root, "/proc")), "proc", _NOSUID | _NODEV)
    os.chdir(root)
    _check(_libc.syscall(_PIVOT_ROOT[platform.machine()], b".", b"."))
    _check(_libc.umount2(b".", _DETACH))
    os.chdir("/")


def _read_only() -> Iterator[Path]:
    """Yield what the program needs: the system's own, and this Python."""
    prefixes = {Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()}
    others = [path for path in prefixes if not path.is_relative_to("/usr")]
    for path in [*map(Path, SYSTEM), *map(Path, FILES), *sorted(others)]:
        if path.exists():
            yield path


def _show(root: Path, source: Path, *, writable: bool) -> None:
    target = _inside(root, str(source))
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_symlink():
        target.symlink_to(source.readlink())  # /bin -> usr/bin
        return
    if source.is_dir():
        target.mkdir(exist_ok=True)
    else:
        target.touch()
    _mount(str(source), str(target), None, _BIND | _RECURSIVE)
    if not writable:
        wanted = _Attributes(set=_READ_ONLY)
        size = ctypes.c_size_t(ctypes.sizeof(wanted))
        place = (ctypes.c_int(_AT_FDCWD), str(target).encode())
        flags = ctypes.c_uint(_AT_RECURSIVE)
        _check(_libc.syscall(_MOUNT_SETATTR, *place, flags, ctypes.byref(wanted), size))


def _inside(root: Path, path: str) -> Path:
    return root / path.lstrip("/")


def _mount(source: str | None, target: str, kind: str | None, flags: int) -> None:
    words = [word.encode() if word else None for word in (source, target, kind)]
    _check(_libc.mount(*words, ctypes.c_ulong(flags), None), target)


def _check(status: int, what: str = "") -> None:
    if status != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="confinement", description=__doc__)
    parser.add_argument(
        "--keep", type=Path, nargs="+", default=[], help="may be written"
    )
    parser.add_argument("--required", action="store_true", help="or do not run it")
    parser.add_argument("program", nargs="+", help="an absolute path, and its words")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
