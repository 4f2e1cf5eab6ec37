"""What the roles refuse, what they render, and what ansible-lint says of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpcplat.cluster import ClusterSpec
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


def ansible(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROGRAMS / "ansible", "localhost", "-c", "local", *words],
        cwd=ANSIBLE,
        env=environment(),
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def validated(role: str, values: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """Run a role's validation alone: it touches nothing."""
    known = {"ansible_python_interpreter": sys.executable, **values}
    named = f"name={role} tasks_from=validate"
    words = ["-m", "ansible.builtin.include_role", "-a", named]
    return ansible(*words, "-e", json.dumps(known))


@pytest.mark.parametrize(
    ("role", "values"),
    [("slurm", SLURM), ("hpcplat", SERVICE), ("cli", {"cli_url": "https://x"})],
)
def test_what_is_right_is_taken(role: str, values: dict[str, Any]) -> None:
    done = validated(role, values)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("role", "values", "words"),
    [
        ("slurm", SLURM | {"slurm_munge_secret": ""}, "There is no default"),
        ("slurm", SLURM | {"slurm_jwt_secret": "c2hvcnQ="}, "There is no default"),
        ("slurm", SLURM | {"slurm_jwt_secret": SECRET}, "There is no default"),
        ("slurm", SLURM | {"slurm_storage_host": "db"}, "slurm_storage_password"),
        ("slurm", SLURM | {"slurm_nodes": []}, "must not be empty"),
        ("slurm", SLURM | {"slurm_settings": {"NodeName": "n9"}}, "NodeName"),
        ("hpcplat", {}, "hpcplat_runs"),
        (
            "hpcplat",
            SERVICE | {"hpcplat_database": "postgresql://hpcplat:changeme@db/hpcplat"},
            "at least 16 characters",
        ),
        ("hpcplat", SERVICE | {"hpcplat_database": "mysql://x"}, "sqlite:////"),
        ("proxy", {}, "proxy_name"),
        ("proxy", {"proxy_name": "x.org"}, "proxy_certificate"),
        ("package", {}, "pip wheel --no-deps"),
        ("cli", {"cli_url": "http://x.org"}, "plain HTTP"),
    ],
)
def test_what_cannot_be_right_is_refused(
    role: str, values: dict[str, Any], words: str
) -> None:
    done = validated(role, values)
    assert done.returncode != 0
    assert words in done.stdout, done.stdout
    assert SECRET not in done.stdout


def test_sites_and_the_local_cluster_get_the_same_files(tmp_path: Path) -> None:
    """The same template, and the same reading of it by Ansible's Jinja and by ours."""
    groups = parse_groups("2:h100x4,1:a100x1", gpu_type="h100", gpus=4)
    spec = ClusterSpec(groups=groups, folder=tmp_path)
    layout = Layout(spec, ClusterFolder(tmp_path), Ports(20000), "slurm", (24, 11))
    values = {name: _plain(value) for name, value in variables(layout).items()}
    for name, text in render_all(layout).items():
        source = ANSIBLE / "roles/slurm/templates" / f"{name}.j2"
        words = f"src={source} dest={tmp_path / name} mode=0600"
        given = json.dumps({"ansible_python_interpreter": sys.executable, **values})
        done = ansible("-m", "ansible.builtin.template", "-a", words, "-e", given)
        assert done.returncode == 0, done.stdout
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
