"""The reference page says what the code says."""

from __future__ import annotations

from pathlib import Path

from hpcplat.slurm.states import TABLE, JobState, has_ended, may_come_back

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "slurm.md"


def states_table() -> str:
    lines = [
        "| state | short | kind | counts as | ended | may come back | the job … |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in TABLE:
        state = JobState(row.base, frozenset({row.word} if row.flag else ()))
        lines.append(
            f"| `{row.word}` | {row.compact or '-'} | {'flag' if row.flag else 'base'}"
            f" | {row.base.value if row.flag else ''} | {_yes(has_ended(state))}"
            f" | {_yes(may_come_back(state))} | {row.meaning} |"
        )
    return "\n".join(lines)


def _yes(value: bool) -> str:
    return "yes" if value else ""


def test_the_table_of_states_is_the_codes() -> None:
    told = PAGE.read_text().split("states.py -->\n")[1].split("<!-- end")[0].strip()
    assert told == states_table()


def test_the_page_names_every_recorded_version() -> None:
    recorded = Path(__file__).parents[2] / "recorded"
    versions = [folder.name for folder in recorded.iterdir() if folder.is_dir()]
    assert len(versions) == 4
    assert all(f"| {version}." in PAGE.read_text() for version in versions)
