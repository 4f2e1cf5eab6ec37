"""A converged site: its folder, the playbook's runs, and what is asked of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ANSIBLE = Path(__file__).parents[2] / "ansible"
PROGRAMS = Path(sys.executable).parent
GROUPS = (
    "slurm_controller",
    "slurm_compute",
    "hpcplat_database",
    "hpcplat_service",
    "hpcplat_proxy",
    "hpcplat_login",
)
SECONDS = 900  # for one run, the packages' download included


def environment() -> dict[str, str]:
    """Return an environment for Ansible: nothing of the person's own settings."""
    kept = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
    kept |= {k: v for k, v in os.environ.items() if k.startswith(("PIP_", "SSL_"))}
    return kept | {
        "PATH": f"{PROGRAMS}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LC_ALL": "C.UTF-8",
        "ANSIBLE_CONFIG": str(ANSIBLE / "ansible.cfg"),
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_PIPELINING": "1",
    }


@dataclass(frozen=True)
class Site:
    """A site whose every file is below ``folder``."""

    folder: Path

    @property
    def variables(self) -> dict[str, Any]:
        """What the playbook is told."""
        found: dict[str, Any] = yaml.safe_load(
            (self.folder / "variables.yml").read_text()
        )
        return found

    def converge(self, *words: str) -> str:
        """Run the playbook and return what it prints; it must not fail."""
        inventory = self.folder / "inventory.yml"
        host = {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
        }
        groups = {name: {"hosts": {"here": None}} for name in GROUPS}
        inventory.write_text(yaml.safe_dump({**groups, "all": {"vars": host}}))
        argv = [str(PROGRAMS / "ansible-playbook"), "-i", str(inventory)]
        argv += ["-e", f"@{self.folder}/variables.yml", *words]  # the last one holds
        done = subprocess.run(
            [*argv, "site.yml"],
            cwd=ANSIBLE,
            env=environment(),
            timeout=SECONDS,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    def run(self, *argv: str | Path, **more: str) -> str:
        """Run a program of the site and return its output; it must not fail."""
        conf = {"SLURM_CONF": str(self.folder / "etc/slurm/slurm.conf")}
        done = subprocess.run(
            argv,
            env=environment() | conf | more,
            timeout=120,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    def hpcplat(self, *words: str) -> Any:  # noqa: ANN401 - JSON
        """Run the installed command with `--json`."""
        program = self.folder / "usr/local/bin/hpcplat"
        url = {"HPCPLAT_URL": self.variables["cli_url"]}
        return json.loads(self.run(program, *words, "--json", **url))
