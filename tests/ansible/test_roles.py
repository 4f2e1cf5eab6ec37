"""What the roles refuse, what they render, and what ansible-lint says of them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpcplat.cluster import Cluster, ClusterSpec
from hpcplat.cluster.configuration import Layout, render_all, variables
from hpcplat.cluster.folder import ClusterFolder
from hpcplat.cluster.ports import Ports
from hpcplat.cluster.spec import parse_groups
from tests.ansible.site import ANSIBLE, PROGRAMS, environment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SECRET = "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"
NODE = {"name": "n1"}
PARTITION = {"name": "all", "nodes": ["n1"], "default": True}
SLURM: dict[str, Any] = {
    "slurm_cluster_name": "site",
    "slurm_controller_host": "head",
    "slurm_nodes": [NODE],
    "slurm_partitions": [PARTITION],
    "slurm_munge_secret": SECRET,
    "slurm_jwt_secret": SECRET[::-1],
}
SERVICE: dict[str, Any] = {"hpcplat_runs": "/s/runs", "hpcplat_datasets": "/s/data"}


TAKEN: dict[str, tuple[str, dict[str, Any]]] = {
    "a cluster": ("slurm", SLURM),
    "a service": ("hpcplat", SERVICE),
    "an address": ("cli", {"cli_url": "https://x"}),
    "no address": ("cli", {}),
}
REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "no munge key": ("slurm", SLURM | {"slurm_munge_secret": ""}, "no default"),
    "a short key": ("slurm", SLURM | {"slurm_jwt_secret": "c2hvcnQ="}, "no default"),
    "one key for both": ("slurm", SLURM | {"slurm_jwt_secret": SECRET}, "no default"),
    "no password for a database elsewhere": (
        "slurm",
        SLURM | {"slurm_storage_host": "db"},
        "slurm_storage_password",
    ),
    "no nodes": ("slurm", SLURM | {"slurm_nodes": []}, "must not be empty"),
    "a line twice": (
        "slurm",
        SLURM | {"slurm_settings": {"NodeName": "x"}},
        "NodeName",
    ),
    "no shared folder": ("hpcplat", {}, "hpcplat_runs"),
    "a password that everybody knows": (
        "hpcplat",
        SERVICE | {"hpcplat_database": "postgresql://hpcplat:changeme@db/hpcplat"},
        "at least 16 characters",
    ),
    "root through sudo": (
        "hpcplat",
        SERVICE | {"hpcplat_sudo_group": "people"},
        "ordinary user",
    ),
    "an unknown database": (
        "hpcplat",
        SERVICE | {"hpcplat_database": "mysql://x"},
        "sqlite:////",
    ),
    "a quote in a variable": (
        "hpcplat",
        SERVICE | {"hpcplat_environment": {"A": "it's"}},
        "hpcplat_environment",
    ),
    "a proxy without a name": ("proxy", {}, "proxy_name"),
    "no certificate": ("proxy", {"proxy_name": "x.org"}, "proxy_certificate"),
    "no wheel": ("package", {}, "pip wheel --no-deps"),
    "tokens in the open": ("cli", {"cli_url": "http://x.org"}, "plain HTTP"),
}


def ran(program: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run one of Ansible's programs, with no inventory but this host."""
    return subprocess.run(
        [PROGRAMS / program, "-i", "localhost,", "-c", "local", *words],
        cwd=ANSIBLE,
        env=environment(),
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each role's validation, which touches nothing, says to each case.

    One playbook for all: Ansible takes seconds to start.
    """
    folder = tmp_path_factory.mktemp("answers")
    cases = TAKEN | {name: case[:2] for name, case in REFUSED.items()}
    numbered = dict(enumerate(cases))
    tasks = [
        _case(folder / str(number), *cases[name]) for number, name in numbered.items()
    ]
    play = {"hosts": "localhost", "gather_facts": False, "tasks": tasks}
    play["vars"] = {"ansible_python_interpreter": sys.executable}
    (folder / "play.yml").write_text(yaml.safe_dump([play]))
    done = ran("ansible-playbook", str(folder / "play.yml"))
    assert done.returncode == 0, done.stdout
    assert SECRET not in done.stdout
    return {name: (folder / str(n)).read_text() for n, name in numbered.items()}


def _case(place: Path, role: str, values: dict[str, Any]) -> dict[str, Any]:
    """Return a task that validates, and writes what was said to a file."""
    include = {"name": role, "tasks_from": "validate"}
    note = {"dest": str(place), "mode": "0600"}
    said = note | {"content": "{{ ansible_failed_result.msg }}"}
    return {
        "vars": values,
        "block": [
            {"ansible.builtin.include_role": include},
            {"ansible.builtin.copy": note | {"content": "taken"}},
        ],
        "rescue": [{"ansible.builtin.copy": said}],
    }


@pytest.mark.parametrize("case", TAKEN)
def test_what_is_right_is_taken(answers: dict[str, str], case: str) -> None:
    assert answers[case] == "taken"


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_right_is_refused(answers: dict[str, str], case: str) -> None:
    assert REFUSED[case][2] in answers[case]


def test_sites_and_the_local_cluster_get_the_same_files(tmp_path: Path) -> None:
    """The same template, and the same reading of it by Ansible's Jinja and by ours."""
    groups = parse_groups("2:h100x4,1:a100x1", gpu_type="h100", gpus=4)
    spec = ClusterSpec(groups=groups, folder=tmp_path)
    layout = Layout(spec, ClusterFolder(tmp_path), Ports(20000), "slurm", (24, 11))
    values = {name: _plain(value) for name, value in variables(layout).items()}
    files = render_all(layout)
    task = {
        "ansible.builtin.template": {
            "src": str(ANSIBLE / "roles/slurm/templates/{{ item }}.j2"),
            "dest": str(tmp_path / "{{ item }}"),
            "mode": "0600",
        },
        "loop": list(files),
    }
    python = {"ansible_python_interpreter": sys.executable}
    play = {"hosts": "localhost", "gather_facts": False, "vars": values | python}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play | {"tasks": [task]}]))
    done = ran("ansible-playbook", str(tmp_path / "play.yml"))
    assert done.returncode == 0, done.stdout
    for name, text in files.items():
        assert (tmp_path / name).read_text() == text


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever a template takes
    return json.loads(json.dumps(value, default=str))


def test_the_playbook_is_clean() -> None:
    done = subprocess.run(
        [PROGRAMS / "ansible-lint", "--offline", "--nocolor", "--strict"],
        cwd=ANSIBLE,
        env=environment(),
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout


def test_every_variable_is_of_its_role() -> None:
    for path in ANSIBLE.glob("roles/*/defaults/main.yml"):
        role = path.parents[1].name
        for name in yaml.safe_load(path.read_text()):
            assert name.startswith(f"{role}_"), f"{name} in {path}"


def test_no_secret_has_a_default() -> None:
    for path in ANSIBLE.glob("roles/*/defaults/main.yml"):
        for name, value in yaml.safe_load(path.read_text()).items():
            if name.endswith(("_secret", "_password")):
                assert value == "", f"{name} in {path}"


@pytest.mark.skipif(not Path("/usr/sbin/visudo").exists(), reason="needs visudo")
def test_an_ordinary_service_gets_one_program_through_sudo(tmp_path: Path) -> None:
    values = {
        "ansible_python_interpreter": sys.executable,
        "hpcplat_user": "hpcplat",
        "hpcplat_sudo_group": "people",
        "hpcplat_prefix": str(tmp_path),
        "hpcplat_venv": str(PROGRAMS.parent),
    }
    role = {"name": "hpcplat", "tasks_from": "sudo"}
    tasks = [{"ansible.builtin.include_role": role}] * 2
    play = {"hosts": "localhost", "gather_facts": False, "vars": values}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play | {"tasks": tasks}]))
    done = ran("ansible-playbook", str(tmp_path / "play.yml"))
    assert done.returncode == 0, done.stdout
    rules = (tmp_path / "etc/sudoers.d/hpcplat").read_text()
    (line,) = [one for one in rules.splitlines() if one.startswith("hpcplat ALL")]
    program = line.split()[-2]
    assert (tmp_path / program.lstrip("/")).stat().st_mode & 0o777 == 0o755
    assert done.stdout.count("changed: ") == 4  # the second time it changes nothing


@pytest.mark.slurm
def test_the_unit_leaves_the_rights_that_submission_needs(
    cluster: Cluster, unix_users: tuple[str, ...]
) -> None:
    unit = (ANSIBLE / "roles/hpcplat/templates/hpcplat.service.j2").read_text()
    (names,) = re.findall(
        r"^CapabilityBoundingSet=(.*CAP_SETFCAP)$", unit, re.MULTILINE
    )
    kept = ",".join(f"+{name.removeprefix('cap_')}" for name in names.lower().split())
    confined = ["setpriv", "--no-new-privs", f"--bounding-set=-all,{kept}"]
    as_somebody = [f"--uid={unix_users[0]}", "--chdir=/tmp", "--output=/dev/null"]
    submitted = subprocess.run(
        [*confined, "sbatch", "--parsable", "--wait", *as_somebody],
        input="#!/bin/sh\ntrue\n",
        env=environment() | cluster.environment(),
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert submitted.returncode == 0, submitted.stderr
