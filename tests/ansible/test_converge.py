"""`ansible/site.yml` converged for real, and what it makes put to use."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

import psutil
import pytest

from tests.ansible.site import Site

pytestmark = [pytest.mark.slow, pytest.mark.slurm, pytest.mark.timeout(1800)]


def asked(site: Site, path: str, headers: Mapping[str, str]) -> tuple[int, Any]:
    """Ask the service through the proxy, by TLS; return the status and the answer."""
    context = ssl.create_default_context(cafile=site.variables["proxy_certificate"])
    context.check_hostname = False  # the name is the site's, not localhost
    url = f"https://127.0.0.1:{site.variables['proxy_port']}{path}"
    request = urllib.request.Request(url, headers=dict(headers))
    try:
        with urllib.request.urlopen(request, context=context, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def service_pid(site: Site) -> int:
    return int((site.folder / "run/hpcplat/service.pid").read_text())


def test_a_second_run_changes_nothing(site: Site) -> None:
    before = service_pid(site)
    assert " changed=0 " in site.converge()
    assert service_pid(site) == before


def test_nodes_are_up_and_the_account_is_there(site: Site) -> None:
    for _ in range(60):
        states = site.run("sinfo", "--noheader", "--Node", "--format=%N %T").split("\n")
        if states[:2] == ["c1 idle", "c2 idle"]:
            break
        time.sleep(1)
    assert states[:2] == ["c1 idle", "c2 idle"]
    users = site.run("sacctmgr", "-nP", "show", "assoc", "format=account,user")
    assert f"lab|{site.variables['slurm_user']}" in users.splitlines()


def test_a_job_goes_through_the_installed_command(site: Site) -> None:
    program = site.folder / "usr/local/bin/hpcplat"
    url = {"HPCPLAT_URL": site.variables["cli_url"]}
    words = ["run", "--name", "first", "--time", "5m", "--nodes", "2", "--watch"]
    site.run(program, *words, "--", "hostname", **url)
    (job,) = [one for one in site.hpcplat("jobs") if one["name"] == "first"]
    assert job["state"] == "COMPLETED"


def test_who_brings_no_token_is_nobody(site: Site) -> None:
    """Not nginx's user, as whom the service would see all of them."""
    status, problem = asked(site, "/api/v1/jobs", {})
    assert (status, problem["status"]) == (401, 401)
    for value in ("", " ", "Basic YTpi", "Bearer", "Bearer x"):
        assert asked(site, "/api/v1/jobs", {"Authorization": value})[0] == 401
    for path in ("//api/v1/jobs", "/api/v1/../v1/jobs", "/x/../api/v1/jobs"):
        assert asked(site, path, {})[0] in {401, 404}
    assert asked(site, "/api/v1/health", {})[0] == 200


def test_a_token_is_let_in(site: Site) -> None:
    socket = site.variables["cli_url"].removeprefix("unix:")
    made = site.run(
        *("curl", "--silent", "--fail", "--unix-socket", socket),
        *("--json", '{"label": "test", "days": 1}', "http://localhost/api/v1/tokens"),
    )
    headers = {"Authorization": f"Bearer {json.loads(made)['token']}"}
    assert asked(site, "/api/v1/jobs", headers)[0] == 200


def test_only_the_service_gets_into_its_database(site: Site) -> None:
    psql = ["psql", "-X", "-h", f"{site.folder}/sql", "-U", "hpcplat", "-c", "SELECT 1"]
    site.run(*psql, "hpcplat")
    if os.geteuid() == 0:
        done = subprocess.run(
            [*psql, "hpcplat"],
            user="nobody",
            cwd="/",
            check=False,
            capture_output=True,
            text=True,
        )
        assert 'Peer authentication failed for user "hpcplat"' in done.stderr


def test_secrets_are_closed(site: Site) -> None:
    names = ("munge/munge.key", "slurm/jwt.key", "slurm/slurmdbd.conf")
    for name in (*names, "hpcplat/service.env"):
        assert (site.folder / "etc" / name).stat().st_mode & 0o077 == 0, name


def test_backups_are_whole_and_few(site: Site) -> None:
    backups = site.folder / "var/backups/hpcplat"
    for _ in range(3):
        site.run(site.folder / "usr/local/libexec/hpcplat/backup")
    kept = sorted(backups.iterdir())
    assert len(kept) == site.variables["hpcplat_backups"]
    psql = ["-h", f"{site.folder}/sql", "-U", site.variables["hpcplat_user"]]
    site.run("createdb", *psql, "again")
    site.run("pg_restore", *psql, "--no-owner", "-d", "again", kept[-1])
    told = "SELECT version_num, (SELECT count(*) FROM job) FROM alembic_version"
    ask = ["psql", "-X", "-At", *psql, "-c", told]
    kept_rows = site.run(*ask, "again").strip()
    assert kept_rows
    assert kept_rows == site.run(*ask, "hpcplat").strip()


@pytest.mark.parametrize("name", ["hpcplat", "hpcplat-slurm"])
def test_logrotate_takes_its_files(site: Site, name: str) -> None:
    place = site.folder / "etc/logrotate.d" / name
    printed = site.run("/usr/sbin/logrotate", "--debug", "--state", "/dev/null", place)
    assert "error" not in printed.lower()


def test_systemd_takes_the_units(site: Site) -> None:
    units = sorted((site.folder / "etc/systemd/system").iterdir())
    printed = site.run("systemd-analyze", "verify", "--man=no", *units)
    assert "hpcplat" not in printed, printed


def test_a_changed_setting_restarts_the_service(site: Site) -> None:
    before = service_pid(site)
    changed = {**site.variables["hpcplat_environment"], "HPCPLAT_TEST": "1"}
    told = json.dumps({"hpcplat_environment": changed})
    site.converge("--tags", "service", "-e", told)
    assert service_pid(site) != before
    assert psutil.Process(service_pid(site)).environ()["HPCPLAT_TEST"] == "1"
    assert asked(site, "/api/v1/health", {})[0] == 200
