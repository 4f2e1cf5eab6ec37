"""A service of one's own that stays warm between commands, and goes when unused.

Loading the service takes more than a second; a command that finds it running answers
in a fraction of that. It is the very same service as `hpcplat serve`, on a Unix socket
that only its user can open. It ends by itself, and everything works without it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from dataclasses import replace
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import Final

from hpcplat.errors import ConflictError
from hpcplat.settings import Settings, own_environment, read_settings

IDLE: Final = 300.0  # seconds without a command after which it ends
STARTS_WITHIN: Final = 30.0
LOOKS_EVERY: Final = 5.0
CRED: Final = struct.Struct("3i")  # process, user, group of the other end (unix(7))
LONGEST_SOCKET: Final = 100  # characters of a socket's path (sun_path holds 107)

# What makes two commands want different services, beside the settings themselves.
_TELLING: Final = ("SLURM_CONF", "PATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV")


def settings_with_resident(settings: Settings) -> Settings:
    """Return the settings with the resident's address, started if need be.

    The settings come back unchanged where it can't be had: the caller then works in
    its own process.
    """
    path = socket_path(settings)
    if len(str(path)) > LONGEST_SOCKET:
        return settings
    if not answers(path) and not _started(settings, path):
        return settings
    with contextlib.suppress(OSError):
        os.utime(path)  # the resident looks at this to see when it was last wanted
    return replace(settings, url=f"unix:{path}")


def socket_path(settings: Settings) -> Path:
    """Return where the resident for these settings and this environment listens."""
    environ = own_environment()
    told = [version("hpcplat"), sys.prefix, settings.database, str(settings.runs)]
    told.append(str(newest_code()))
    told += [environ.get(name, "") for name in _TELLING]
    name = hashlib.sha256("\0".join(told).encode()).hexdigest()[:12]
    return settings.data / f"resident-{name}.sock"


def newest_code() -> float:
    """Return when our newest source file was changed (Unix time).

    Who works on the code must not be served by what it was before.
    """
    house = Path(__file__).parents[2]
    parts = (house / "hpcplat", house / "server")
    return max(path.stat().st_mtime for part in parts for path in part.rglob("*.py"))


def answers(path: Path) -> bool:
    """Tell whether somebody listens on a Unix socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def stop(settings: Settings) -> bool:
    """End the resident for these settings; False if there is none."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.connect(str(socket_path(settings)))
        except OSError:
            return False
        told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CRED.size)
    process, _, _ = CRED.unpack(told)
    os.kill(process, signal.SIGTERM)
    return True


def _started(settings: Settings, path: Path) -> bool:
    """Start the resident and wait until it listens; False if it does not."""
    settings.data.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (settings.data / "resident.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-I", "-m", "hpcplat.cli.resident", str(path)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,  # a Ctrl-C of the command's is not for it
        )
    deadline = time.monotonic() + STARTS_WITHIN
    while time.monotonic() < deadline:
        if answers(path):
            return _serves(path, deadline - time.monotonic())
        if process.poll() is not None:
            return answers(path)  # another command's was quicker
        time.sleep(0.02)
    process.terminate()
    return False


def _serves(path: Path, seconds: float) -> bool:
    """Tell whether the one who listens also answers: it may fail while it starts."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(max(0.1, seconds))
        try:
            connection.connect(str(path))
            connection.sendall(b"GET /api/v1/health HTTP/1.0\r\nHost: hpcplat\r\n\r\n")
            return b" 200 " in connection.recv(64)
        except OSError:
            return False


def main(path: Path) -> None:
    """Serve on the socket until nobody has wanted it for a while."""
    settings = read_settings()
    watcher = threading.Thread(target=_watch, args=(path,), daemon=True)
    watcher.start()
    for point in entry_points(group="hpcplat.app", name="serve"):
        with contextlib.suppress(ConflictError):  # another one listens: leave it to it
            point.load()(settings, path=path, host="", port=0, mode=0o600)
        return


def _watch(path: Path) -> None:
    """End this process when its socket was not touched for long, or its site is gone."""
    conf = own_environment().get("SLURM_CONF", "")
    born = time.time()
    while True:
        time.sleep(LOOKS_EVERY)
        try:
            used = path.stat().st_mtime
        except FileNotFoundError:
            if time.time() - born < STARTS_WITHIN:
                continue
            used = 0.0
        if time.time() - used > IDLE or (conf and not Path(conf).exists()):
            os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
