"""Which programs and plugins the cluster needs, and the packages that bring them."""

from __future__ import annotations

from collections.abc import Iterator

from hpcplat.cluster.place import ChangeRoot, Place
from hpcplat.errors import UnavailableError

# Program: Debian's and Ubuntu's package.
PROGRAMS = {
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "slurmdbd": "slurmdbd",
    "slurmrestd": "slurmrestd",
    "sbatch": "slurm-client",
    "sacctmgr": "slurm-client",
    "munged": "munge",
    "mariadbd": "mariadb-server",
    "mariadb-install-db": "mariadb-server",
}
# Plugin file: package. Looked for only where the plugin folder has Debian's name.
PLUGINS = {
    "select_cons_tres.so": "slurm-wlm-basic-plugins",
    "accounting_storage_mysql.so": "slurm-wlm-mysql-plugin",
    "auth_jwt.so": "slurm-wlm-jwt-plugin",
}
PACKAGES = sorted({*PROGRAMS.values(), *PLUGINS.values()})
PLUGIN_FOLDERS = "usr/lib/*/slurm-wlm"


def require(place: Place) -> None:
    """Raise UnavailableError naming every missing program and the line to run."""
    missing = dict([*_missing_programs(place), *_missing_plugins(place)])
    if not missing:
        return
    packages = " ".join(sorted(set(missing.values())))
    enter = f"chroot {place.root} " if isinstance(place, ChangeRoot) else ""
    raise UnavailableError(
        f"The cluster needs {', '.join(missing)}, not found in {place.top}.",
        f"Run as root: {enter}apt-get install --no-install-recommends {packages}",
    )


def _missing_programs(place: Place) -> Iterator[tuple[str, str]]:
    for program, package in PROGRAMS.items():
        if place.find(program) is None:
            yield program, package


def _missing_plugins(place: Place) -> Iterator[tuple[str, str]]:
    folders = list(place.top.glob(PLUGIN_FOLDERS))
    for plugin, package in PLUGINS.items():
        if folders and not any((folder / plugin).exists() for folder in folders):
            yield plugin, package
