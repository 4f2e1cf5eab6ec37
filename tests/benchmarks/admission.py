"""How long admission takes against Slurm's limits, with 1,000 associations.

    python -m tests.benchmarks.admission

Prints the median and the slowest hundredth, in milliseconds, of what admission adds to a
submission: the look into the book, the refusals, and what one would wait for; the same
while a thread makes the book over and over (a service's does each 10 s); and the making
of the book from Slurm's answers, alone.
"""

from __future__ import annotations

import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hpcplat.jobs import spec_of
from hpcplat.slurm.scheduler import Association, LiveJob, Qos, Share
from hpcplat.slurm.states import BaseState
from server.quotabook import QuotaBook
from server.quotas import Book, book_of
from server.site import Site
from server.standing import asked_by, outlook, refuse_hopeless
from tests.server.fakes import PARTITION, FakeSlurm, live_job

ACCOUNTS, USERS, JOBS, LOOKS = 50, 20, 2000, 2000
SPEC = spec_of(
    {
        "name": "b",
        "command": ["true"],
        "resources": {"nodes": 1, "gpus_per_node": 4, "time": "1h"},
    }
)


def lines() -> tuple[Association, ...]:
    """Return 50 accounts of 19 users each, with limits at both levels: 1,000 lines."""
    found = []
    for a in range(ACCOUNTS):
        limits = {"GrpTRES": "gres/gpu=64", "GrpJobs": "500", "MaxWall": "2-00:00:00"}
        parent = "root" if a < 10 else f"team{a % 10}"
        found.append(
            Association(
                "c", f"team{a}", "", "", "1", limits, ("normal",), "normal", parent
            )
        )
        for u in range(USERS - 1):
            own = {"GrpTRES": "gres/gpu=16", "MaxJobs": "50"}
            found.append(
                Association("c", f"team{a}", f"u{u}", "", "1", own, (), "", "")
            )
    return tuple(found)


def jobs() -> tuple[LiveJob, ...]:
    """Return 2,000 live jobs, one in four of which runs."""
    return tuple(
        live_job(
            n,
            BaseState.PENDING if n % 4 else BaseState.RUNNING,
            user=f"u{n % USERS}",
            account=f"team{n % ACCOUNTS}",
            gpus=1,
            nodes=() if n % 4 else ("n1",),
        )
        for n in range(JOBS)
    )


def slurm() -> FakeSlurm:
    """Return a Slurm with all of them, which answers at once."""
    found = FakeSlurm(
        settings={"AccountingStorageEnforce": "associations,limits,qos"},
        lines=lines(),
        qualities=(
            Qos("normal", 0, (), "cluster", frozenset(), {"MaxTRESPU": "cpu=99"}),
        ),
        share_lines=tuple(
            Share("c", each.account, each.user, 1, 0.1, 0, 0.1, 0.5, 1.0)
            for each in lines()
        ),
    )
    found.live = {job.job_id: job for job in jobs()}
    return found


Clock = Callable[[], float]


def timed(
    work: Callable[[], object], times: int, clock: Clock = time.perf_counter
) -> list[float]:
    """Return how long each run of the work took, in milliseconds, sorted."""
    found = []
    for _ in range(times):
        started = clock()
        work()
        found.append((clock() - started) * 1000)
    return sorted(found)


def row(name: str, times: list[float]) -> str:
    """Return a line of the table."""
    p99 = times[min(int(len(times) * 0.99), len(times) - 1)]
    return f"{name:36}{statistics.median(times):>12.3f}{p99:>12.3f}"


def make(known: FakeSlurm) -> Book:
    """Make the book from answers that are there."""
    return book_of(
        known.lines,
        known.qualities,
        [PARTITION],
        known.share_lines,
        tuple(known.live.values()),
        {"n1": "h100"},
        frozenset({"limits"}),
    )


@contextmanager
def made_beside(known: FakeSlurm) -> Iterator[None]:
    """Have a thread make the book without a pause until the block ends."""
    ended = threading.Event()

    def work() -> None:
        while not ended.is_set():
            make(known)

    maker = threading.Thread(target=work)
    maker.start()
    yield
    ended.set()
    maker.join()


def main() -> None:
    """Print the table."""
    sys.setswitchinterval(0.0005)  # the service's
    known = slurm()
    book = QuotaBook(Site(known))

    def admit() -> None:
        current = book.book()
        assert current is not None
        asked = asked_by(SPEC, "u3", "team23", "gpu", 1)
        refuse_hopeless(current, asked, SPEC)
        outlook(current, asked)

    admit()  # the first look asks Slurm
    print(f"{len(lines())} associations, {JOBS} live jobs, {LOOKS} admissions")
    print(f"{'':36}{'median ms':>12}{'p99 ms':>12}")
    print(row("admission, book in memory", timed(admit, LOOKS)))
    print(row("  processor time of its own", timed(admit, LOOKS, time.thread_time)))
    with made_beside(known):
        print(row("  while the book is made beside it", timed(admit, LOOKS)))
    print(row("making the book", timed(lambda: make(known), 20)))
    own = timed(lambda: make(known), 20, time.thread_time)
    print(row("  processor time of its own", own))


if __name__ == "__main__":
    main()
