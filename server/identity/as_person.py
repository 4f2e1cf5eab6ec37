#!/usr/bin/python3 -I
"""What sudo lets the service run as a person: fill a run folder, submit from it.

One JSON object comes on the standard input, one goes to the standard output. The
program takes no arguments, starts no shell, knows three verbs, and makes the
environment of what it starts from nothing: nothing of the service's gets through. It
has only the standard library, so that it stands alone, owned by root, where the
site's sudoers file names it.
"""

import json
import os
import pwd
import re
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

PATH = "/usr/local/bin:/usr/bin:/bin"
SBATCH = "/usr/bin/sbatch"
LARGEST = 16 * 1024 * 1024  # bytes of a request
SECONDS = 60
OPTION = re.compile(r"--(hold|account|dependency|begin)(=[\w.:,+\-]*)?", re.ASCII)


class RefusedError(Exception):
    """A request that this program does not carry out."""


def main() -> int:
    """Carry out one request; exit 0 with an answer, 2 with the reason of a refusal."""
    try:
        request = json.loads(sys.stdin.buffer.read(LARGEST + 1)[:LARGEST])
        answer = answer_to(request)
    except (RefusedError, ValueError, KeyError, TypeError, OSError) as error:
        sys.stderr.write(f"as-person: {error}\n")
        return 2
    json.dump(answer, sys.stdout)
    return 0


def answer_to(request: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a request; raises RefusedError."""
    me = pwd.getpwuid(os.getuid())
    if os.getuid() == 0 or os.getuid() != os.geteuid():
        raise RefusedError("it never runs as root")
    os.umask(umask_of_site())
    match request["verb"]:
        case "fill":
            fill(Path(request["folder"]), request["files"])
            return {}
        case "submit" | "estimate":
            return submit(request, me)
    raise RefusedError(f"it knows no verb {str(request['verb'])[:40]!r}")


def fill(folder: Path, files: list[dict[str, Any]]) -> None:
    """Write files below a folder, each whole; as the person, with the person's rights."""
    if not folder.is_absolute() or ".." in folder.parts:
        raise RefusedError(f"{folder} is no run folder")
    for inner in ("logs", "metrics"):
        (folder / inner).mkdir(parents=True, exist_ok=True)
    for made in (folder, folder.parent):
        check_own(made)
    for file in files:
        path = Path(file["path"])
        if path.parent != folder or path.name in ("", ".", ".."):
            raise RefusedError(f"{path} is not in the run folder")
        write(path, file["content"].encode(), int(file["mode"]) & 0o777)


def check_own(folder: Path) -> None:
    """Refuse a folder of somebody else's: they could put another one in its place.

    The folder of all runs is for everybody to make folders in.
    """
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid not in (0, os.getuid()):
        raise RefusedError(f"{folder} belongs to somebody else")


def write(path: Path, content: bytes, mode: int) -> None:
    """Write aside, then rename: a link in the way is replaced, never followed."""
    handle, aside = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    with os.fdopen(handle, "wb") as file:
        os.fchmod(file.fileno(), mode)
        file.write(content)
    Path(aside).replace(path)


def submit(request: dict[str, Any], me: pwd.struct_passwd) -> dict[str, Any]:
    """Run sbatch on a script; return its exit status and what it printed."""
    for option in request["options"]:
        if not OPTION.fullmatch(option):
            raise RefusedError(f"option {option[:40]!r} is not allowed")
    how = "--test-only" if request["verb"] == "estimate" else "--parsable"
    argv = [SBATCH, how, f"--chdir={request['folder']}", *request["options"]]
    done = subprocess.run(
        argv,
        input=request["script"],
        capture_output=True,
        text=True,
        errors="replace",
        env=environment(me, request.get("slurm_conf", "")),
        timeout=SECONDS,
        check=False,
        cwd="/",
    )
    return {"status": done.returncode, "stdout": done.stdout, "stderr": done.stderr}


def environment(me: pwd.struct_passwd, slurm_conf: str) -> dict[str, str]:
    """Return the environment of sbatch, which is the job's: the person's, no more."""
    found = {
        "HOME": me.pw_dir,
        "LOGNAME": me.pw_name,
        "USER": me.pw_name,
        "SHELL": me.pw_shell,
        "PATH": PATH,
        "LANG": "C.UTF-8",
        "SLURM_TIME_FORMAT": "%s",
    }
    if slurm_conf:
        check_conf(Path(slurm_conf))
        found["SLURM_CONF"] = slurm_conf
    return found


def check_conf(path: Path) -> None:
    """Refuse a slurm.conf that is not root's: it could send the job anywhere."""
    status = path.stat()
    if status.st_uid != 0 or status.st_mode & 0o022:
        raise RefusedError(f"{path} is not root's alone")


def umask_of_site() -> int:
    """Return the umask that logins get here (login.defs), else 022."""
    try:
        text = Path("/etc/login.defs").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0o022
    found = re.search(r"^UMASK\s+(0?[0-7]{3})\b", text, re.MULTILINE)
    return int(found[1], 8) if found else 0o022


if __name__ == "__main__":
    sys.exit(main())
