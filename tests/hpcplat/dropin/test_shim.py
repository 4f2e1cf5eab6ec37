"""The shim finds the real sbatch and never calls itself, whatever stands in its way."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from hpcplat.dropin import shim
from hpcplat.errors import ConflictError, NotFoundError, UnavailableError

REAL = """#!/bin/sh
echo "$@" >> "$CALLS"
case "$*" in *--help*) echo '  --zone=name   zone';; *) echo "Submitted batch job 7";; esac
"""


@dataclass(frozen=True)
class Site:
    """A PATH with a shim ahead of a small fake sbatch that counts its calls."""

    root: Path

    @property
    def env(self) -> dict[str, str]:
        return {
            "PATH": f"{self.root / 'shim'}:{self.root / 'real'}:/usr/bin:/bin",
            "CALLS": str(self.root / "calls"),
            "HPCPLAT_DATA": str(self.root / "data"),
            "HOME": str(self.root),
        }

    def sbatch(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sbatch", *words],
            env=self.env,
            cwd=self.root,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )

    def calls(self) -> list[str]:
        return (self.root / "calls").read_text().splitlines()

    def records(self) -> list[Path]:
        return list((self.root / "data" / "sbatch").glob("hpc-*.json"))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    for name in ("shim", "real"):
        (tmp_path / name).mkdir()
    script(tmp_path / "real" / "sbatch", REAL)
    shim.install(tmp_path / "shim")
    return Site(tmp_path)


def script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def test_the_real_one_is_called_once(site: Site) -> None:
    assert site.sbatch("--wrap", "true").stdout == "Submitted batch job 7\n"
    (call,) = site.calls()
    assert call.startswith("--comment=hpc-")
    assert call.endswith("--wrap true")
    assert len(site.records()) == 1


def test_a_copy_and_a_link_of_the_shim_are_known(site: Site) -> None:
    for name in ("copy", "link"):
        (site.root / name).mkdir()
    shutil.copy(site.root / "shim" / "sbatch", site.root / "copy" / "sbatch")
    (site.root / "link" / "sbatch").symlink_to(site.root / "shim" / "sbatch")
    folders = ("link", "copy", "shim", "real")
    path = os.pathsep.join(str(site.root / name) for name in folders)
    assert shim.real_sbatch(path) == site.root / "real" / "sbatch"


@pytest.mark.parametrize("call", ["sbatch", "exec sbatch"])
@pytest.mark.parametrize("own_path", ["", "PATH={shim}:{real}:$PATH\n"])
def test_a_wrapper_that_calls_sbatch_by_name_ends_at_the_real_one(
    site: Site, call: str, own_path: str
) -> None:
    """Shim, wrapper, shim once more, real: each once, and one job tracked."""
    root = site.root
    (root / "wrapper").mkdir()
    folders = own_path.format(shim=root / "shim", real=root / "real")
    script(
        root / "wrapper" / "sbatch", f'#!/bin/sh\n{folders}{call} --account=site "$@"\n'
    )
    path = f"{root / 'shim'}:{root / 'wrapper'}:{root / 'real'}:/usr/bin:/bin"
    done = subprocess.run(
        ["sbatch", "--wrap", "true"],
        env={**site.env, "PATH": path},
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout == "Submitted batch job 7\n"
    (call_made,) = site.calls()
    assert call_made.count("--account=site") == 1
    assert len(site.records()) == 1


def test_what_submits_nothing_is_not_tracked(site: Site) -> None:
    for words in (["--help"], ["--test-only", "--wrap", "true"], ["-V"], ["gone.sh"]):
        site.sbatch(*words)
    assert site.records() == []


def test_an_unknown_option_takes_its_value_along(site: Site) -> None:
    script(site.root / "job.sh", "#!/bin/sh\n#SBATCH -J named\n")
    site.sbatch("--zone", "east", "job.sh")
    assert site.calls()[-1].endswith("--zone east job.sh")
    assert len(site.records()) == 1


def test_a_comment_of_ones_own_stays(site: Site) -> None:
    site.sbatch("--comment=mine", "--wrap", "true")
    assert site.calls() == ["--comment=mine --wrap true"]


def test_install_refuses_to_replace_anything_else(site: Site) -> None:
    with pytest.raises(ConflictError, match="no shim of hpcplat"):
        shim.install(site.root / "real")
    with pytest.raises(NotFoundError, match="mkdir -p"):
        shim.install(site.root / "gone")
    shim.install(site.root / "shim")  # a second time is fine


def test_without_a_real_one_it_says_so(site: Site) -> None:
    with pytest.raises(UnavailableError, match="real sbatch is not on PATH"):
        shim.real_sbatch(str(site.root / "shim"))


def test_nobody_called_us_here() -> None:
    assert shim.callers() == []
