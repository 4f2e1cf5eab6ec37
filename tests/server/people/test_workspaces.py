"""Workspaces through the API: members, roles, refusals, and what is written down."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.server.fakes import FakeSlurm
from tests.server.people.conftest import DEVELOPER, OWNER, STRANGER, VIEWER, As

SPEC: dict[str, Any] = {
    "name": "hello",
    "resources": {"nodes": 1, "gpus_per_node": 2, "time": "10m"},
    "command": ["true"],
}


def submit(client: httpx.Client, **changes: Any) -> httpx.Response:  # noqa: ANN401
    return client.post("/jobs", json={"spec": {**SPEC, **changes}})


def submitted(client: httpx.Client, **changes: Any) -> str:  # noqa: ANN401
    answer = submit(client, **changes)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def test_everybody_sees_their_own_workspaces(team: As) -> None:
    listed = team(VIEWER).get("/workspaces").json()["workspaces"]
    assert [(each["name"], each["role"]) for each in listed] == [("nlp", "viewer")]
    names = [w["name"] for w in team("root").get("/workspaces").json()["workspaces"]]
    assert names == ["nlp", "vision"]
    shown = team(DEVELOPER).get("/workspaces/nlp").json()
    assert {m["user"]: m["role"] for m in shown["members"]} == {
        OWNER: "owner",
        DEVELOPER: "developer",
        VIEWER: "viewer",
    }


@pytest.mark.parametrize("path", ["/workspaces/nlp", "/workspaces/vision"])
def test_a_foreign_workspace_looks_like_none(team: As, path: str) -> None:
    stranger = team(STRANGER)
    real = stranger.get(path)
    made_up = stranger.get("/workspaces/none")
    assert real.status_code == made_up.status_code == 404
    assert real.json()["detail"] == made_up.json()["detail"].replace(
        "none", path.rsplit("/", 1)[1]
    )
    for method in ("PUT", "DELETE"):
        answer = stranger.request(method, f"{path}/members/{STRANGER}", json={})
        assert answer.status_code == 404, method


def test_a_job_goes_to_the_one_workspace_of_its_submitter(team: As) -> None:
    job = submit(team(DEVELOPER)).json()
    assert job["workspace"] == "nlp"


def test_who_is_in_no_workspace_is_told_so(team: As, slurm: FakeSlurm) -> None:
    answer = submit(team(STRANGER))
    assert answer.status_code == 403
    assert "You are in no workspace" in answer.json()["detail"]
    assert slurm.submitted == []


def test_who_works_in_several_workspaces_says_which(team: As) -> None:
    team("root").put(f"/workspaces/vision/members/{DEVELOPER}", json={})
    answer = submit(team(DEVELOPER))
    assert answer.status_code == 422
    assert "nlp, vision" in answer.json()["detail"]
    assert submit(team(DEVELOPER), workspace="vision").status_code == 201


def test_a_foreign_workspace_takes_no_job(team: As, slurm: FakeSlurm) -> None:
    foreign = submit(team(DEVELOPER), workspace="vision")
    made_up = submit(team(DEVELOPER), workspace="nowhere")
    assert foreign.status_code == made_up.status_code == 404
    assert foreign.json()["remedy"] == made_up.json()["remedy"] == "Yours: nlp."
    assert slurm.submitted == []


def test_a_viewer_sees_and_does_nothing(team: As) -> None:
    job = submitted(team(DEVELOPER))
    viewer = team(VIEWER)
    assert viewer.get(f"/jobs/{job}").status_code == 200
    assert viewer.post(f"/jobs/{job}/cancel").status_code == 403
    assert viewer.post(f"/jobs/{job}/requeue").status_code == 403
    assert submit(viewer, workspace="nlp").status_code == 403


def test_another_developers_job_is_seen_and_left_alone(team: As) -> None:
    job = submitted(team(OWNER))
    developer = team(DEVELOPER)
    assert developer.get(f"/jobs/{job}").status_code == 200
    assert developer.post(f"/jobs/{job}/cancel").status_code == 403


def test_an_owner_ends_everyones_job_in_the_workspace(team: As) -> None:
    job = submitted(team(DEVELOPER))
    assert team(OWNER).post(f"/jobs/{job}/cancel").status_code == 202


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_job_of_another_workspace_is_not_there(team: As, method: str) -> None:
    job = submitted(team(DEVELOPER))
    stranger = team(STRANGER)
    paths = {
        "GET": ("", "/events", "/logs", "/script", "/attempts"),
        "POST": ("/cancel", "/requeue"),
    }
    for path in paths[method]:
        assert stranger.request(method, f"/jobs/{job}{path}").status_code == 404, path


def test_a_removed_member_keeps_their_running_job_and_may_end_it(team: As) -> None:
    developer = team(DEVELOPER)
    job = submitted(developer)
    removed = team(OWNER).delete(f"/workspaces/nlp/members/{DEVELOPER}")
    assert removed.status_code == 204
    assert developer.get(f"/jobs/{job}").json()["state"] == "PENDING"
    assert developer.post(f"/jobs/{job}/requeue").status_code == 403
    assert submit(developer, workspace="nlp").status_code == 404
    assert developer.post(f"/jobs/{job}/cancel").status_code == 202


def test_only_owners_manage_members(team: As) -> None:
    for user in (VIEWER, DEVELOPER):
        answer = team(user).put(
            f"/workspaces/nlp/members/{user}", json={"role": "owner"}
        )
        assert answer.status_code == 403
    put = team(OWNER).put(f"/workspaces/nlp/members/{STRANGER}", json={})
    assert put.status_code == 200
    assert submit(team(STRANGER)).json()["workspace"] == "nlp"


def test_the_last_owner_stays(team: As) -> None:
    owner = team(OWNER)
    assert owner.delete(f"/workspaces/nlp/members/{OWNER}").status_code == 409
    path = f"/workspaces/nlp/members/{OWNER}"
    assert owner.put(path, json={"role": "viewer"}).status_code == 409
    assert team("root").put(path, json={"role": "viewer"}).status_code == 200


def test_a_user_that_unix_does_not_know_is_refused(team: As) -> None:
    answer = team(OWNER).put("/workspaces/nlp/members/nobody-like-this", json={})
    assert answer.status_code == 422
    assert "no Unix account" in answer.json()["detail"]


def test_a_workspace_with_jobs_is_not_closed(team: As) -> None:
    job = submitted(team(DEVELOPER))
    root = team("root")
    refused = root.delete("/workspaces/nlp")
    assert refused.status_code == 409
    assert "1 jobs" in refused.json()["detail"]
    root.post(f"/jobs/{job}/cancel")
    assert root.delete("/workspaces/nlp").status_code == 204
    assert submit(team(DEVELOPER), workspace="nlp").status_code == 409
    assert team(DEVELOPER).get(f"/jobs/{job}").status_code == 200


def test_a_workspace_with_others_below_it_is_not_closed(team: As) -> None:
    root = team("root")
    root.post("/workspaces", json={"name": "nlp-chat", "parent": "nlp"})
    assert root.delete("/workspaces/nlp").status_code == 409
    missing = root.post("/workspaces", json={"name": "x", "parent": "none"})
    assert missing.status_code == 404


@pytest.mark.parametrize("user", [STRANGER, VIEWER, DEVELOPER, OWNER])
def test_the_site_is_for_administrators(team: As, user: str) -> None:
    client = team(user)
    assert client.post("/workspaces", json={"name": "mine"}).status_code == 403
    assert client.get("/audit").status_code == 403


@pytest.mark.parametrize("name", ["Root", "a b", "../x", "-x", "a" * 64, "a\nb"])
def test_names_that_slurm_could_misread_are_refused(team: As, name: str) -> None:
    assert team("root").post("/workspaces", json={"name": name}).status_code == 422


def test_changes_and_refusals_are_written_down(team: As) -> None:
    team(DEVELOPER).put(f"/workspaces/nlp/members/{STRANGER}", json={})
    entries = team("root").get("/audit").json()["entries"]
    assert entries[0]["who"] == DEVELOPER
    assert entries[0]["is_refusal"] is True
    assert entries[0]["action"] == "refused"
    assert entries[0]["target"].startswith("PUT /api/v1/workspaces/nlp/members/")
    told = [(e["who"], e["action"], e["target"], e["detail"]) for e in entries[1:4]]
    assert told[0] == ("root", "member.set", VIEWER, "viewer")
    own = team(OWNER).get("/audit", params={"workspace": "nlp"}).json()["entries"]
    assert {entry["workspace"] for entry in own} == {"nlp"}
    assert team(VIEWER).get("/audit", params={"workspace": "nlp"}).status_code == 403


def test_a_narrow_token_does_no_more_than_it_is_for(team: As) -> None:
    made = team(DEVELOPER).post("/tokens", json={"scopes": ["read"]}).json()
    assert made["scopes"] == "read"
    reader = team(None, Authorization=f"Bearer {made['token']}")
    assert reader.get("/jobs").status_code == 200
    refused = submit(reader)
    assert refused.status_code == 403
    assert "scope write" in refused.json()["detail"]
    assert reader.post("/tokens", json={}).status_code == 403
    assert team(DEVELOPER).post("/tokens", json={"scopes": []}).status_code == 422


def test_a_token_tells_when_it_was_last_used(team: As) -> None:
    mine = team(DEVELOPER)
    token = mine.post("/tokens", json={"label": "ci"}).json()
    assert token["used_at"] is None
    team(None, Authorization=f"Bearer {token['token']}").get("/jobs")
    [listed] = mine.get("/tokens").json()["tokens"]
    assert listed["used_at"] is not None
    assert "token" not in listed
