"""The folder of a local cluster: every file name in one class."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hpcplat.errors import InvalidError

# sun_path of struct sockaddr_un holds 108 bytes with the closing NUL (unix(7)).
LONGEST_SOCKET_PATH = 107


@dataclass(frozen=True, slots=True)
class ClusterFolder:
    """Where each file of a cluster lies; ``path`` is the folder itself."""

    path: Path

    @property
    def record(self) -> Path:
        """What the cluster is (JSON); the mark of a folder that is ours."""
        return self.path / "cluster.json"

    def is_unused(self) -> bool:
        """Whether it is empty, but for a record that was never written to its end."""
        aside = f".{self.record.name}."
        return self.path.is_dir() and all(
            part.name.startswith(aside) for part in self.path.iterdir()
        )

    @property
    def lock(self) -> Path:
        """Held while the cluster is started or taken down; beside the folder."""
        return self.path.parent / f".{self.path.name}.lock"

    @property
    def configuration(self) -> Path:
        """The folder of slurm.conf and its kin."""
        return self.path / "etc"

    @property
    def slurm_conf(self) -> Path:
        """The file that SLURM_CONF names."""
        return self.configuration / "slurm.conf"

    @property
    def programs(self) -> Path:
        """Small programs that enter the change-root folder, for PATH."""
        return self.path / "bin"

    @property
    def enter(self) -> Path:
        """The script that enters the change-root folder; seen inside it too."""
        return self.path / "enter.sh"

    @property
    def keys(self) -> Path:
        """The secrets; nobody else may look inside."""
        return self.path / "keys"

    @property
    def munge_key(self) -> Path:
        """The key of munged."""
        return self.keys / "munge.key"

    @property
    def jwt_key(self) -> Path:
        """The key that signs slurmrestd's tokens."""
        return self.keys / "jwt.key"

    @property
    def munge(self) -> Path:
        """The folder of munged's socket; others must be able to enter it."""
        return self.path / "munge"

    @property
    def munge_socket(self) -> Path:
        """Where clients find munged."""
        return self.munge / "socket"

    @property
    def database(self) -> Path:
        """MariaDB's data folder, with its socket and pid file."""
        return self.path / "db"

    @property
    def database_temporary(self) -> Path:
        """MariaDB's own folder for temporary tables.

        In a shared one, a server that starts removes those of all others.
        """
        return self.path / "db-tmp"

    @property
    def database_socket(self) -> Path:
        """Where slurmdbd finds MariaDB."""
        return self.database / "socket"

    @property
    def database_setup(self) -> Path:
        """What MariaDB does at each start (SQL)."""
        return self.configuration / "database.sql"

    @property
    def state(self) -> Path:
        """The slurmctld's state."""
        return self.path / "state"

    @property
    def spools(self) -> Path:
        """The slurmds' spool folders, one a node."""
        return self.path / "spool"

    def spool(self, node: str) -> Path:
        """Return the spool folder of a node; its step daemons' sockets lie there."""
        return self.spools / node

    @property
    def run(self) -> Path:
        """The pid files."""
        return self.path / "run"

    @property
    def logs(self) -> Path:
        """All logs."""
        return self.path / "log"

    def log(self, daemon: str) -> Path:
        """Return the log of a daemon (``slurmctld``, ``slurmd-n1``)."""
        return self.logs / f"{daemon}.log"

    @property
    def gpus(self) -> Path:
        """What stands for the GPUs: gpu0, gpu1 and so on."""
        return self.path / "gpu"

    def longest_socket(self, nodes: list[str]) -> Path:
        """Return the longest socket path that will be made: a step daemon's."""
        longest = max(nodes, key=len)
        return self.spool(longest) / f"{longest}_4294967295.4294967295"

    def refuse_too_long(self, nodes: list[str]) -> None:
        """Raise InvalidError when a socket's path would not fit."""
        excess = len(bytes(self.longest_socket(nodes))) - LONGEST_SOCKET_PATH
        if excess > 0:
            raise InvalidError(
                f"The folder {self.path} is {excess} bytes too long: a Unix socket's "
                f"path holds {LONGEST_SOCKET_PATH}.",
                "Choose a shorter one (--folder).",
            )
