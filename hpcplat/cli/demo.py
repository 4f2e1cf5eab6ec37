"""`hpcplat demo`: a GPT trains under a real Slurm, a node dies, nothing is lost."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from hpcplat import cluster
from hpcplat.cluster import Cluster, ClusterSpec
from hpcplat.demo.play import Play
from hpcplat.demo.screen import Screen
from hpcplat.demo.stage import Stage
from hpcplat.demo.training import FEWEST_STEPS, STEPS, Story, story
from hpcplat.errors import ConflictError
from hpcplat.quantities import counted

app = typer.Typer()

STAGE: Final = "demo"  # the folder of all but the cluster, inside the cluster's own
PROGRAM: Final = Path(sys.executable).with_name("hpcplat")


@app.command()
def demo(
    *,
    take_down: Annotated[
        bool, typer.Option("--down", help="Take the demo down again.")
    ] = False,
    environment: Annotated[
        bool, typer.Option("--env", help="Print the exports for your shell.")
    ] = False,
    only_hello: Annotated[
        bool, typer.Option("--hello", help="Only the Slurm and a first GPU job.")
    ] = False,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Train an undisturbed twin too, and compare."),
    ] = False,
    steps: Annotated[
        int,
        typer.Option(min=FEWEST_STEPS, help="How long to train."),
    ] = STEPS,
    folder: Annotated[
        Path | None, typer.Option(help="Where all of it lies.", show_default=False)
    ] = None,
) -> None:
    """Start a Slurm on this machine, train a GPT on it, and cut a node's power.

    All of it stays up for you to try; Ctrl-C takes everything down.
    """
    spec = ClusterSpec(name="demo", folder=folder or Path())
    stage = Stage(spec.folder / STAGE)
    if take_down:
        print("The demo is gone." if _take_down(spec, stage) else "No demo was there.")
        return
    if environment:
        print("\n".join(_exports(spec, stage)))
        return
    options = "" if folder is None else f" --folder {shlex.quote(str(folder))}"
    try:
        told = None if only_hello else story(steps)
        dead = _play(spec, stage, told, verify=verify)
    except BaseException:  # Ctrl-C or an error: a demo leaves nothing behind
        print("hpcplat: taking the demo down (10 s) …", file=sys.stderr, flush=True)
        _take_down(spec, stage)
        raise
    print(_what_next(options, dead))


def _play(
    spec: ClusterSpec, stage: Stage, told: Story | None, *, verify: bool
) -> str | None:
    """Play the acts (the first two alone where no run is told of).

    Returns the node that died on the way, if one did.
    """
    screen = Screen(acts=6 if told else 2)
    screen.act("A Slurm on this machine")
    with Console(stderr=True).status("Starting it (10 s) …"):
        running = _bring_up(spec, stage)
    major, minor = running.layout.version
    count, gpus = len(spec.nodes), spec.nodes[0].gpus
    said = f"Slurm {major}.{minor:02} is up: {counted(count, 'node')} of {gpus} GPUs"
    screen.say_all([f"{said}, the last one a spare."])
    stage.open(running.environment() | {"COLUMNS": str(screen.width)})
    play = Play(running, stage, screen)
    play.hello()
    if told is None:
        return None
    play.service()
    play.dataset()
    run = play.training(told)
    play.report(told, run)
    if verify:
        play.verify(told, run)
    return run.killed.node if run.killed else None


def _bring_up(spec: ClusterSpec, stage: Stage) -> Cluster:
    """Bring the cluster up; what a reboot or a kill left of an earlier one goes first."""
    try:
        return cluster.up(spec)
    except ConflictError:
        if cluster.find(spec.folder).status().works:
            raise  # somebody's, with other settings
        _take_down(spec, stage)
        return cluster.up(spec)


def _take_down(spec: ClusterSpec, stage: Stage) -> bool:
    stage.end_service()
    return cluster.down(spec.folder)


def _exports(spec: ClusterSpec, stage: Stage) -> list[str]:
    """Return a shell's lines after which `hpcplat` and Slurm's commands mean the demo."""
    values = cluster.find(spec.folder).environment() | stage.exports()
    lines = [f"export {name}={shlex.quote(value)}" for name, value in values.items()]
    return [*lines, f'export PATH={shlex.quote(str(PROGRAM.parent))}:"$PATH"']


def _what_next(options: str, dead: str | None) -> str:
    """Return commands to try; the first one's path holds in whatever shell."""
    place = options or " --name demo"
    lines = ["", "All of it is yours to try:"]
    lines += [f'  eval "$({shlex.quote(str(PROGRAM))} demo --env{options})"', ""]
    if dead is None:
        lines += [f"  hpcplat cluster kill-node n2{place}"]
    else:
        lines += [
            "  hpcplat top                  the queue, live",
            "  hpcplat events gpt           what happened, and why",
            "  hpcplat ui gpt               the run in Aim",
            f"  hpcplat cluster revive-node {dead}{place}",
        ]
    return "\n".join([*lines, f"  hpcplat demo --down{options}"])
