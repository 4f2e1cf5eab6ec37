"""Accounts, users and QOS in the accounting database, through sacctmgr."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hpcplat.errors import UnavailableError
from hpcplat.processes import Completed

# Name: priority, whom it may push out, what becomes of those pushed out. ``spot``
# work is cheap and gives way to ``prod``; its jobs go back into the queue.
QOS = {
    "spot": ("Priority=0", "PreemptMode=requeue", "UsageFactor=0.25"),
    "prod": ("Priority=1000", "Preempt=spot"),
    "normal": ("Priority=100",),
}

Sacctmgr = Callable[[Sequence[str]], Completed]


def register(sacctmgr: Sacctmgr, cluster: str, account: str, user: str) -> None:
    """Make the cluster, its QOS, one account and the user's association in it."""
    _do(sacctmgr, ["add", "cluster", cluster])
    for name, options in QOS.items():
        _do(sacctmgr, ["add", "qos", name])
        _do(sacctmgr, ["modify", "qos", name, "set", *options])
    add_account(sacctmgr, account)
    add_user(sacctmgr, user, account)
    # Slurm gives root an account of its own, which would be its default.
    _do(sacctmgr, ["modify", "user", user, "set", f"DefaultAccount={account}"])


def add_account(sacctmgr: Sacctmgr, account: str) -> None:
    """Make an account that may use every QOS; one that is there stays as it is."""
    every = ",".join(sorted(QOS))
    options = [f"QOS={every}", "DefaultQOS=normal", "Fairshare=1"]
    _do(sacctmgr, ["add", "account", account, *options])


def add_user(sacctmgr: Sacctmgr, user: str, account: str) -> None:
    """Let the user run in the account; the first account is the default one."""
    _do(sacctmgr, ["add", "user", user, f"Account={account}", "Fairshare=1"])


def _do(sacctmgr: Sacctmgr, words: list[str]) -> None:
    done = sacctmgr(["-i", *words])
    # sacctmgr exits 1 when there is nothing to change.
    if not done.ok and "othing" not in done.stdout + done.stderr:
        raise UnavailableError(
            f"sacctmgr {' '.join(words)} failed: {done.complaint()}",
            "See the end of slurmdbd's log.",
        )
