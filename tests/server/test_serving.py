"""The service as a process of its own: sockets, peers, ports, and its end."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from hpcplat.client import connect
from hpcplat.errors import (
    ConflictError,
    ForbiddenError,
    InvalidError,
    UnavailableError,
)
from hpcplat.settings import Settings, read_settings
from server.serving import Address, listening_on
from tests.unix_users import acting_as

pytestmark = pytest.mark.slow

# A service without Slurm: it serves, and says that Slurm does not answer.
START = ("-m", "hpcplat.cli.main", "serve")


@contextlib.contextmanager
def running(folder: Path, *words: str) -> Iterator[str]:
    environ = {
        **os.environ,
        "HPCPLAT_DATA": str(folder),
        "SLURM_CONF": str(folder / "none.conf"),
    }
    process = subprocess.Popen(
        [sys.executable, *START, *words],
        env=environ,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        yield line.strip().rpartition("HPCPLAT_URL=")[2]
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 128 + signal.SIGTERM
        assert process.stdout is not None
        process.stdout.close()


def settings_for(url: str, folder: Path) -> Settings:
    return read_settings(
        {
            "HPCPLAT_URL": url,
            "HPCPLAT_DATA": str(folder),
            "HPCPLAT_TOKEN_FILE": str(folder / "no-token"),
        }
    )


def await_up(url: str, folder: Path) -> None:
    deadline = time.monotonic() + 30
    while True:
        with connect(settings_for(url, folder)) as client:
            try:
                client.health()
            except UnavailableError:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            else:
                return


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_socket_is_private_and_knows_who_asks(tmp_path: Path) -> None:
    with running(tmp_path) as url:
        await_up(url, tmp_path)
        path = Path(url.removeprefix("unix:"))
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with connect(settings_for(url, tmp_path)) as client:
            assert client.jobs() == []  # without any token
            token = client.make_token("test")["token"]
            assert token.startswith("hpcplat_")
        second = subprocess.run(
            [sys.executable, *START, "--socket", path],
            env={**os.environ, "HPCPLAT_DATA": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert second.returncode == 1
        assert "listens on" in second.stderr
    assert not path.exists()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_another_user_on_the_socket_is_another_user() -> None:
    if os.geteuid() != 0:
        pytest.skip("becoming another user takes root")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        with running(folder, "--everybody") as url:
            await_up(url, folder)
            with connect(settings_for(url, folder)) as client:
                mine = client.make_token("of root")
            with acting_as("nobody"), connect(settings_for(url, folder)) as client:
                theirs = client.make_token("of nobody")
            as_nobody = settings_for(url, folder)
            with connect(replace(as_nobody, token=theirs["token"])) as client:
                assert [one["label"] for one in client.tokens()] == ["of nobody"]
            with connect(replace(as_nobody, token=mine["token"])) as client:
                assert [one["label"] for one in client.tokens()] == ["of root"]


def test_a_port_is_on_loopback_and_takes_tokens_alone(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with running(tmp_path, "--port", str(port)) as url:
        assert url == f"http://127.0.0.1:{port}"
        await_up(url, tmp_path)
        assert httpx.get(f"{url}/api/v1/jobs").status_code == 401
        # Who asks is never taken from a header.
        forged = {"X-Forwarded-For": "unix", "X-Peer": "0", "Forwarded": "for=0"}
        answer = httpx.get(f"{url}/api/v1/jobs", headers=forged)
        assert answer.status_code == 401
        with socket.socket() as other, pytest.raises(OSError, match="refused"):
            other.connect((_own_address(), port))


def _own_address() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this host has no other address than loopback")
        address: str = probe.getsockname()[0]
    if address.startswith("127."):
        pytest.skip("this host has no other address than loopback")
    return address


def test_a_dead_socket_is_replaced_and_a_file_is_not(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with listening_on(path, 0o600), pytest.raises(ConflictError):  # noqa: SIM117
        with listening_on(path, 0o600):
            pass
    assert not path.exists()
    path.write_text("mine")
    with pytest.raises(ConflictError), listening_on(path, 0o600):
        pass
    assert path.read_text() == "mine"


def test_a_socket_path_that_is_too_long_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidError), listening_on(tmp_path / ("x" * 120), 0o600):
        pass


def answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def test_the_socket_of_a_successor_stays(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with contextlib.ExitStack() as successor:
        with listening_on(path, 0o600) as ending:
            ending.close()  # as the server does, before it has ended
            successor.enter_context(listening_on(path, 0o600))
        assert answers(path)
    assert list(tmp_path.iterdir()) == []


def test_a_socket_that_is_not_listened_on_yet_is_not_taken_for_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s"
    bound, other_tried = threading.Event(), threading.Event()
    chmod = Path.chmod

    def slow(self: Path, mode: int) -> None:  # between bind and listen
        bound.set()
        other_tried.wait(0.5)
        chmod(self, mode)

    monkeypatch.setattr(Path, "chmod", slow)
    refused: list[ConflictError] = []

    def other() -> None:
        bound.wait()
        try:
            with listening_on(path, 0o600):
                pass
        except ConflictError as error:
            refused.append(error)
        other_tried.set()

    thread = threading.Thread(target=other)
    thread.start()
    with listening_on(path, 0o600):
        thread.join()
        assert len(refused) == 1
        assert answers(path)
    assert list(tmp_path.iterdir()) == []


def test_of_many_that_start_over_a_dead_socket_one_listens(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    together, all_tried = threading.Barrier(8), threading.Barrier(8)
    served: list[bool] = []

    def start() -> None:
        together.wait()
        try:
            with listening_on(path, 0o600):
                all_tried.wait()
                served.append(answers(path))
        except ConflictError:
            all_tried.wait()

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert served == [True]


def test_a_service_that_is_too_busy_to_take_a_connection_is_no_dead_one(
    tmp_path: Path,
) -> None:
    path = tmp_path / "s"
    with contextlib.ExitStack() as stack:
        busy = stack.enter_context(socket.socket(socket.AF_UNIX))
        busy.bind(str(path))
        busy.listen(0)
        waiting = stack.enter_context(socket.socket(socket.AF_UNIX))
        waiting.connect(str(path))
        with pytest.raises(ConflictError), listening_on(path, 0o600):
            pass
    assert path.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user takes root")
def test_what_is_not_ours_is_told_in_one_line() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "closed").mkdir(mode=0o700)
        with listening_on(folder / "theirs", 0o600), acting_as("nobody"):
            for path in ("theirs", "closed/s", "new/s"):
                with (
                    pytest.raises(ForbiddenError, match="--socket"),
                    listening_on(folder / path, 0o600),
                ):
                    pass


def test_a_folder_that_is_a_file_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(InvalidError, match="--socket"),
        listening_on(tmp_path / "file" / "s", 0o600),
    ):
        pass


def test_a_folder_that_is_gone_at_the_end_is_no_fault(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with listening_on(folder / "s", 0o600):
        (folder / "s").unlink()
        folder.rmdir()


@pytest.mark.parametrize(
    ("address", "text"),
    [
        (Address(host="::1", port=80), "http://[::1]:80"),
        (Address(host="127.0.0.1", port=80), "http://127.0.0.1:80"),
        (Address(Path("/run/s")), "unix:/run/s"),
    ],
)
def test_an_address_is_written_as_a_client_takes_it(
    address: Address, text: str
) -> None:
    assert str(address) == text
