"""Calls of sbatch that the service has not heard of yet: told when somebody looks."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from hpcplat.client import Client
from hpcplat.dropin.spool import Spool
from hpcplat.errors import HpcplatError
from hpcplat.ids import find_key
from hpcplat.settings import own_environment
from hpcplat.slurm.commandline import CommandLine

MOST: Final = 100  # calls told at once: 64 KiB of script each, at most
SETTLED: Final = 120.0  # seconds after which an sbatch is surely not running any more
FORGOTTEN: Final = 86_400.0  # seconds after which nobody looks for a lost one


def deliver(client: Client, spool: Spool) -> None:
    """Tell the service what the folder holds; what it has is removed from there."""
    records = list(spool.records())
    if not records:
        return
    _find_lost(records)
    told = [record for record in records if record.get("job_id")]
    for start in range(0, len(told), MOST):
        part = told[start : start + MOST]
        for record, answer in zip(part, client.adopt(part), strict=True):
            _settle(spool, record, answer)
    for record in records:
        if _age(record) > FORGOTTEN and not record.get("job_id"):
            spool.remove(record["key"])


def _settle(spool: Spool, record: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
    if answer["job"] is None and _age(record) < SETTLED:
        return  # accounting may be late
    if answer["job"] is None:
        print(f"hpcplat: not tracked: {answer['refusal']}", file=sys.stderr)
    spool.remove(record["key"])


def _find_lost(records: Sequence[dict[str, Any]]) -> None:
    """Find the numbers of calls whose end nobody wrote down, by their keys."""
    lost = {
        record["key"]: record
        for record in records
        if not record.get("job_id") and _age(record) > SETTLED
    }
    if not lost:
        return
    slurm = CommandLine(environ=own_environment())
    since = datetime.fromtimestamp(
        min(record["created_at"] for record in lost.values()), UTC
    ) - timedelta(minutes=5)
    try:
        found = [(job.comment, job.address) for job in slurm.jobs(finished=True)]
        found += [(job.comment, job.address) for job in slurm.history(since)]
    except HpcplatError:
        return  # the next look may find them
    for comment, address in found:
        record = lost.get(find_key(comment) or "")
        number = address.replace("+", "_").split("_")[0]
        if record is not None and number.isdecimal():
            record["job_id"] = int(number)


def _age(record: Mapping[str, Any]) -> float:
    return time.time() - float(record["created_at"])
