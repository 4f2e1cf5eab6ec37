"""Tables fit the terminal, and what is in them can't steer it."""

from __future__ import annotations

import pytest

from hpcplat.cli.tables import Column, cell_width, cut, plain, table

COLUMNS = (
    Column("ID", lambda row: row["id"]),
    Column("NAME", lambda row: row["name"], shrinks=True),
    Column("STATE", lambda row: row["state"], coloured=True),
    Column("AGE", lambda row: row["age"], rank=2, right=True),
    Column("REASON", lambda row: row["reason"], rank=1, shrinks=True),
)
ROWS = [
    {"id": "01k9x3v7", "name": "a" * 40, "state": "RUNNING", "age": "5m", "reason": ""},
    {
        "id": "01k9x3v8",
        "name": "日本語の名前",
        "state": "FAILED",
        "age": "1234567s",
        "reason": "It ran out of memory, and more words than fit in here.",
    },
]


@pytest.mark.parametrize("width", [200, 80, 60, 40, 30])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    lines = table(ROWS, COLUMNS, width, colour=False).splitlines()
    assert len(lines) == 3
    assert max(map(cell_width, lines)) <= width


def test_columns_go_by_their_rank() -> None:
    narrow = table(ROWS, COLUMNS, 40, colour=False)
    assert "AGE" not in narrow
    assert "STATE" in narrow
    assert narrow.splitlines()[0].startswith("ID")


def test_wide_letters_keep_the_columns_straight() -> None:
    lines = table(ROWS, COLUMNS[:3], 80, colour=False).splitlines()
    places = {cell_width(line[: line.index(word)]) for line, word in
              zip(lines, ("STATE", "RUNNING", "FAILED"), strict=True)}  # fmt: skip
    assert len(places) == 1


def test_a_name_cannot_steer_the_terminal() -> None:
    row = {**ROWS[0], "name": "x\x1b[2J\ny\u202e"}
    shown = table([row], COLUMNS, 80, colour=False)
    assert "\x1b" not in shown
    assert "x?[2J?y?" in shown
    assert plain([row], COLUMNS).count("\n") == 0


def test_colour_is_the_states_alone() -> None:
    shown = table(ROWS, COLUMNS, 80, colour=True)
    assert "\x1b[32mRUNNING\x1b[0m" in shown
    assert "\x1b[31mFAILED\x1b[0m" in shown


def test_plain_lines_are_whole() -> None:
    line = plain(ROWS, COLUMNS).splitlines()[1]
    assert line.split("\t")[4] == ROWS[1]["reason"]


@pytest.mark.parametrize(
    ("text", "width", "cut_text"),
    [("abc", 3, "abc"), ("abcd", 3, "ab…"), ("日本語", 4, "日…"), ("日本", 4, "日本")],
)
def test_cut(text: str, width: int, cut_text: str) -> None:
    assert cut(text, width) == cut_text
