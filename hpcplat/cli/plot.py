"""`hpcplat plot`: curves in the terminal or as a picture, without a browser."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from hpcplat.cli.runs_found import found_run
from hpcplat.errors import UnavailableError
from hpcplat.tracking.curves import history
from hpcplat.tracking.panels import Panel, Run, View, panels

app = typer.Typer()

Job = Annotated[str, typer.Argument(help="A job's id or name, or its run folder.")]
Names = Annotated[
    list[str] | None,
    typer.Argument(help="Metrics, such as: loss lr grad_norm. None: the first four."),
]
Compare = Annotated[
    list[str] | None, typer.Option(help="Another job to draw beside it; repeatable.")
]
Out = Annotated[
    Path | None, typer.Option("--out", "-o", help="Write a .png, .svg or .pdf instead.")
]
Time = Annotated[bool, typer.Option("--time", help="Hours since the start as x axis.")]
Smooth = Annotated[float, typer.Option(help="Smoothing, from 0 to 0.99.")]
Since = Annotated[int, typer.Option(help="Leave out the steps before this one.")]
Log = Annotated[bool, typer.Option("--log", help="Logarithmic y axis (pictures only).")]


@app.command()
def plot(  # noqa: PLR0913 - one parameter for each option
    job: Job,
    names: Names = None,
    compare: Compare = None,
    out: Out = None,
    time: Time = False,
    smooth: Smooth = 0.0,
    since: Since = 0,
    log: Log = False,
) -> None:
    """Draw what a job logged, over all its attempts, failures and restarts marked."""
    jobs = [job, *(compare or [])]
    wanted = names or []
    found = [found_run(word) for word in jobs]
    runs = [Run(run.label, history(run.folder, wanted)) for run in found]
    view = View(against_time=time, smoothing=smooth, since=since)
    drawn = panels(runs, wanted, view)
    x = "hours" if time else "step"
    if out is None:
        print(_in_terminal(drawn, x))
    else:
        _as_picture(drawn, out, " and ".join(run.label for run in runs), x, log)
        print(out)


def _in_terminal(drawn: list[Panel], x: str) -> str:
    try:
        from hpcplat.tracking import terminal  # heavy, and only this command's
    except ModuleNotFoundError as error:
        raise _missing(error) from error
    width = min(shutil.get_terminal_size((100, 24)).columns, 160)
    return terminal.draw(drawn, width, colored=sys.stdout.isatty(), x=x)


def _as_picture(drawn: list[Panel], out: Path, title: str, x: str, log: bool) -> None:
    try:
        from hpcplat.tracking import picture
    except ModuleNotFoundError as error:
        raise _missing(error) from error
    picture.save(drawn, out, title=title, x=x, log=log)


def _missing(error: ModuleNotFoundError) -> UnavailableError:
    return UnavailableError(
        f"{error.name} is not installed.", "Run: pip install 'hpcplat[plot]'"
    )
