"""The configuration files: what they say, and that a site renders the same ones."""

from __future__ import annotations

from pathlib import Path

import jinja2
import jinja2.meta
import pytest

from hpcplat.cluster import configuration, spec
from hpcplat.cluster.configuration import Layout, render_all, variables
from hpcplat.cluster.folder import ClusterFolder
from hpcplat.cluster.ports import Ports
from hpcplat.cluster.spec import ClusterSpec, NodeGroup

HERE = Path(configuration.__file__).parent / "templates"


def layout(version: tuple[int, int] = (22, 5), **fields: object) -> Layout:
    chosen = ClusterSpec(folder=Path("/tmp/c"), **fields)  # type: ignore[arg-type]
    return Layout(chosen, ClusterFolder(chosen.folder), Ports(20000), "me", version)


def lines(text: str, start: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(start)]


def test_nodes_and_their_gpus() -> None:
    groups = (NodeGroup(1), NodeGroup(1, "a100", 1), NodeGroup(1, "none", 0))
    files = render_all(layout(groups=groups, spares=1))
    nodes = lines(files["slurm.conf"], "NodeName=")
    assert [" Gres=gpu:h100:4 " in node for node in nodes] == [True, False, False, True]
    assert "Gres" not in nodes[2]
    assert "Port=20003 " in nodes[0]
    assert "Feature=h100,spare" in nodes[3]
    assert lines(files["gres.conf"], "NodeName") == [
        "NodeName=n1 Name=gpu Type=h100 File=/tmp/c/gpu/gpu[0-3]",
        "NodeName=n2 Name=gpu Type=a100 File=/tmp/c/gpu/gpu0",
        "NodeName=n4 Name=gpu Type=h100 File=/tmp/c/gpu/gpu[0-3]",
    ]
    tres = lines(files["slurm.conf"], "AccountingStorageTRES=")
    assert tres == ["AccountingStorageTRES=gres/gpu,gres/gpu:a100,gres/gpu:h100"]


def test_settings_replace_the_defaults() -> None:
    text = render_all(layout(settings={"SlurmdTimeout": "7"}))["slurm.conf"]
    assert lines(text, "SlurmdTimeout") == ["SlurmdTimeout=7"]
    assert "CredType" not in text


@pytest.mark.parametrize(
    ("version", "expected"),
    [((22, 5), []), ((23, 11), []), ((24, 5), ["CgroupPlugin=disabled"])],
)
def test_cgroups_by_version(version: tuple[int, int], expected: list[str]) -> None:
    text = render_all(layout(version))["cgroup.conf"]
    assert lines(text, "Cgroup") == expected


def test_no_line_of_slurm_conf_stands_twice() -> None:
    text = render_all(layout())["slurm.conf"]
    names = [line.split("=")[0] for line in text.splitlines() if "=" in line]
    single = [name for name in names if name not in ("NodeName", "PartitionName")]
    assert len(single) == len(set(single))
    settings = set(configuration.SETTINGS)
    for name in set(names) - settings:
        assert spec.OWN_LINE.fullmatch(name), f"{name} could be set twice"
    assert not [name for name in settings if spec.OWN_LINE.fullmatch(name)]


@pytest.mark.parametrize("path", sorted(HERE.iterdir()), ids=lambda path: path.name)
def test_each_template_documents_its_variables(path: Path) -> None:
    text = path.read_text()
    used = jinja2.meta.find_undeclared_variables(jinja2.Environment().parse(text))
    head = text[: text.index("#}")]
    assert used <= set(variables(layout()))
    assert [name for name in used if name not in head] == []


def test_ansible_renders_the_very_same_files() -> None:
    role = HERE.parents[2] / "ansible/roles/slurm/templates"
    if not role.parents[2].is_dir():
        pytest.skip("installed without the source tree")
    assert role.is_symlink()
    assert not role.readlink().is_absolute()
    assert role.resolve() == HERE
