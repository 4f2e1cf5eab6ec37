"""The demo's two lines, and what is printed where there is no terminal."""

from __future__ import annotations

import io

from rich.console import Console

from hpcplat.demo.screen import Screen, nodes_line, progress_line
from hpcplat.demo.watch import Step


def test_progress_says_step_loss_speed_and_time_left() -> None:
    line = progress_line(Step(60, 2.5, 1234.5, 0.0), steps=120, left=75.4)
    assert line.startswith("━" * 10 + "─" * 10)
    assert line.endswith("step 60/120   loss 2.500   1,234 tokens/s   1:15 left")


def test_where_there_is_little_room_the_bar_gives_way() -> None:
    step = Step(60, 2.5, 1234.5, 0.0)
    for room in (56, 60, 64):
        assert len(progress_line(step, 120, 75.4, room)) == room
    assert progress_line(step, 120, 75.4, 40).startswith("step 60/120")


def test_no_line_is_wider_than_the_terminal() -> None:
    output = io.StringIO()
    console = Console(
        file=output, force_terminal=True, width=40, soft_wrap=True, highlight=False
    )
    screen = Screen(1, console)
    screen.say_all(["many words " * 10, "/a/path/" + "x" * 50])
    lines = output.getvalue().splitlines()
    assert max(map(len, lines[:-1])) <= 40
    assert all(line.startswith("      ") for line in lines)
    assert lines[-1].strip() == "/a/path/" + "x" * 50


def test_nodes_with_their_marks() -> None:
    assert nodes_line({"n1": "●●", "n2": "✗"}) == "n1 ●●   n2 ✗"


def test_a_file_gets_a_line_for_every_tenth_step() -> None:
    output = io.StringIO()
    screen = Screen(1, Console(file=output, soft_wrap=True))
    screen.start()
    for number in range(1, 31):
        screen.show(Step(number, 2.5, 100.0, 0.0), 30, None, {"n1": "●"})
    screen.stop()
    lines = output.getvalue().splitlines()
    assert [line.split("step ")[1].split("/")[0] for line in lines] == [
        "10",
        "20",
        "30",
    ]
