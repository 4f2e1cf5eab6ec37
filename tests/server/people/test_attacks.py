"""The table of attacks: each is tried through the API, and refused."""

from __future__ import annotations

import os
import pwd
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from hpcplat.errors import ForbiddenError
from hpcplat.slurm.scheduler import Association
from server import auth
from server.queries import people
from server.service import Service
from tests.server.fakes import FakeSlurm
from tests.server.people.conftest import DEVELOPER, OWNER, STRANGER, VIEWER, As

SPEC: dict[str, Any] = {
    "name": "hello",
    "resources": {"nodes": 1, "time": "10m"},
    "command": ["true"],
}


def submit(client: httpx.Client, **changes: Any) -> httpx.Response:  # noqa: ANN401
    return client.post("/jobs", json={"spec": {**SPEC, **changes}})


def made_job(client: httpx.Client) -> dict[str, Any]:
    answer = submit(client)
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


# --- what a spec can't ask for -------------------------------------------------------

STEERING: dict[str, dict[str, Any]] = {
    "another account": {"sbatch": {"account": "vision"}},
    "another user": {"sbatch": {"uid": "root"}},
    "another group": {"sbatch": {"gid": "root"}},
    "another run folder": {"sbatch": {"chdir": "/root"}},
    "another log": {"sbatch": {"output": "/etc/cron.d/x"}},
    "an export list": {"sbatch": {"export": "LD_PRELOAD=/x.so"}},
    "the login environment": {"sbatch": {"get-user-env": "10L"}},
    "a comment, which has the key": {"sbatch": {"comment": "hpcplat:other"}},
    "another script": {"sbatch": {"wrap": "id"}},
    "a run folder of its own": {"folder": "/runs/root/01"},
    "the loader's variable": {"environment": {"variables": {"LD_PRELOAD": "/x.so"}}},
    "the loader's path": {"environment": {"variables": {"LD_AUDIT": "/x.so"}}},
    "a variable of Slurm": {"environment": {"variables": {"SLURM_CONF": "/x"}}},
    "a variable of sbatch": {"environment": {"variables": {"SBATCH_ACCOUNT": "x"}}},
    "a name that is code": {"environment": {"variables": {"A$(id)": "x"}}},
    "a name that is two lines": {"name": "x\n#SBATCH --uid=0"},
    "an unknown account": {"workspace": "no-such-account"},
    "a workspace that is an option": {"workspace": "--uid=0"},
}


@pytest.mark.parametrize("what", STEERING)
def test_a_spec_does_not_steer_slurm(team: As, slurm: FakeSlurm, what: str) -> None:
    answer = submit(team(DEVELOPER), **STEERING[what])
    assert answer.status_code in {404, 422}, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert slurm.submitted == []


# --- tokens -------------------------------------------------------------------------


def test_an_expired_token_is_no_token(team: As, service: Service) -> None:
    token = auth.new_token()
    now = datetime.now(UTC)
    with service.database.write() as session:
        user = people.user_id(session, DEVELOPER, now)
        digest = auth.digest(token)
        past = now - timedelta(seconds=1)
        row = people.new_token("0" * 16, user, digest, "", past - timedelta(1), past)
        people.add_token(session, row)
    assert team(None, Authorization=f"Bearer {token}").get("/jobs").status_code == 401


def test_a_revoked_token_is_no_token(team: As) -> None:
    made = team(DEVELOPER).post("/tokens", json={}).json()
    assert team(DEVELOPER).delete(f"/tokens/{made['id']}").status_code == 204
    revoked = team(None, Authorization=f"Bearer {made['token']}")
    assert revoked.get("/jobs").status_code == 401


def test_anothers_token_is_not_revoked_or_seen(team: As) -> None:
    made = team(DEVELOPER).post("/tokens", json={}).json()
    assert team(OWNER).delete(f"/tokens/{made['id']}").status_code == 404
    assert team(OWNER).get("/tokens").json()["tokens"] == []


@pytest.mark.parametrize(
    "forge",
    [
        lambda token: token[:-1] + ("A" if token[-1] != "A" else "B"),
        lambda token: token.lower(),
        lambda token: token + "A",
        lambda _: auth.new_token(),
        lambda _: "eyJhbGciOiJub25lIn0.eyJzdWIiOiJyb290In0.",
        lambda _: "' OR 1=1 --",
    ],
)
def test_forged_tokens_are_refused(team: As, forge: Any) -> None:  # noqa: ANN401
    token = team("root").post("/tokens", json={}).json()["token"]
    forged = team(None, Authorization=f"Bearer {forge(token)}")
    assert forged.get("/jobs").status_code == 401


def test_a_token_is_kept_as_its_digest_alone(team: As, service: Service) -> None:
    token = team(DEVELOPER).post("/tokens", json={}).json()["token"]
    path = service.database.url.database
    assert path is not None
    for file in Path(path).parent.glob("hpcplat.db*"):
        assert token.encode() not in file.read_bytes()


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Forwarded-User": "root"},
        {"X-Remote-User": "root"},
        {"Remote-User": "root"},
        {"X-SLURM-USER-NAME": "root"},
        {"X-Forwarded-For": "127.0.0.1"},
    ],
)
def test_no_header_says_who_asks(team: As, headers: dict[str, str]) -> None:
    assert team(None, **headers).get("/jobs").status_code == 401
    names = team(DEVELOPER, **headers).get("/workspaces").json()["workspaces"]
    assert [each["name"] for each in names] == ["nlp"]  # not root's view


def test_a_header_makes_no_second_header(team: As) -> None:
    key = "x\r\nSet-Cookie: a=b"
    answer = team(DEVELOPER).post(
        "/jobs", json={"spec": SPEC}, headers=[(b"Idempotency-Key", key.encode())]
    )
    assert answer.status_code == 422
    assert "set-cookie" not in answer.headers


# --- files --------------------------------------------------------------------------


def test_logs_are_read_through_no_link(team: As, tmp_path: Path) -> None:
    job = made_job(team(DEVELOPER))
    folder = Path(job["folder"])
    secret = tmp_path / "secret"
    secret.write_text("the service's own")
    logs = folder / "logs"
    for name in ("rank-0.log", "batch.log"):
        attempt = logs / "attempt-1"
        attempt.mkdir(exist_ok=True)
        (attempt / name).symlink_to(secret)
    answer = team(DEVELOPER).get(f"/jobs/{job['id']}/logs", params={"attempt": 1})
    assert "the service's own" not in answer.text
    assert answer.status_code in {403, 404}
    (attempt / "rank-0.log").unlink()
    (attempt / "batch.log").unlink()
    attempt.rmdir()
    attempt.symlink_to("/proc/self")
    again = team(DEVELOPER).get(f"/jobs/{job['id']}/logs", params={"attempt": 1})
    assert again.status_code in {403, 404}


def test_the_script_is_read_through_no_link(team: As, tmp_path: Path) -> None:
    job = made_job(team(DEVELOPER))
    script = Path(job["folder"]) / "script.sbatch"
    script.unlink()
    script.symlink_to("/etc/shadow")
    answer = team(DEVELOPER).get(f"/jobs/{job['id']}/script")
    assert answer.status_code == 403
    assert "root:" not in answer.text


@pytest.mark.parametrize("who", ["the folder of the run", "the one above it"])
def test_a_run_folder_is_no_link_that_a_person_made(
    team: As, tmp_path: Path, who: str
) -> None:
    """As in a folder that everybody may write in, where people fill their own."""
    job = made_job(team(DEVELOPER))
    folder = Path(job["folder"])
    secret = tmp_path / "of-the-service" / folder.name / "script.sbatch"
    secret.parent.mkdir(parents=True)
    secret.write_text("the service's own")
    moved = folder if who == "the folder of the run" else folder.parent
    moved.rename(tmp_path / "aside")
    moved.symlink_to(secret.parent if moved == folder else secret.parent.parent)
    path = f"/jobs/{job['id']}/script"
    assert team(DEVELOPER).get(path).text == "the service's own"  # root made the link
    shutil.chown(secret.parent, DEVELOPER)
    os.chown(moved, pwd.getpwnam(DEVELOPER).pw_uid, -1, follow_symlinks=False)
    answer = team(DEVELOPER).get(path)
    assert answer.status_code == 403
    assert "the service's own" not in answer.text


def test_a_second_name_of_somebody_elses_file_is_not_read(
    team: As, tmp_path: Path
) -> None:
    job = made_job(team(DEVELOPER))
    secret = tmp_path / "secret"
    secret.write_text("the service's own")
    script = Path(job["folder"]) / "script.sbatch"
    script.unlink()
    script.hardlink_to(secret)
    answer = team(DEVELOPER).get(f"/jobs/{job['id']}/script")
    assert answer.status_code == 403


@pytest.mark.parametrize(
    "path",
    [
        "/jobs/..%2f..%2fetc/logs",
        "/jobs/../../etc/passwd",
        "/workspaces/..%2f..",
        "/workspaces/nlp%00",
        "/workspaces/%2e%2e/members/root",
    ],
)
def test_paths_lead_nowhere_else(team: As, path: str) -> None:
    assert team(DEVELOPER).get(path).status_code in {404, 405, 422}


def test_a_run_folder_is_its_persons_in_a_folder_of_roots(team: As) -> None:
    folder = Path(made_job(team(DEVELOPER))["folder"])
    assert folder.parent.name == DEVELOPER
    assert folder.parent.stat().st_uid == os.geteuid()
    assert folder.parent.stat().st_mode & 0o022 == 0


# --- quotas and members --------------------------------------------------------------


def test_a_quota_above_the_parents_is_refused(team: As, slurm: FakeSlurm) -> None:
    root = team("root")
    root.post("/workspaces", json={"name": "chat", "parent": "nlp"})
    root.put("/workspaces/nlp/quota", json={"limits": {"gpus": "8"}})
    over = root.put("/workspaces/chat/quota", json={"limits": {"gpus": "9"}})
    assert over.status_code == 422
    assert "more than workspace nlp has (8)" in over.json()["detail"]
    member = {"user": DEVELOPER, "limits": {"gpus": "16"}}
    assert team(OWNER).put("/workspaces/nlp/quota", json=member).status_code == 422
    asked = [word for argv in slurm.administered for word in argv]
    assert "GrpTRES=gres/gpu=9" not in asked
    assert "GrpTRES=gres/gpu=16" not in asked


@pytest.mark.parametrize("user", [STRANGER, VIEWER, DEVELOPER, OWNER])
def test_nobody_raises_the_quota_of_their_own_workspace(
    team: As, slurm: FakeSlurm, user: str
) -> None:
    asked = {"limits": {"gpus": "999"}}
    answer = team(user).put("/workspaces/nlp/quota", json=asked)
    assert answer.status_code == (404 if user == STRANGER else 403)
    assert slurm.administered == []


@pytest.mark.parametrize(
    "limits",
    [{"gpus": "1 AdminLevel=Admin"}, {"AdminLevel": "Admin"}, {"gpus:a,b": "1"}],
)
def test_a_quota_is_no_other_order_to_sacctmgr(
    team: As, slurm: FakeSlurm, limits: dict[str, str]
) -> None:
    answer = team("root").put("/workspaces/nlp/quota", json={"limits": limits})
    assert answer.status_code == 422
    assert slurm.administered == []


def test_an_owner_gives_nobody_a_qos_that_the_account_may_not_use(
    team: As, slurm: FakeSlurm
) -> None:
    """Slurm itself would take it: a member's own list goes before the account's."""
    own = ("normal", "spot")
    slurm.lines = (
        Association("c", "nlp", "", "", "1", {}, own, "normal", "root"),
        Association("c", "nlp", OWNER, "", "1", {}, own, "normal", ""),
    )
    asked = {"user": OWNER, "limits": {"qos": "normal,prod"}}
    refused = team(OWNER).put("/workspaces/nlp/quota", json=asked)
    assert refused.status_code == 422
    assert "QOS prod is not one of account nlp's" in refused.json()["detail"]
    assert slurm.administered == []
    asked["limits"] = {"qos": "spot"}
    assert team(OWNER).put("/workspaces/nlp/quota", json=asked).status_code == 200
    assert slurm.administered[-1][-2:] == ("DefaultQOS=spot", "QOS=spot")


def test_a_quota_that_slurm_refuses_is_not_kept(
    team: As, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_argv: object) -> None:
        raise ForbiddenError("Slurm refused: Access/permission denied.")

    monkeypatch.setattr(slurm, "administer", refuse)
    root = team("root")
    answer = root.put("/workspaces/nlp/quota", json={"limits": {"gpus": "8"}})
    assert answer.status_code == 403
    assert root.get("/workspaces/nlp").json()["quotas"] == {}


def test_a_renamed_unix_user_is_another_person(
    team: As, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs belong to a name: who has the number under a new one does not get them."""
    job = made_job(team(DEVELOPER))
    client = team(DEVELOPER)
    real = auth.user_name
    monkeypatch.setattr(
        auth,
        "user_name",
        lambda uid: "renamed" if real(uid) == DEVELOPER else real(uid),
    )
    client_app = client._transport.transport._app  # type: ignore[attr-defined]
    client_app.state.principals.forget()  # what was believed for five seconds
    assert client.get(f"/jobs/{job['id']}").status_code == 404
    assert client.post(f"/jobs/{job['id']}/cancel").status_code == 404


def test_answers_carry_security_headers(team: As) -> None:
    headers = team(DEVELOPER).get("/jobs").headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert "no-store" in headers["cache-control"]
    assert "frame-ancestors 'self'" in headers["content-security-policy"]
