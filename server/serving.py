"""Running the service: uvicorn on a Unix socket, a loopback port, or what is asked."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import gc
import os
import socket
import stat
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from hpcplat.errors import ConflictError, ForbiddenError, InvalidError
from hpcplat.settings import Settings
from server.aimui.install import tracked
from server.app import create_app, make_service
from server.auth import Peer

BACKLOG: Final = 2048
PROBE_TIMEOUT: Final = 2.0  # seconds
_UCRED: Final = struct.Struct("3i")  # pid, uid, gid (unix(7), SO_PEERCRED)


@dataclass(frozen=True, slots=True)
class Address:
    """Where the service listens: a Unix socket, or a host and port."""

    socket: Path | None = None
    host: str = "127.0.0.1"
    port: int = 0

    def __str__(self) -> str:
        """Return it as HPCPLAT_URL takes it."""
        if self.socket:
            return f"unix:{self.socket}"
        host = f"[{self.host}]" if ":" in self.host else self.host  # IPv6: RFC 3986
        return f"http://{host}:{self.port}"


class PeerProtocol(HttpToolsProtocol):
    """HTTP that knows who is at the other end of a Unix socket.

    It stands in the request's state, which no header can reach.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Ask the kernel once a connection."""
        super().connection_made(transport)
        peer = _peer_of(transport.get_extra_info("socket"))
        if peer is not None:
            self.app_state = {**self.app_state, "peer": peer}


def serve(  # noqa: PLR0913 - each is an option of the command line
    settings: Settings,
    *,
    path: Path | None,
    host: str,
    port: int,
    mode: int,
    tracking: bool = False,
    said: Callable[[str], None] | None = None,
) -> None:
    """Serve until a signal ends it: on the Unix socket ``path``, else on host and port.

    ``mode``: who may connect to the socket. ``tracking``: collect runs into Aim, and
    serve its UI. ``said`` is told the address once it is listened on. Raises
    ConflictError if the address is taken.
    """
    # Requests, submission and the reconcile loop are threads of one interpreter: one
    # that computes should not hold a short answer up for its whole turn (5 ms).
    sys.setswitchinterval(0.0005)
    address = Address(path, host, port)
    service = make_service(settings)
    app = create_app(service, threads=True)
    # What is there by now stays: the collector of cycles need not go through it again and
    # again, while nobody is answered.
    gc.freeze()
    secure = service.policy.https_only
    aim = (
        tracked(app, settings, service.database, secure=secure)
        if tracking
        else nullcontext()
    )
    with _listening(address, mode) as listener, aim:
        if said is not None:
            said(str(address))
        config = uvicorn.Config(
            app,
            http=PeerProtocol,
            loop="uvloop",
            lifespan="on",
            log_level="warning",
            access_log=False,
            proxy_headers=False,  # who asks is never taken from a header
            server_header=False,
            timeout_graceful_shutdown=5,
        )
        uvicorn.Server(config).run(sockets=[listener])


@contextlib.contextmanager
def _listening(address: Address, mode: int) -> Iterator[socket.socket]:
    if address.socket is not None:
        with listening_on(address.socket, mode) as listener:
            yield listener
        return
    with _tcp(address) as listener:
        yield listener


@contextlib.contextmanager
def listening_on(path: Path, mode: int) -> Iterator[socket.socket]:
    """Listen on a Unix socket, and remove it at the end unless it is another's by then.

    Raises ConflictError if somebody listens there, ForbiddenError or InvalidError for
    a path that can't be had.
    """
    listener, own = _unix(path, mode)
    with listener:
        try:
            yield listener
        finally:
            _remove_own(path, own)
            os.close(own)


def _tcp(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address.host, address.port))
    except OSError as error:
        listener.close()
        raise ConflictError(
            f"{address} can't be listened on ({error.strerror}).",
            "Choose another port: --port.",
        ) from error
    listener.listen(BACKLOG)
    return listener


def _unix(path: Path, mode: int) -> tuple[socket.socket, int]:
    """Return a listener, and a descriptor that tells its file from any other."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _alone_at(path):
            _remove_dead(path)
            return _bound(path, mode)
    except PermissionError as error:
        raise ForbiddenError(
            f"You may not listen on {path} ({error.strerror}).",
            "Choose a path in a folder of yours: --socket.",
        ) from error
    except OSError as error:
        raise InvalidError(
            f"The socket {path} can't be made ({error}).",
            "Choose a short path in a folder of yours: --socket.",
        ) from error


@contextlib.contextmanager
def _alone_at(path: Path) -> Iterator[None]:
    """Let one service at a time look at, make or remove what stands at a path.

    Else the socket of one that is between bind and listen would be taken for dead.
    """
    lock = path.with_name(f"{path.name}.lock")
    while True:
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW
        with os.fdopen(os.open(lock, flags, 0o600), "wb") as held:  # nobody else's
            fcntl.flock(held, fcntl.LOCK_EX)
            if not _stands_at(lock, held.fileno()):  # who held it has removed it
                continue
            try:
                yield
            finally:
                lock.unlink(missing_ok=True)
            return


def _stands_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _bound(path: Path, mode: int) -> tuple[socket.socket, int]:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        path.chmod(mode)
        listener.listen(BACKLOG)
        # So long as it is open, no other file can get the number of this one.
        return listener, os.open(path, os.O_PATH | os.O_NOFOLLOW)
    except OSError:
        listener.close()
        raise


def _remove_own(path: Path, own: int) -> None:
    # What can't be removed is dead: whoever listens there next removes it.
    with contextlib.suppress(OSError):
        if not _stands_at(path, own):
            return
        with _alone_at(path):
            if _stands_at(path, own):
                path.unlink()


def _remove_dead(path: Path) -> None:
    """Remove the socket of a service that is gone; never a file, nor a live one."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise ConflictError(f"{path} is there, and no socket.", "Name another one.")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(PROBE_TIMEOUT)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except FileNotFoundError:
            return
        except (BlockingIOError, TimeoutError):  # too many wait for it: it is there
            pass
    raise ConflictError(f"A service listens on {path} already.", "Use it, or end it.")


def _peer_of(connection: Any) -> Peer | None:  # noqa: ANN401 - asyncio's socket
    if connection is None or connection.family != socket.AF_UNIX:
        return None
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    _, uid, _ = _UCRED.unpack(raw)
    return Peer(uid)
