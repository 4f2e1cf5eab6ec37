from __future__ import annotations

from pathlib import Path

from hpcplat.runfolder import RunFolder


def test_no_two_names_are_the_same() -> None:
    folder = RunFolder(Path("/r"))
    own = [n for n, value in vars(RunFolder).items() if isinstance(value, property)]
    paths = {getattr(folder, name) for name in own}
    assert len(paths) == len(own)


def test_attempts_and_rank_logs_are_found_in_order(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert folder.attempts() == ()
    for number in (10, 2, 1):
        folder.attempt(number).root.mkdir(parents=True)
    (folder.logs / "attempt-x").mkdir()
    assert folder.attempts() == (1, 2, 10)
    attempt = folder.attempt(2)
    for rank in (11, 3):
        attempt.rank_log(rank).touch()
    assert attempt.rank_logs() == ((3, attempt.rank_log(3)), (11, attempt.rank_log(11)))


def test_a_task_has_a_run_folder_of_its_own() -> None:
    task = RunFolder(Path("/r")).task(4)
    assert task.events == Path("/r/tasks/4/events.jsonl")
