"""The order in which a cluster is made and started."""

from __future__ import annotations

import secrets
import shutil
from functools import partial

from hpcplat import files, processes
from hpcplat.cluster import accounting, configuration, daemons
from hpcplat.cluster.clients import Clients
from hpcplat.cluster.configuration import Layout
from hpcplat.cluster.daemons import Daemon
from hpcplat.cluster.place import Place
from hpcplat.cluster.ports import answers, socket_answers
from hpcplat.errors import UnavailableError


def lay_out(layout: Layout, place: Place) -> None:
    """Make the folders, keys, stand-ins for GPUs and configuration files."""
    folder = layout.folder
    for part in (folder.configuration, folder.munge, folder.run, folder.logs):
        part.mkdir()
    for part in (folder.spools, folder.gpus, folder.state):
        part.mkdir()
    folder.keys.mkdir(mode=0o700)
    files.write_whole(folder.munge_key, secrets.token_bytes(128), mode=0o600)
    files.write_whole(folder.jwt_key, secrets.token_bytes(32), mode=0o600)
    _lay_out_gpus(layout)
    for name, text in configuration.render_all(layout).items():
        mode = 0o600 if name == "slurmdbd.conf" else 0o644
        files.write_whole(folder.configuration / name, text, mode=mode)
    place.prepare(folder)


def _lay_out_gpus(layout: Layout) -> None:
    """Slurm only looks whether a GPU's file is a character device: any one does."""
    for number in range(max(node.gpus for node in layout.spec.nodes)):
        (layout.folder.gpus / f"gpu{number}").symlink_to("/dev/null")


def start_all(layout: Layout, place: Place) -> None:
    """Start every daemon, each as soon as what it needs is there."""
    munged = daemons.munged(layout)
    munge_pid = daemons.start(munged, layout, place)
    start_mariadb(layout, place)
    socket = str(layout.folder.munge_socket)
    daemons.wait_for(partial(socket_answers, socket), munge_pid, munged, layout)
    start_listener(daemons.slurmdbd(layout), layout.ports.slurmdbd, layout, place)
    sacctmgr = Clients(layout.folder, place).sacctmgr
    accounting.register(sacctmgr, layout.spec.name, layout.spec.account, layout.user)
    start_listener(daemons.slurmctld(layout), layout.ports.slurmctld, layout, place)
    _start_nodes(layout, place)
    start_listener(daemons.slurmrestd(layout), layout.ports.slurmrestd, layout, place)


def _start_nodes(layout: Layout, place: Place) -> None:
    started = [
        (daemon, daemons.start(daemon, layout, place), layout.ports.slurmd(number))
        for number, node in enumerate(layout.spec.nodes, start=1)
        for daemon in [daemons.slurmd(layout, node.name)]
    ]
    for daemon, pid, port in started:
        daemons.wait_for(partial(answers, port), pid, daemon, layout)


def start_node(layout: Layout, place: Place, node: str) -> None:
    """Start one node's slurmd and wait until it listens."""
    names = [one.name for one in layout.spec.nodes]
    port = layout.ports.slurmd(names.index(node) + 1)
    start_listener(daemons.slurmd(layout, node), port, layout, place)


def start_listener(daemon: Daemon, port: int, layout: Layout, place: Place) -> None:
    """Start a daemon and wait until it listens on its port."""
    pid = daemons.start(daemon, layout, place)
    daemons.wait_for(partial(answers, port), pid, daemon, layout)


def start_mariadb(layout: Layout, place: Place) -> None:
    """Make an empty database that the calling user is the administrator of."""
    # MariaDB refuses to run as root; its package brings a user for that.
    mariadb_user = "mysql" if layout.user == "root" else layout.user
    layout.folder.database.mkdir(mode=0o755)
    layout.folder.database_temporary.mkdir(mode=0o755)
    if layout.user == "root":
        shutil.chown(layout.folder.database_temporary, mariadb_user, mariadb_user)
    # slurmdbd would make the database itself, after a log-in that fails; some releases
    # of MariaDB's client library (3.4 of MariaDB 11.8.9) lose their options by that.
    create = f"CREATE DATABASE IF NOT EXISTS {configuration.DATABASE};\n"
    files.write_whole(layout.folder.database_setup, create)
    _install_database(layout, place, mariadb_user)
    if layout.user == "root":
        shutil.chown(layout.folder.database, mariadb_user, mariadb_user)
    daemon = daemons.mariadbd(layout, mariadb_user)
    pid = daemons.start(daemon, layout, place)
    socket = str(layout.folder.database_socket)
    daemons.wait_for(partial(socket_answers, socket), pid, daemon, layout)


def _install_database(layout: Layout, place: Place, mariadb_user: str) -> None:
    done = processes.run(
        place.command(
            [
                "mariadb-install-db",
                "--no-defaults",
                f"--datadir={layout.folder.database}",
                f"--tmpdir={layout.folder.database_temporary}",
                f"--user={mariadb_user}",
                # The caller is known by the uid at the socket: no password anywhere.
                "--auth-root-authentication-method=socket",
                f"--auth-root-socket-user={layout.user}",
                "--skip-test-db",
            ]
        ),
        timeout=120,
    )
    if not done.ok:
        raise UnavailableError(
            f"mariadb-install-db failed: {done.complaint()}",
            "See whether the disk is full (df).",
        )
