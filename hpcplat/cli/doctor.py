"""`hpcplat doctor`: what of this site works, and how to mend what does not."""

from __future__ import annotations

import getpass
import os
import platform
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final, Literal

import typer

from hpcplat import processes
from hpcplat.cli.session import AsJson, print_json, service
from hpcplat.cli.tables import wants_colour
from hpcplat.client import Client
from hpcplat.dropin import shim
from hpcplat.errors import ExitCode, HpcplatError
from hpcplat.quantities import counted
from hpcplat.settings import Settings, own_environment, read_settings
from hpcplat.slurm.commandline import CommandLine

app = typer.Typer()

OLDEST: Final = (22, 5)
NEWEST: Final = (26, 5)
SKEW: Final = 5.0  # seconds that two clocks may differ
LITTLE: Final = 1024**3  # bytes free below which a warning is due
# File systems that one machine has for itself (statfs(2) names of df -T).
LOCAL: Final = frozenset("btrfs ext2 ext3 ext4 overlay ramfs tmpfs xfs zfs".split())  # noqa: SIM905 - shorter so

Verdict = Literal["good", "look", "bad"]
MARKS: Final = {"good": ("ok", "32"), "look": ("look", "33"), "bad": ("BAD", "31")}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: how it is, and how to mend it."""

    what: str
    verdict: Verdict
    detail: str
    remedy: str = ""


Check = Callable[[Settings, CommandLine], Iterator[Finding]]


@app.command()
def doctor(*, as_json: AsJson = False) -> None:
    """Check the site and your place in it; 1 if something must be mended."""
    settings = read_settings()
    slurm = CommandLine(environ=own_environment(), timeout=10)
    found: list[Finding] = []
    for name, check in CHECKS.items():
        for finding in _tried(name, check, settings, slurm):
            found.append(finding)
            if not as_json:
                print("\n".join(_lines(finding)), flush=True)
    if as_json:
        print_json([asdict(finding) for finding in found])
    elif all(finding.verdict != "bad" for finding in found):
        print("Nothing must be mended.")
    if any(finding.verdict == "bad" for finding in found):
        raise typer.Exit(ExitCode.MENDABLE)


def _tried(
    name: str, check: Check, settings: Settings, slurm: CommandLine
) -> Iterator[Finding]:
    try:
        yield from check(settings, slurm)
    except HpcplatError as error:
        yield Finding(name, "bad", error.what, error.remedy)


def _lines(finding: Finding) -> Iterator[str]:
    word, code = MARKS[finding.verdict]
    mark = f"{word:<4}"
    if wants_colour():
        mark = f"\x1b[{code}m{mark}\x1b[0m"
    yield f"{mark}  {finding.what}: {finding.detail}"
    if finding.remedy and finding.verdict != "good":
        yield f"      -> {finding.remedy}"


def _versions(_settings: Settings, slurm: CommandLine) -> Iterator[Finding]:
    yield Finding(
        "hpcplat", "good", f"{version('hpcplat')}, Python {platform.python_version()}"
    )
    release = slurm.version()
    spelled = f"{release[0]}.{release[1]:02}"
    if OLDEST <= release <= NEWEST:
        yield Finding("Slurm", "good", spelled)
    else:
        yield Finding(
            "Slurm",
            "look",
            f"{spelled} is none of those that hpcplat is tested with",
            "Try a job, and report what goes wrong.",
        )


def _sbatch(_settings: Settings, _slurm: CommandLine) -> Iterator[Finding]:
    path = os.environ.get("PATH", "")
    real = shim.real_sbatch(path)
    first = shim.first_on_path(path)
    tracked = first is not None and shim.is_shim(first)
    detail = f"{real}" + (f", tracked by {first}" if tracked else "")
    yield Finding("sbatch", "good", detail)


def _daemons(_settings: Settings, slurm: CommandLine) -> Iterator[Finding]:
    health = slurm.health()
    if health.controller:
        yield Finding("slurmctld", "good", "answers")
    else:
        yield Finding(
            "slurmctld", "bad", health.detail or "does not answer",
            "Nothing runs without it: ask the administrator.",
        )  # fmt: skip
        return
    if health.accounting:
        yield Finding("accounting", "good", "slurmdbd answers")
    else:
        yield Finding(
            "accounting", "look", health.detail or "slurmdbd does not answer",
            "Jobs run; how they ended is known less well.",
        )  # fmt: skip


def _gpus(_settings: Settings, slurm: CommandLine) -> Iterator[Finding]:
    nodes = slurm.nodes()
    totals: dict[str, int] = {}
    for node in nodes:
        for kind, count in node.gpus.items():
            totals[kind or "gpu"] = totals.get(kind or "gpu", 0) + count
    if totals:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(totals.items()))
        yield Finding("GPUs", "good", f"{kinds} on {counted(len(nodes), 'node')}")
    else:
        yield Finding(
            "GPUs", "look", f"none on {counted(len(nodes), 'node')}",
            "If there are some: Gres= on the nodes and a gres.conf.",
        )  # fmt: skip
    away = [node for node in nodes if node.reason]
    if away:
        shown = "; ".join(f"{node.name}: {node.reason}" for node in away[:4])
        yield Finding("nodes", "look", f"{len(away)} have a reason: {shown}")


def _associations(_settings: Settings, slurm: CommandLine) -> Iterator[Finding]:
    user = getpass.getuser()
    own = [entry for entry in slurm.associations() if entry.user == user]
    if own:
        accounts = ", ".join(sorted({entry.account for entry in own}))
        yield Finding("accounts", "good", f"{user} may use {accounts}")
        return
    enforced = slurm.config().get("AccountingStorageEnforce", "")
    yield Finding(
        "accounts",
        "bad" if "associations" in enforced else "look",
        f"{user} has no association, so no account",
        f"The administrator: sacctmgr add user {user} account=ACCOUNT.",
    )


def _folders(settings: Settings, slurm: CommandLine) -> Iterator[Finding]:
    folder = settings.runs
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield _clock_of(folder)
    except OSError as error:
        yield Finding(
            "run folders", "bad", f"{folder}: {error.strerror}",
            "Set HPCPLAT_RUNS to a folder of yours that all nodes see.",
        )  # fmt: skip
        return
    yield _space(folder)
    kind = _file_system(folder)
    if kind in LOCAL and len({node.name for node in slurm.nodes()}) > 1:
        yield Finding(
            "shared folder", "look", f"{folder} is on {kind}, which other machines"
            " mostly do not see",
            "Set HPCPLAT_RUNS to a folder that all nodes see.",
        )  # fmt: skip
    else:
        yield Finding("shared folder", "good", f"{folder} ({kind or 'unknown'})")


def _clock_of(folder: Path) -> Finding:
    """Compare this machine's clock with that of the file server."""
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".hpcplat-doctor-") as file:
        away = Path(file.name).stat().st_mtime - time.time()
    return _clock("clock of the run folder", away)


def _space(folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free
    spelled = f"{free / 1024**3:.1f} GiB free in {folder}"
    if free < LITTLE:
        return Finding("space", "bad", spelled, "Make room, or set HPCPLAT_RUNS.")
    return Finding("space", "good", spelled)


def _file_system(folder: Path) -> str:
    """Return the type of the file system that holds a folder (``df``'s word)."""
    try:
        done = processes.run(["df", "--output=fstype", folder], timeout=10)
    except HpcplatError:
        return ""
    return done.stdout.split()[-1] if done.ok else ""


def _controller_clock(_settings: Settings, _slurm: CommandLine) -> Iterator[Finding]:
    """Compare this machine's clock with slurmctld's, as ``show config`` dates itself."""
    environ = {**own_environment(), "TZ": "UTC", "SLURM_TIME_FORMAT": "standard"}
    done = processes.run(["scontrol", "show", "config"], timeout=10, env=environ)
    match = re.search(r"as of (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)", done.stdout)
    if match:
        told = datetime.fromisoformat(match[1]).replace(tzinfo=UTC)
        yield _clock("clock of slurmctld", told.timestamp() - time.time())


def _clock(what: str, away: float) -> Finding:
    if abs(away) <= SKEW:
        return Finding(what, "good", f"within {SKEW:g} s of this machine's")
    return Finding(
        what, "bad", f"{away:+.0f} s from this machine's",
        "Run chrony or ntpd on both: munge refuses what is too old.",
    )  # fmt: skip


def _service(settings: Settings, _slurm: CommandLine) -> Iterator[Finding]:
    where = settings.url or "none configured: one of your own"
    with service() as client:
        yield _release(client, where)
        client.jobs(limit=1)  # refused here if the token is not valid
        ready = client.ready()
    if ready["is_ready"]:
        yield Finding("service", "good", "ready")
    else:
        yield Finding("service", "bad", ready["detail"] or "not ready", "See its log.")


def _release(client: Client, where: str) -> Finding:
    theirs, ours = client.health()["version"], version("hpcplat")
    if theirs.split(".")[:2] == ours.split(".")[:2]:
        return Finding("service", "good", f"{where} ({theirs})")
    return Finding(
        "service", "bad", f"{where} is hpcplat {theirs}, this is {ours}",
        f"pip install 'hpcplat=={theirs}'",
    )  # fmt: skip


def _token(settings: Settings, _slurm: CommandLine) -> Iterator[Finding]:
    if not settings.url.startswith("http"):
        return
    if settings.bearer():
        yield Finding("token", "good", "there is one")
    else:
        yield Finding("token", "bad", "there is none", "hpcplat login URL")


CHECKS: Final[dict[str, Check]] = {
    "versions": _versions,
    "sbatch": _sbatch,
    "Slurm": _daemons,
    "clock of slurmctld": _controller_clock,
    "GPUs": _gpus,
    "accounts": _associations,
    "run folders": _folders,
    "token": _token,
    "service": _service,
}
