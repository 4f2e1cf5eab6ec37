"""The demo itself: the acts in their order, told as they happen."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hpcplat.cluster import Cluster
from hpcplat.demo import hello
from hpcplat.demo.corpus import write_corpus
from hpcplat.demo.report import (
    PlainSlurm,
    Recovery,
    first_new_step_after,
    recovery_lines,
    redone_steps,
    weights_digest,
)
from hpcplat.demo.screen import DEAD, STANDS_BY, TRAINS, Screen
from hpcplat.demo.stage import Stage
from hpcplat.demo.training import RANKS_PER_NODE, Story, spec_text, undisturbed
from hpcplat.demo.watch import Watch
from hpcplat.errors import UnavailableError
from hpcplat.quantities import spoken_size
from hpcplat.slurm.commandline import CommandLine

LOOK: Final = 0.1  # seconds between two looks into the run folder
PATIENCE: Final = 900.0  # seconds that a training may take
TOLD: Final = frozenset(
    {
        "node-lost",
        "rank-failed",
        "recovering",
        "resumed",
        "recovered",
        "training-stopped",
        "checkpoint-failed",
        "checkpoint-rejected",
    }
)


@dataclass(frozen=True, slots=True)
class Run:
    """A training that has ended well."""

    job: str
    folder: Path
    watch: Watch
    killed: Kill | None


@dataclass(frozen=True, slots=True)
class Kill:
    """A node that was killed, and when (Unix time)."""

    node: str
    time: float


class Play:
    """Plays the acts on a stage; every act goes through the public commands."""

    def __init__(self, cluster: Cluster, stage: Stage, screen: Screen) -> None:
        self._cluster, self._stage, self._screen = cluster, stage, screen

    def hello(self) -> None:
        """Run a GPU job over two nodes, by sbatch alone."""
        self._screen.act("A GPU job over two of its nodes")
        self._screen.say_all(hello.run(self._cluster, self._stage.paths.root))

    def service(self) -> None:
        """Start the service."""
        self._screen.act("The service: API, reconcile loop, Aim")
        self._stage.start_service()
        self._screen.say_all([f"It listens on {self._stage.paths.socket}."])

    def dataset(self) -> None:
        """Make a dataset of real text."""
        self._screen.act("A dataset of real text, in Zarr shards")
        text = self._stage.paths.corpus
        files, size = write_corpus(text)
        words = ["--name", "stdlib", "--split", "validation=0.02"]
        said = self._stage.hpcplat("data", "ingest", "--text", text, *words).stdout
        library = f"The Python standard library: {files} files, {spoken_size(size)}."
        self._screen.say_all([library, f"Version {said.split()[-1]}."])

    def training(self, story: Story) -> Run:
        """Train; a node dies on the way."""
        self._screen.act(f"A GPT, {story.layout}, over {story.nodes} nodes and a spare")
        return self._train(story)

    def report(self, story: Story, run: Run) -> None:
        """Say what it came to."""
        self._screen.act("What it came to")
        plot = ["plot", run.job, "loss"]
        self._stage.hpcplat(*plot, "--out", self._stage.paths.picture)
        self._screen.say(self._stage.hpcplat(*plot).stdout.rstrip())
        if run.killed is not None:
            found = self._recovery(run, run.killed)
            self._screen.say_all(recovery_lines(found, self._plain_slurm()))
        digest = self._digest(run)[:16]
        state = f"Weights and optimizer after step {story.steps}: {digest}…"
        self._screen.say_all([state, f"The curve: {self._stage.paths.picture}"])

    def verify(self, story: Story, run: Run) -> None:
        """Train the same without a failure, and compare."""
        twin = self._train(undisturbed(story))
        mine, other = self._digest(run), self._digest(twin)
        self._screen.say_all([f"Undisturbed twin: {other[:16]}…"])
        if mine != other:
            raise UnavailableError(
                "The run with a failure did not end with the undisturbed run's bits.",
                f"Keep {run.folder} and {twin.folder}, and report this.",
            )
        self._screen.say_all(["The same bits: nothing was lost."])

    def _train(self, story: Story) -> Run:
        gpu_type = self._cluster.spec.nodes[0].gpu_type
        self._stage.paths.spec.write_text(spec_text(story, gpu_type))
        job = self._stage.answer("submit", self._stage.paths.spec)
        said = f"Job {job['id']}: `hpcplat submit {self._stage.paths.spec.name}`"
        self._screen.say_all([said])
        watch = Watch(Path(job["folder"]), story.steps)
        killed = self._follow(job["id"], story, watch)
        return Run(job["id"], watch.folder, watch, killed)

    def _follow(self, job: str, story: Story, watch: Watch) -> Kill | None:
        killed: Kill | None = None
        nodes: Sequence[str] = ()
        self._screen.start()
        try:
            end = time.monotonic() + PATIENCE
            while not self._is_over(job, watch):
                newest = watch.newest()
                if newest is not None:
                    left = watch.seconds_left(newest)
                    nodes = nodes or self._nodes_of(job)
                    marks = _marks(nodes, watch)
                    self._screen.show(newest, story.steps, left, marks)
                    is_time = story.kill_after and newest.number >= story.kill_after
                    if killed is None and is_time:
                        killed = self._kill(watch, newest.number)
                if time.monotonic() > end:
                    raise UnavailableError(
                        f"The training has not ended within {PATIENCE:g} s.",
                        f"See {watch.folder}.",
                    )
                time.sleep(LOOK)
        finally:
            self._screen.stop()
        return killed

    def _is_over(self, job: str, watch: Watch) -> bool:
        """Tell the news; True once the attempt has ended well."""
        for event in watch.new_events():
            if event.kind in TOLD:
                self._screen.say_all([f"  {event.what}"])
            if event.kind == "attempt-ended":
                return self._ended_well(job)
        return False

    def _ended_well(self, job: str) -> bool:
        done = self._stage.try_hpcplat("wait", job, "--timeout", "60")
        if not done.ok:
            told = self._stage.answer("show", job)
            raise UnavailableError(
                f"The training is {told['state']}: {told['reason']}",
                f"See `hpcplat logs {job}`.",
            )
        return True

    def _kill(self, watch: Watch, step: int) -> Kill:
        # The last working node is never the batch host, which is the first.
        node = watch.working[-1]
        self._screen.say_all([f"  Step {step}: the power of {node} is cut."])
        moment = time.time()  # not a command's start before it: the clock runs
        self._cluster.kill_node(node)
        return Kill(node, moment)

    def _nodes_of(self, job: str) -> Sequence[str]:
        """Return the job's nodes, those that stand by included."""
        attempts = self._stage.answer("show", job)["attempts_list"]
        return attempts[-1]["nodes"] if attempts else ()

    def _recovery(self, run: Run, killed: Kill) -> Recovery:
        watch = run.watch
        lost, resumed = watch.of_kind("node-lost"), watch.of_kind("resumed")
        logged = watch.logged()
        newest = first_new_step_after(logged, lost.time if lost else killed.time)
        if lost is None or resumed is None or newest is None:
            raise UnavailableError(
                "The run does not tell how it recovered.", f"See {run.folder}."
            )
        redone, same_bits = redone_steps(logged)
        return Recovery(
            node=killed.node,
            spare=watch.working[-1],
            source=resumed.what,
            detected=lost.time - killed.time,
            training=newest - killed.time,
            redone=redone,
            same_bits=same_bits,
        )

    def _plain_slurm(self) -> PlainSlurm:
        slurm = CommandLine(
            self._cluster.folder.slurm_conf, environ=self._cluster.environment()
        )
        timeout, _unit = slurm.config()["SlurmdTimeout"].split()  # "300 sec"
        return PlainSlurm(
            timeout=float(timeout),
            delay=float(self._cluster.spec.requeue_delay),
        )

    def _digest(self, run: Run) -> str:
        manifest: dict[str, Any] = self._stage.answer("ckpt", "show", run.folder)
        return weights_digest(manifest)


def _marks(nodes: Sequence[str], watch: Watch) -> Mapping[str, str]:
    marks = {}
    for node in nodes:
        mark = TRAINS * RANKS_PER_NODE if node in watch.working else STANDS_BY
        marks[node] = DEAD if node in watch.dead else mark
    return marks
