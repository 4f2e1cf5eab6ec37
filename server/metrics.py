"""What Prometheus is told; a registry per service, nothing global."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)

_QUICK = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)


class Metrics:
    """Counters and times of one service."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Histogram(
            "hpcplat_request_seconds",
            "Time to answer a request.",
            ("method", "route", "status"),
            buckets=_QUICK,
            registry=self.registry,
        )
        self.slurm = Histogram(
            "hpcplat_slurm_query_seconds",
            "Time that a question to Slurm took.",
            ("query",),
            buckets=_QUICK,
            registry=self.registry,
        )
        self.slurm_failures = Counter(
            "hpcplat_slurm_failures",
            "Questions that Slurm did not answer.",
            ("query",),
            registry=self.registry,
        )
        self.submissions = Counter(
            "hpcplat_submissions",
            "Submissions, by how they went.",
            ("outcome",),
            registry=self.registry,
        )
        self.jobs = Gauge(
            "hpcplat_jobs", "Jobs, by state.", ("state",), registry=self.registry
        )
        self.queue = Gauge(
            "hpcplat_queue_depth",
            "Submissions that wait to be handed to Slurm.",
            registry=self.registry,
        )
        self.look_age = Gauge(
            "hpcplat_reconcile_age_seconds",
            "Time since Slurm was last seen whole.",
            registry=self.registry,
        )

        self.failures = Counter(
            "hpcplat_job_interruptions",
            "Interruptions of trainings that were seen.",
            ("kind",),
            registry=self.registry,
        )
        self.recoveries = Histogram(
            "hpcplat_job_recovery_seconds",
            "Time from a loss to the next step of all ranks, within an attempt.",
            buckets=(0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128, 256),
            registry=self.registry,
        )

    @contextmanager
    def query(self, name: str) -> Iterator[None]:
        """Time a question to Slurm, and count it if it fails."""
        started = time.perf_counter()
        try:
            yield
        except BaseException:
            self.slurm_failures.labels(name).inc()
            raise
        finally:
            self.slurm.labels(name).observe(time.perf_counter() - started)

    def page(self, states: Mapping[str, int], queue: int, look_age: float) -> bytes:
        """Return all of it in Prometheus' text format."""
        self.jobs.clear()
        for state, count in states.items():
            self.jobs.labels(state).set(count)
        self.queue.set(queue)
        self.look_age.set(look_age)
        return generate_latest(self.registry)
