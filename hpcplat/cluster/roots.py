"""Folders with another Debian in them, to run the cluster on another Slurm."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import platformdirs

from hpcplat import processes
from hpcplat.cluster.lock import locked
from hpcplat.cluster.packages import PACKAGES
from hpcplat.errors import InvalidError, UnavailableError

# Debian's releases whose packages bring a Slurm that hpcplat is tried on.
SUITES = {"bookworm": "22.05", "trixie": "24.11", "sid": "26.05"}


def default_home() -> Path:
    """Return the folder that the roots are kept in: some 0.7 GB each."""
    return platformdirs.user_cache_path("hpcplat") / "roots"


def make(suite: str, home: Path) -> Path:
    """Return ``home/suite`` with that Debian and its Slurm, made if it is not there.

    Takes root, debootstrap and about a minute. A folder is there only when it is
    whole. Raises InvalidError for an unknown suite, UnavailableError otherwise.
    """
    if suite not in SUITES:
        raise InvalidError(
            f"{suite!r} is no Debian that hpcplat knows.",
            f"Choose one of {', '.join(SUITES)}.",
        )
    root = home / suite
    with locked(home / f".{suite}.lock", limit=900):
        if not root.exists():
            _require_root()
            _debootstrap(suite, root)
    return root


def _require_root() -> None:
    if os.geteuid() != 0:
        raise UnavailableError("debootstrap needs root.", "Run this as root.")


def _debootstrap(suite: str, root: Path) -> None:
    aside = root.with_name(f"{suite}.partial")
    shutil.rmtree(aside, ignore_errors=True)  # what a killed one left
    options = ["--variant=minbase", f"--include={','.join(PACKAGES)}"]
    try:
        done = processes.run(["debootstrap", *options, suite, str(aside)], timeout=900)
    except processes.ProgramMissingError as error:
        raise UnavailableError(
            "debootstrap was not found.", "Run as root: apt-get install debootstrap"
        ) from error
    if not done.ok:
        raise UnavailableError(
            f"debootstrap {suite} failed: {done.complaint()}",
            f"See {aside}/debootstrap/debootstrap.log.",
        )
    aside.rename(root)
