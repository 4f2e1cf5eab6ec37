"""Submission through slurmrestd: what goes wrong before a POST is surely not sent."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from hpcplat.errors import ForbiddenError, InvalidError, UnavailableError
from hpcplat.runfiles import RunFile
from hpcplat.runfolder import RunFolder
from hpcplat.slurm.scheduler import Submission, SubmissionDoubtError
from server.identity import restjob, throughrest
from server.identity.throughrest import RestSite, RestSlurm, signing_key

USER = "nobody"
SPEAKS: dict[str, Any] = {
    "paths": {"/slurm/v0.0.38/job/submit": {}, "/slurm/v0.0.40/job/submit": {}}
}
Answer = Callable[[httpx.Request], httpx.Response]


class FakeRest:
    """A slurmrestd that answers as it is told, and notes what was posted."""

    def __init__(self) -> None:
        self.described: Answer = lambda _: httpx.Response(200, json=SPEAKS)
        self.taken: Answer = lambda _: httpx.Response(200, json={"job_id": 7})
        self.posts: list[httpx.Request] = []
        self.asked = 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            self.asked += 1
            return self.described(request)
        self.posts.append(request)
        return self.taken(request)


@pytest.fixture
def slurmrestd() -> FakeRest:
    return FakeRest()


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.write_bytes(b"k" * 32)
    path.chmod(0o600)
    return path


@pytest.fixture
def rest(key: Path, slurmrestd: FakeRest, monkeypatch: pytest.MonkeyPatch) -> RestSlurm:
    made = RestSlurm(None, environ={}, site=RestSite("http://slurm", key))
    transport = httpx.MockTransport(slurmrestd)
    client = httpx.Client(base_url="http://slurm", transport=transport)
    monkeypatch.setattr(made, "_http", client)
    return made


def filled(rest: RestSlurm, script: str = "#!/bin/bash\n") -> Submission:
    folder = RunFolder(Path("/runs/1"))
    rest.fill(folder, [RunFile(folder.script, script)], USER)
    return Submission(script, str(folder.root), user=USER)


def saying(status: int, content: Any = None) -> Answer:  # noqa: ANN401 - any JSON
    return lambda _: httpx.Response(status, json=content)


def not_sent(rest: RestSlurm) -> UnavailableError:
    with pytest.raises(UnavailableError) as caught:
        rest.submit(filled(rest))
    assert not isinstance(caught.value, SubmissionDoubtError)
    return caught.value


def test_a_job_is_posted_once_in_the_newest_version(
    rest: RestSlurm, slurmrestd: FakeRest
) -> None:
    assert rest.submit(filled(rest)).job_id == 7
    assert rest.submit(filled(rest)).job_id == 7
    assert [p.url.path for p in slurmrestd.posts] == ["/slurm/v0.0.40/job/submit"] * 2
    assert slurmrestd.asked == 1


def test_slow_answers_have_one_deadline_together(
    rest: RestSlurm, slurmrestd: FakeRest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(throughrest, "SUBMIT_WITHIN", 0.3)
    monkeypatch.setattr(throughrest, "LEAST_LEFT", 0.2)

    def slowly(_request: httpx.Request) -> httpx.Response:
        time.sleep(0.15)
        return httpx.Response(200, json=SPEAKS)

    slurmrestd.described = slowly
    assert "nothing was sent" in str(not_sent(rest))
    assert slurmrestd.posts == []
    # The version is known by now; a slow 404 must not lead to a POST that is too late.
    slurmrestd.taken = lambda request: (slowly(request), httpx.Response(404))[1]
    not_sent(rest)
    assert len(slurmrestd.posts) == 1
    assert slurmrestd.asked == 1


def test_no_request_waits_longer_than_what_is_left(
    rest: RestSlurm, slurmrestd: FakeRest
) -> None:
    rest.submit(filled(rest))
    allowed = slurmrestd.posts[0].extensions["timeout"]
    assert allowed["read"] <= throughrest.SUBMIT_WITHIN
    # A claim counts as dead 100 s after it, and a worker may begin 20 s after it.
    phases = sum(allowed[name] for name in ("connect", "write", "pool"))
    assert throughrest.SUBMIT_WITHIN + phases < 80


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(200, text="<html>hello</html>"),
        httpx.Response(200, json=["paths"]),
        httpx.Response(200, json={"info": {}}),
        httpx.Response(200, json={"paths": None}),
        httpx.Response(200, json={"paths": {"/slurm/v0.0.40/jobs": {}}}),
        httpx.Response(200, content=b"\xff"),
        httpx.Response(401),
    ],
)
def test_who_does_not_say_what_it_speaks_gets_nothing(
    rest: RestSlurm, slurmrestd: FakeRest, answer: httpx.Response
) -> None:
    slurmrestd.described = lambda _: answer
    not_sent(rest)
    assert slurmrestd.posts == []


def test_a_key_that_can_not_be_used_is_no_fault_of_the_job(
    rest: RestSlurm, slurmrestd: FakeRest, key: Path
) -> None:
    key.chmod(0o644)
    assert "Others can read the key" in str(not_sent(rest))
    key.chmod(0o600)
    key.write_bytes(b"short")
    assert "bytes" in str(not_sent(rest))
    key.unlink()
    assert "can't be read" in str(not_sent(rest))
    key.mkdir()
    assert "can't be read" in str(not_sent(rest))
    assert slurmrestd.posts == []


def test_at_the_start_such_a_key_is_refused(key: Path) -> None:
    key.unlink()
    with pytest.raises(InvalidError, match="can't be read"):
        signing_key(key)


def test_a_path_that_is_gone_is_asked_for_once_more(
    rest: RestSlurm, slurmrestd: FakeRest
) -> None:
    answers = [httpx.Response(404), httpx.Response(200, json={"job_id": 8})]
    slurmrestd.taken = lambda _: answers.pop(0)
    assert rest.submit(filled(rest)).job_id == 8
    slurmrestd.taken = saying(404)
    not_sent(rest)
    assert len(slurmrestd.posts) == 4


@pytest.mark.parametrize(
    ("status", "words", "error"),
    [
        (401, "Authentication failure", UnavailableError),
        (401, "Access/permission denied", UnavailableError),
        (403, "", UnavailableError),
        (403, "Access/permission denied", ForbiddenError),
        (404, "Invalid partition name specified", InvalidError),
        (400, "What is this?", InvalidError),
        (500, "Protocol authentication error", SubmissionDoubtError),
        (502, "", SubmissionDoubtError),
    ],
)
def test_only_what_slurm_says_of_the_job_is_refused_for_good(
    rest: RestSlurm,
    slurmrestd: FakeRest,
    status: int,
    words: str,
    error: type[Exception],
) -> None:
    content = {"errors": [{"error": words}]} if words else None
    slurmrestd.taken = saying(status, content)
    with pytest.raises(error) as caught:
        rest.submit(filled(rest))
    assert type(caught.value) is error


def test_an_answer_with_a_job_is_never_a_refusal(
    rest: RestSlurm, slurmrestd: FakeRest
) -> None:
    errors = [{"error": "Job violates accounting/QOS policy"}]
    slurmrestd.taken = saying(200, {"job_id": 9, "errors": errors})
    with pytest.raises(SubmissionDoubtError, match="job 9"):
        rest.submit(filled(rest))


@pytest.mark.parametrize(
    ("fault", "is_doubt"),
    [
        (httpx.ConnectError("refused"), False),
        (httpx.PoolTimeout("none free"), False),
        (httpx.ReadTimeout("slow"), True),
        (httpx.DecodingError("garbled"), True),
    ],
)
def test_a_fault_on_the_way_is_a_doubt_once_it_may_have_been_sent(
    rest: RestSlurm, slurmrestd: FakeRest, fault: httpx.RequestError, is_doubt: bool
) -> None:
    def fail(_request: httpx.Request) -> httpx.Response:
        raise fault

    slurmrestd.taken = fail
    with pytest.raises(UnavailableError) as caught:
        rest.submit(filled(rest))
    assert isinstance(caught.value, SubmissionDoubtError) is is_doubt


def test_parts_in_one_folder_do_not_get_each_others_files(
    rest: RestSlurm, slurmrestd: FakeRest
) -> None:
    first = filled(rest, "#!/bin/bash\n# part 0\n")
    other = threading.Thread(target=filled, args=(rest, "#!/bin/bash\n# part 1\n"))
    other.start()
    other.join()
    rest.submit(first)
    folder = RunFolder(Path("/runs/1"))
    files = [RunFile(folder.script, first.script)]
    body = json.loads(slurmrestd.posts[0].read())
    assert body["script"] == restjob.carrying(files, folder)


def test_files_of_another_submission_are_never_sent(
    rest: RestSlurm, slurmrestd: FakeRest
) -> None:
    too_late = filled(rest, "#!/bin/bash\n# never submitted\n")
    filled(rest)
    with pytest.raises(UnavailableError):
        rest.submit(too_late)
    assert slurmrestd.posts == []


def test_root_submits_nothing(rest: RestSlurm, slurmrestd: FakeRest) -> None:
    asked = filled(rest)
    root = Submission(asked.script, asked.folder, user="root")
    with pytest.raises(ForbiddenError):
        rest.submit(root)
    assert slurmrestd.posts == []
