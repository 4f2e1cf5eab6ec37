"""The HTTP API over a small fake Slurm: answers, refusals, and who may do what."""

from __future__ import annotations

import json
import os
import pwd
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from hpcplat.embedding import EmbeddedTransport
from hpcplat.errors import InvalidError, UnavailableError
from hpcplat.slurm.scheduler import SubmissionDoubtError
from hpcplat.tracking.aimlink import aim_path
from server.app import create_app
from server.database import Database
from server.queries import jobs
from server.secretkeeping import SecretKeeper
from server.service import Service
from server.states import State
from tests.server.fakes import FakeSlurm, raising

SPEC: dict[str, Any] = {
    "name": "hello",
    "resources": {"nodes": 1, "gpus_per_node": 2, "gpu_type": "h100", "time": "10m"},
    "command": ["true"],
}
ME = pwd.getpwuid(os.geteuid()).pw_name


@pytest.fixture
def service(database_url: str, slurm: FakeSlurm, tmp_path: Path) -> Service:
    return Service(Database(database_url), slurm, runs=str(tmp_path / "runs"))


class Seen(httpx.BaseTransport):
    """A running app, as the Unix user with that number sees it (None: a stranger)."""

    def __init__(self, transport: EmbeddedTransport, uid: int | None) -> None:
        self.transport = transport
        self.uid = uid

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return self.transport.handle_request_of(request, self.uid)


@pytest.fixture
def connect(service: Service) -> Iterator[Callable[..., httpx.Client]]:
    """Make clients of the service."""
    transport = EmbeddedTransport(create_app(service, threads=False), os.geteuid())

    def make(uid: int | None = os.geteuid(), **headers: str) -> httpx.Client:
        return httpx.Client(
            base_url="http://test/api/v1",
            transport=Seen(transport, uid),
            headers=headers,
        )

    yield make
    transport.close()


@pytest.fixture
def api(connect: Callable[..., httpx.Client]) -> httpx.Client:
    return connect()


def submit(
    api: httpx.Client,
    headers: dict[str, str] | None = None,
    **changes: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    spec = {**SPEC, **changes}
    answer = api.post("/jobs", json={"spec": spec}, headers=headers or {})
    assert answer.status_code in {200, 201}, answer.text
    return answer.json()


def test_a_job_is_submitted_seen_and_ends(api: httpx.Client, slurm: FakeSlurm) -> None:
    job = submit(api)
    assert job["state"] == "PENDING"  # embedded: there is nobody else to submit it
    assert job["user"] == ME
    assert job["gpus"] == 2
    slurm.run(job["slurm_job_id"])
    found = api.get(f"/jobs/{job['id']}", params={}).json()
    assert found["spec"]["name"] == "hello"
    assert found["aim"] == aim_path(job["id"], "/aim/default")


def test_the_location_of_a_new_job_is_told(api: httpx.Client) -> None:
    answer = api.post("/jobs", json={"spec": SPEC})
    assert answer.status_code == 201
    assert answer.headers["location"] == f"/api/v1/jobs/{answer.json()['id']}"


def test_the_same_key_makes_one_job(api: httpx.Client, slurm: FakeSlurm) -> None:
    key = {"Idempotency-Key": "k1"}
    first = submit(api, key)
    again = api.post("/jobs", json={"spec": SPEC}, headers=key)
    assert again.status_code == 200
    assert again.headers["idempotency-replayed"] == "true"
    assert again.json()["id"] == first["id"]
    assert len(slurm.submitted) == 1


def test_the_same_key_for_another_job_is_a_conflict(api: httpx.Client) -> None:
    key = {"Idempotency-Key": "k1"}
    submit(api, key)
    other = api.post("/jobs", json={"spec": {**SPEC, "name": "x"}}, headers=key)
    assert other.status_code == 409
    assert other.headers["content-type"] == "application/problem+json"


def test_a_dry_run_shows_the_script_and_makes_nothing(
    api: httpx.Client, slurm: FakeSlurm
) -> None:
    answer = api.post("/jobs", json={"spec": SPEC}, params={"dry_run": True})
    assert answer.status_code == 200
    shown = answer.json()
    assert "#SBATCH --gres=gpu:h100:2" in shown["script"]
    assert shown["expected_start"] is not None
    assert api.get("/jobs").json()["jobs"] == []
    assert not Path(shown["folder"]).exists()
    assert slurm.submitted == []


def test_the_script_that_was_sent_is_shown(api: httpx.Client, slurm: FakeSlurm) -> None:
    job = submit(api)
    shown = api.get(f"/jobs/{job['id']}/script").text
    assert shown == slurm.submitted[0].script


def test_waiting_tells_of_slurms_refusal(api: httpx.Client, slurm: FakeSlurm) -> None:
    slurm.faults.append(raising(InvalidError("Invalid qos specification.", "Mend it.")))
    answer = api.post("/jobs", json={"spec": SPEC}, params={"wait": 5})
    problem = answer.json()
    assert answer.status_code == 422
    assert problem["detail"] == "Invalid qos specification. Mend it."
    job = api.get(f"/jobs/{problem['job_id']}").json()
    assert job["state"] == "FAILED"


def test_waiting_ends_with_its_time(api: httpx.Client, slurm: FakeSlurm) -> None:
    slurm.faults.append(raising(SubmissionDoubtError("No reply.")))
    answer = api.post("/jobs", json={"spec": SPEC}, params={"wait": 0.2})
    assert answer.status_code == 201
    assert answer.json()["state"] == "SUBMITTING"


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"resources": {"gpus_per_node": 1, "gpu_type": "h10"}}, "spec.resources.gpu_type", "h100"),
        ({"resources": {"gpus_per_node": 9}}, "spec.resources.gpus_per_node", "at most 4"),
        ({"resources": {"nodes": 3}}, "spec.resources.nodes", "at most 2"),
        ({"resources": {"spare_nodes": 2}}, "spec.resources.nodes", "at most 2"),
        ({"resources": {"time": "13h"}}, "spec.resources.time", "at most 12:00:00"),
        ({"resources": {"cpus_per_task": 17}}, "spec.resources.cpus_per_task", "at most 16"),
        ({"resources": {"memory": "1T"}}, "spec.resources.memory", "at most"),
        ({"resources": {"partition": "gpx"}}, "spec.resources.partition", "gpu"),
        ({"command": ["python", "/usr/none.py"]}, "spec.command", "Check the name"),
        ({"name": "bell\a"}, "spec.name", "Leave it out"),
        ({"resources": {"gpus": 1}}, "spec.resources.gpus", "nearest is gpu_type"),
        ({"parallelism": {"tensor": 3}}, "spec.parallelism", ""),
    ],
)  # fmt: skip
def test_what_can_never_run_is_refused_by_field(
    api: httpx.Client,
    slurm: FakeSlurm,
    changes: dict[str, Any],
    field: str,
    words: str,
) -> None:
    answer = api.post("/jobs", json={"spec": {**SPEC, **changes}})
    problem = answer.json()
    assert answer.status_code == 422, problem
    told = {error["field"]: error["remedy"] for error in problem["errors"]}
    assert field in told
    assert words in told[field]
    assert "\n" not in told[field]
    assert slurm.submitted == []


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 422),
        (b"[]", 422),
        (b"{}", 422),
        (b'{"spec": []}', 422),
        (b"\xff\xfe", 422),
        (b'{"spec": {"name": "a", "name": "b"}}', 422),
        (b'{"spec": ' + b'{"a":' * 100 + b"1" + b"}" * 100 + b"}", 422),
        (b'{"spec": {"name": "' + b"x" * 11_000_000 + b'"}}', 413),
    ],
)
def test_a_body_that_is_none_is_refused(
    api: httpx.Client, body: bytes, status: int
) -> None:
    answer = api.post("/jobs", content=body)
    assert answer.status_code == status
    assert answer.json()["detail"]


def test_unknown_fields_beside_the_spec_are_refused(api: httpx.Client) -> None:
    answer = api.post("/jobs", json={"spec": SPEC, "secret": {}})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "secret"


@pytest.mark.parametrize(
    ("path", "query", "what", "remedy"),
    [
        (
            "/usage",
            {"since": "7d"},
            "since: '7d' is not a date.",
            "Write 2026-01-31, or 2026-01-31T12:00:00Z.",
        ),
        (
            "/usage",
            {"since": "2026-13-45"},
            "since: '2026-13-45' is not a date.",
            "Write 2026-01-31, or 2026-01-31T12:00:00Z.",
        ),
        ("/usage", {}, "since: It is missing.", "Give it."),
        *(
            (
                "/usage",
                {"since": since},
                f"{since[:10]} is before Slurm's time begins.",
                "Give a since of 1970-01-02 or later.",
            )
            for since in ("0001-01-01", "0001-01-01T00:00:00+14:00", "1970-01-01")
        ),
        (
            "/jobs/1m8qtnc9x78n5jqa/logs",
            {"rank": "9999999"},
            "rank: '9999999' is above the limit 1000000.",
            "The nearest that would do is 1000000.",
        ),
    ],
)
def test_a_query_that_cannot_be_is_told_with_its_remedy(
    api: httpx.Client, path: str, query: dict[str, str], what: str, remedy: str
) -> None:
    answer = api.get(path, params=query)
    assert answer.status_code == 422
    assert (answer.json()["detail"], answer.json()["remedy"]) == (what, remedy)


def test_secrets_go_to_the_run_folder_alone(
    api: httpx.Client, slurm: FakeSlurm, service: Service
) -> None:
    spec = {**SPEC, "environment": {"secrets": {"TOKEN": "env:MY_TOKEN"}}}
    without = api.post("/jobs", json={"spec": spec})
    assert without.status_code == 422
    assert without.json()["errors"][0]["field"] == "secrets.TOKEN"
    answer = api.post(
        "/jobs", json={"spec": spec, "secrets": {"TOKEN": "s3cr3t-value"}}
    )
    job = answer.json()
    kept = Path(job["folder"]) / "secrets.json"
    assert json.loads(kept.read_text()) == {"TOKEN": "s3cr3t-value"}
    assert kept.stat().st_mode & 0o777 == 0o600
    assert "s3cr3t-value" not in slurm.submitted[0].script
    assert "s3cr3t-value" not in api.get(f"/jobs/{job['id']}").text


def end(service: Service, job_id: str) -> None:
    with service.database.write() as session:
        jobs.locked(session, job_id).state = State.CANCELLED


def secretive(api: httpx.Client) -> tuple[str, Path]:
    spec = {**SPEC, "environment": {"secrets": {"TOKEN": "env:MY_TOKEN"}}}
    asked = {"spec": spec, "secrets": {"TOKEN": "s3cr3t-value"}}
    job = api.post("/jobs", json=asked).json()
    return job["id"], Path(job["folder"]) / "secrets.json"


def test_secrets_are_wiped_when_the_job_is_over(
    api: httpx.Client, service: Service
) -> None:
    job_id, kept = secretive(api)
    keeper = service.secret_keeper
    assert keeper.wipe_ended("fake") == 0
    end(service, job_id)
    assert keeper.wipe_ended("elsewhere") == 0
    assert keeper.wipe_ended("fake") == 1
    assert json.loads(kept.read_text()) == {}
    assert keeper.wipe_ended("fake") == 0


def test_a_run_folder_that_was_removed_does_not_come_back(
    api: httpx.Client, service: Service
) -> None:
    job_id, kept = secretive(api)
    shutil.rmtree(kept.parent)
    end(service, job_id)
    assert service.secret_keeper.wipe_ended("fake") == 1
    assert not kept.parent.exists()


def test_secrets_of_jobs_that_are_not_made_after_all_do_not_stay(
    api: httpx.Client, service: Service
) -> None:
    spec = {**SPEC, "environment": {"secrets": {"TOKEN": "env:MY_TOKEN"}}}
    after = [{"job": "0123456789abcdef", "after": "ok"}]  # that there is not
    first = {"spec": spec, "secrets": {"TOKEN": "s3cr3t-value"}}
    bulk = {"jobs": [first, {"spec": {**SPEC, "dependencies": after}}]}
    assert api.post("/jobs/bulk", json=bulk).status_code == 404
    (kept,) = Path(service.runs).rglob("secrets.json")
    assert json.loads(kept.read_text()) == {}


def test_secrets_that_can_t_be_wiped_are_told_once(
    api: httpx.Client, service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise UnavailableError("sudo is away.", "Mend it.")

    job_id, _ = secretive(api)
    end(service, job_id)
    keeper = SecretKeeper(service.database, refuse, service.submits_as)
    assert keeper.wipe_ended("fake") == keeper.wipe_ended("fake") == 0
    assert caplog.text.count("sudo is away.") == 1


def test_many_jobs_in_one_request(api: httpx.Client, slurm: FakeSlurm) -> None:
    bulk = {"jobs": [{"spec": {**SPEC, "name": f"j{n}"}} for n in range(25)]}
    answer = api.post("/jobs/bulk", json=bulk, headers={"Idempotency-Key": "b"})
    again = api.post("/jobs/bulk", json=bulk, headers={"Idempotency-Key": "b"})
    assert answer.status_code == 201
    assert again.json() == answer.json()
    listed = api.get("/jobs").json()["jobs"]
    assert [job["id"] for job in reversed(listed)] == sorted(answer.json()["ids"])
    assert len(slurm.submitted) == 25


def test_one_bad_job_of_many_refuses_all(api: httpx.Client, slurm: FakeSlurm) -> None:
    bad = {**SPEC, "resources": {"nodes": "x"}}
    answer = api.post("/jobs/bulk", json={"jobs": [{"spec": SPEC}, {"spec": bad}]})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "jobs.1.spec.resources.nodes"
    assert api.get("/jobs").json()["jobs"] == []
    assert slurm.submitted == []


def test_lists_are_filtered_and_paged(api: httpx.Client, slurm: FakeSlurm) -> None:
    ids = [submit(api, name=f"job{n % 2}")["id"] for n in range(7)]
    pages: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = api.get("/jobs", params={"limit": 3, **cursor}).json()
        pages.extend(job["id"] for job in page["jobs"])
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert pages == sorted(ids, reverse=True)

    def names(**params: Any) -> set[str]:  # noqa: ANN401
        found = api.get("/jobs", params=params).json()["jobs"]
        return {job["name"] for job in found}

    assert names(name="job1") == {"job1"}
    assert names(state="RUNNING") == set()
    assert names(state=["RUNNING", "PENDING"]) == {"job0", "job1"}
    assert names(user="nobody-here") == set()
    assert names(since="2999-01-01T00:00:00") == set()
    assert names(workspace="default", kind="command") == {"job0", "job1"}


def test_ids_may_be_shortened_while_that_is_clear(api: httpx.Client) -> None:
    job = submit(api)
    assert api.get(f"/jobs/{job['id'][:15]}").json()["id"] == job["id"]
    submit(api)
    both = api.get(f"/jobs/{job['id'][:4]}")
    assert both.status_code == 404
    assert "several jobs" in both.json()["detail"]


def test_a_job_that_never_was_is_not_found(api: httpx.Client) -> None:
    for path in ("", "/events", "/attempts", "/logs", "/script"):
        answer = api.get(f"/jobs/0000000000000000{path}")
        assert answer.status_code == 404
        assert answer.headers["content-type"] == "application/problem+json"


def test_cancelling(api: httpx.Client, slurm: FakeSlurm) -> None:
    job = submit(api)
    answer = api.post(f"/jobs/{job['id']}/cancel")
    assert answer.status_code == 202
    assert slurm.cancelled == [str(job["slurm_job_id"])]
    assert api.get(f"/jobs/{job['id']}").json()["state"] == "CANCELLED"
    again = api.post(f"/jobs/{job['id']}/cancel")
    assert again.status_code == 409


def test_a_job_that_slurm_never_had_is_cancelled_at_once(
    api: httpx.Client, slurm: FakeSlurm
) -> None:
    submit(api)
    slurm.is_up = False
    job = submit(api, name="second")
    assert job["state"] == "QUEUED"
    answer = api.post(f"/jobs/{job['id']}/cancel").json()
    assert answer["state"] == "CANCELLED"
    assert answer["slurm_job_id"] is None


def test_a_requeue_is_asked_of_slurm(api: httpx.Client, slurm: FakeSlurm) -> None:
    job = submit(api)
    slurm.run(job["slurm_job_id"])
    answer = api.post(f"/jobs/{job['id']}/requeue")
    assert answer.status_code == 202
    assert slurm.requeued == [str(job["slurm_job_id"])]
    kinds = [e["kind"] for e in api.get(f"/jobs/{job['id']}/events").json()["events"]]
    assert "requeue" in kinds


def test_array_tasks_are_addressed_one_by_one(
    api: httpx.Client, slurm: FakeSlurm
) -> None:
    job = submit(api, array="0-1500%10", resources={"time": "10m"})
    assert job["tasks"] == 1501
    first, second = sorted(slurm.live)
    api.post(f"/jobs/{job['id']}/cancel", params={"task": 3})
    api.post(f"/jobs/{job['id']}/requeue", params={"task": 1003})
    assert slurm.cancelled == [f"{first}_3"]
    assert slurm.requeued == [f"{second}_2"]
    plain = submit(api, name="plain")
    answer = api.post(f"/jobs/{plain['id']}/cancel", params={"task": 1})
    assert answer.status_code == 422


def test_dependencies_are_told_to_slurm_in_its_numbers(
    api: httpx.Client, slurm: FakeSlurm
) -> None:
    first = submit(api, name="first")
    submit(api, name="second", dependencies=["first"])
    assert f"--dependency=afterok:{first['slurm_job_id']}" in slurm.submitted[-1].script
    missing = api.post("/jobs", json={"spec": {**SPEC, "dependencies": ["nobody"]}})
    assert missing.status_code == 404


def test_history_and_logs_are_there(api: httpx.Client, slurm: FakeSlurm) -> None:
    job = submit(api)
    nothing = api.get(f"/jobs/{job['id']}/logs")
    assert nothing.status_code == 404
    assert "no log yet" in nothing.json()["detail"]
    log = Path(job["folder"]) / "logs" / "attempt-1" / "rank-0.log"
    log.parent.mkdir(parents=True)
    log.write_text("one\ntwo\nthree\n")
    assert api.get(f"/jobs/{job['id']}/logs").text == "one\ntwo\nthree\n"
    assert api.get(f"/jobs/{job['id']}/logs", params={"tail": 2}).text == "two\nthree\n"
    for rank in (1, 2, 7):
        log.with_name(f"rank-{rank}.log").write_text("")
    other = api.get(f"/jobs/{job['id']}/logs", params={"rank": 99}).json()
    assert other["detail"] == "Attempt 1 has no log of rank 99."
    assert other["remedy"] == "There are those of: 0-2, 7."
    other = api.get(f"/jobs/{job['id']}/logs", params={"attempt": 9}).json()
    assert other["detail"] == "There is no attempt 9."
    assert other["remedy"] == "There are: 1."
    page = api.get(f"/jobs/{job['id']}/events", params={"after": 1}).json()
    assert [event["number"] for event in page["events"]] == [2]
    assert not page["is_final"]


@pytest.mark.parametrize("target", ["/etc/passwd", "../../../../../etc/passwd"])
def test_links_in_a_run_folder_are_not_followed(api: httpx.Client, target: str) -> None:
    job = submit(api)
    logs = Path(job["folder"]) / "logs" / "attempt-1"
    logs.mkdir(parents=True)
    (logs / "rank-0.log").symlink_to(target)
    (Path(job["folder"]) / "logs" / "attempt-2").symlink_to("/etc")
    os.mkfifo(logs / "batch.log")
    first = {"attempt": 1}
    assert api.get(f"/jobs/{job['id']}/logs", params=first).status_code == 403
    batch = {"attempt": 1, "batch": True}
    assert api.get(f"/jobs/{job['id']}/logs", params=batch).status_code == 403
    second = {"attempt": 2, "rank": 0}
    assert api.get(f"/jobs/{job['id']}/logs", params=second).status_code == 403


def sse(answer: httpx.Response) -> list[tuple[str, str, str]]:
    found = []
    for block in answer.text.split("\n\n"):
        lines = [line.partition(": ") for line in block.splitlines()]
        fields: dict[str, list[str]] = {}
        for name, _, value in lines:
            fields.setdefault(name, []).append(value)
        if "event" in fields:
            data = "\n".join(fields["data"])
            found.append((fields["event"][0], data, fields["id"][0]))
    return found


def ended(api: httpx.Client, slurm: FakeSlurm) -> dict[str, Any]:
    job: dict[str, Any] = submit(api)
    slurm.run(job["slurm_job_id"])
    api.get(f"/jobs/{job['id']}")
    api.post(f"/jobs/{job['id']}/cancel")
    return job


def test_events_are_followed_and_resumed(api: httpx.Client, slurm: FakeSlurm) -> None:
    job = ended(api, slurm)
    stream = {"Accept": "text/event-stream"}
    whole = sse(api.get(f"/jobs/{job['id']}/events", headers=stream))
    assert whole[-1][0] == "end"
    numbers = [int(message[2]) for message in whole[:-1]]
    assert numbers == list(range(1, len(numbers) + 1))
    rest = sse(
        api.get(f"/jobs/{job['id']}/events", headers={**stream, "Last-Event-ID": "2"})
    )
    assert rest == whole[2:]


def test_logs_are_followed_over_attempts_and_resumed(
    api: httpx.Client, slurm: FakeSlurm
) -> None:
    job = ended(api, slurm)
    for attempt, text in ((1, "päng\r\nfirst\n"), (2, "second\n")):
        log = Path(job["folder"]) / "logs" / f"attempt-{attempt}" / "rank-0.log"
        log.parent.mkdir(parents=True)
        log.write_text(text)
    stream = {"Accept": "text/event-stream"}
    url = f"/jobs/{job['id']}/logs"
    whole = sse(api.get(url, headers=stream))
    assert [(kind, data) for kind, data, _ in whole] == [
        ("log", "päng\nfirst\n"),
        ("log", "second\n"),
        ("end", '{"state": "CANCELLED"}'),
    ]
    first_id = whole[0][2]
    rest = sse(api.get(url, headers={**stream, "Last-Event-ID": first_id}))
    assert rest == whole[1:]
    middle = sse(api.get(url, headers={**stream, "Last-Event-ID": "1:1"}))
    assert middle[0][1].endswith("ng\nfirst\n")


def test_the_cluster_is_shown(api: httpx.Client) -> None:
    nodes = api.get("/nodes").json()
    assert nodes["cluster"] == "fake"
    assert nodes["nodes"][0]["gpus"] == {"h100": 4}
    partitions = api.get("/partitions").json()["partitions"]
    assert partitions[0]["max_time_seconds"] == 12 * 3600


def test_health_ready_and_metrics(api: httpx.Client, slurm: FakeSlurm) -> None:
    submit(api)
    assert api.get("/health").json()["status"] == "ok"
    assert api.get("/ready").json()["is_ready"]
    page = api.get("/metrics").text
    assert 'hpcplat_jobs{state="PENDING"} 1.0' in page
    assert "hpcplat_queue_depth 0.0" in page
    assert 'hpcplat_slurm_query_seconds_count{query="jobs"}' in page
    assert 'route="/jobs",status="201"' in page


def test_not_ready_without_slurm(api: httpx.Client, slurm: FakeSlurm) -> None:
    slurm.is_up = False
    answer = api.get("/ready")
    assert answer.status_code == 503
    assert not answer.json()["is_ready"]


def test_while_slurm_is_down_jobs_wait_and_are_sent_when_it_is_back(
    api: httpx.Client, slurm: FakeSlurm
) -> None:
    submit(api)
    slurm.is_up = False
    job = submit(api, name="patient")
    assert job["state"] == "QUEUED"
    assert "down" in job["reason"]


def test_a_service_that_never_saw_slurm_says_so(
    api: httpx.Client, slurm: FakeSlurm
) -> None:
    slurm.is_up = False
    answer = api.post("/jobs", json={"spec": SPEC})
    assert answer.status_code == 503
    assert answer.json()["detail"] == "Slurm is down."


def test_nobody_gets_in_without_saying_who(
    connect: Callable[..., httpx.Client],
) -> None:
    stranger = connect(uid=None)
    for path in ("/jobs", "/nodes", "/metrics", "/tokens"):
        answer = stranger.get(path)
        assert answer.status_code == 401, path
        assert answer.headers["www-authenticate"] == "Bearer"
    assert stranger.get("/health").status_code == 200


def test_a_token_lets_its_owner_in_until_it_is_revoked(
    connect: Callable[..., httpx.Client], service: Service
) -> None:
    mine = connect()
    made = mine.post("/tokens", json={"label": "laptop", "days": 1}).json()
    with_token = connect(uid=None, Authorization=f"Bearer {made['token']}")
    assert with_token.get("/jobs").status_code == 200
    listed = mine.get("/tokens").json()["tokens"]
    assert [one["label"] for one in listed] == ["laptop"]
    assert made["token"] not in mine.get("/tokens").text
    assert mine.delete(f"/tokens/{made['id']}").status_code == 204
    assert mine.delete("/tokens/0123456789abcdef").status_code == 404


@pytest.mark.parametrize(
    "header",
    ["Bearer ", "Basic cm9vdDp4", "Bearer hpcplat_wrong", "bearer", "Bearer \u00e4"],
)
def test_a_token_that_is_none_is_refused(
    connect: Callable[..., httpx.Client], header: str
) -> None:
    stranger = connect(uid=None)
    value = header.encode("latin-1")
    answer = stranger.get("/jobs", headers=[(b"Authorization", value)])
    assert answer.status_code == 401


def test_another_persons_job_is_not_there(
    connect: Callable[..., httpx.Client], service: Service
) -> None:
    if os.geteuid() != 0:
        pytest.skip("acting for several people takes root")
    job = submit(connect())
    other = connect(uid=pwd.getpwnam("nobody").pw_uid)
    assert other.get(f"/jobs/{job['id']}").status_code == 404
    assert other.post(f"/jobs/{job['id']}/cancel").status_code == 404
    assert other.get("/jobs").json()["jobs"] == []
    theirs = other.post("/jobs", json={"spec": SPEC}).json()
    assert theirs["user"] == "nobody"
    assert connect().get(f"/jobs/{theirs['id']}").status_code == 200  # root sees all


def test_errors_carry_no_more_than_they_should(api: httpx.Client) -> None:
    answer = api.get("/none")
    assert answer.status_code == 404
    assert answer.headers["x-content-type-options"] == "nosniff"
    wrong = api.put("/jobs")
    assert wrong.status_code == 405
    assert wrong.json()["type"] == "urn:hpcplat:not-allowed"
