"""What a program can reach that is not trusted."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

PROBE = """
import json, os, pathlib, socket, sys
def tried(action):
    try:
        action()
    except OSError as error:
        return error.__class__.__name__
    return "did"
kept, secret, port, pid = sys.argv[1:]
print(json.dumps({
    "kept": tried(lambda: pathlib.Path(kept, "new").write_text("x")),
    "secret": tried(lambda: pathlib.Path(secret).read_text()),
    "system": tried(lambda: pathlib.Path("/usr/new").write_text("x")),
    "python": tried(lambda: pathlib.Path(sys.prefix, "new").write_text("x")),
    "network": tried(lambda: socket.create_connection(("127.0.0.1", int(port)), 2)),
    "processes": [name for name in os.listdir("/proc") if name.isdecimal()],
    "kill": tried(lambda: os.kill(int(pid), 0)),
    "etc": sorted(os.listdir("/etc")),
    "user": os.getuid(),
}))
"""


def confined(kept: Path, *words: str, required: bool = True) -> list[str]:
    argv = [sys.executable, "-I", "-m", "server.aimui.confinement"]
    argv += ["--keep", str(kept), *["--required"] * required, "--", *words]
    return argv


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    folder = tmp_path / "kept"
    folder.mkdir()
    done = subprocess.run(
        confined(folder, "/bin/true"), check=False, capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"no user namespaces on this system: {done.stderr.strip()}")
    return folder


def test_nothing_but_what_was_given_is_there(kept: Path, tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("secret")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        words = (str(kept), str(secret), str(port), str(os.getppid() or 1))
        done = subprocess.run(
            confined(kept, sys.executable, "-I", "-c", PROBE, *words),
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        )
    found = json.loads(done.stdout)
    assert found["kept"] == "did"
    assert (kept / "new").read_text() == "x"
    assert found["secret"] == "FileNotFoundError"
    assert found["system"] == found["python"] == "OSError"  # read-only
    assert found["network"] != "did"
    assert found["processes"] == ["1"]
    assert found["kill"] == "ProcessLookupError"
    assert set(found["etc"]) <= {"ld.so.cache", "localtime", "mime.types"}
    assert found["user"] != 0


def test_the_exit_status_is_the_program_s(kept: Path) -> None:
    program = confined(kept, sys.executable, "-I", "-c", "raise SystemExit(7)")
    assert subprocess.run(program, check=False).returncode == 7


def test_all_ends_with_it(kept: Path) -> None:
    script = (
        "import os, time; print(os.getpid(), flush=True); os.fork(); time.sleep(99)"
    )
    program = confined(kept, sys.executable, "-I", "-c", script)
    with subprocess.Popen(program, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.terminate()
        assert process.stdout.read() == b""  # nobody holds the pipe any more
    assert process.returncode != 0


def test_no_folder_is_left_behind(kept: Path) -> None:
    import tempfile

    before = set(Path(tempfile.gettempdir()).glob("hpcplat-root-*"))
    subprocess.run(confined(kept, "/bin/true"), check=True)
    after = set(Path(tempfile.gettempdir()).glob("hpcplat-root-*"))
    assert after <= before
