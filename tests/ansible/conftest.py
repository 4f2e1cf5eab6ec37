"""A site of its own below one temporary folder, converged by the playbook for real."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from hpcplat.cluster.configuration import SETTINGS
from hpcplat.slurm.versions import parse_version
from tests.ansible.site import ANSIBLE, Site

PROJECT = ANSIBLE.parent
PACKAGES = ("hpcplat", "launchers", "server", "storage", "sbatch_templates")
NAME = "site.test"
PORTS = 6


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel of the working tree, in a copy: a build leaves files behind."""
    copy = tmp_path_factory.mktemp("source")
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(PROJECT / name, copy)
    for name in PACKAGES:
        unwanted = shutil.ignore_patterns("__pycache__")
        shutil.copytree(PROJECT / name, copy / name, ignore=unwanted)
    words = ["wheel", "--quiet", "--no-deps", "--wheel-dir", f"{copy}/dist", str(copy)]
    subprocess.run([sys.executable, "-m", "pip", *words], check=True)
    (built,) = (copy / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="session")
def site(wheel: Path) -> Iterator[Site]:
    """Converge a whole site once; its first run is `site.first`."""
    for program in ("slurmctld", "nginx", "mariadbd"):
        if shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin") is None:
            pytest.skip(f"{program} is not installed")
    # Short, for Unix sockets; open, for MariaDB and PostgreSQL run as others.
    folder = Path(tempfile.mkdtemp(prefix="hpcplat-site-"))
    folder.chmod(0o755)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        stack.callback(_end_all_below, folder)
        stack.enter_context(_mariadb(folder))
        stack.enter_context(_postgresql(folder))
        _prepare_proxy(folder)
        (folder / "variables.yml").write_text(yaml.safe_dump(_variables(folder, wheel)))
        found = Site(folder)
        found.converge()
        yield found


def _variables(folder: Path, wheel: Path) -> dict[str, Any]:
    """Return what makes the roles work below the folder, as nobody but ourselves."""
    user = pwd.getpwuid(os.geteuid()).pw_name
    ports = _free_ports()
    return {
        **_safety(folder, user),
        **_slurm(folder, user, ports[:4]),
        "site_wheel": str(wheel),
        "package_python": sys.executable,
        "package_extras_of_service": ["server", "postgresql"],
        "package_extras_of_nodes": [],
        "postgresql_configuration": str(folder / "pg"),
        "postgresql_socket_folder": str(folder / "sql"),
        "postgresql_administrator": "",
        "postgresql_unix_users": [user],
        "hpcplat_user": user,
        "hpcplat_database": f"postgresql://hpcplat@/hpcplat?host={folder}/sql",
        "hpcplat_runs": str(folder / "shared/runs"),
        "hpcplat_datasets": str(folder / "shared/datasets"),
        "hpcplat_environment": {"SLURM_CONF": str(folder / "etc/slurm/slurm.conf")},
        "hpcplat_aim": False,
        "hpcplat_backups": 2,
        "proxy_name": NAME,
        "proxy_certificate": str(folder / "tls/cert.pem"),
        "proxy_certificate_key": str(folder / "tls/key.pem"),
        "proxy_port": ports[4],
        "proxy_plain_port": 0,
        "cli_url": f"unix:{folder}/run/hpcplat/service.sock",
    }


def _safety(folder: Path, user: str) -> dict[str, Any]:
    return {
        "site_prefix": str(folder),
        "site_become": False,
        "site_manager": "direct",
        "site_manage_packages": False,
        "site_manage_users": False,
        "slurm_root_user": user,
        "slurm_munge_user": user,
        "slurm_user": user,
    }


def _slurm(folder: Path, user: str, ports: list[int]) -> dict[str, Any]:
    asked = subprocess.run(
        ["/usr/sbin/slurmctld", "-V"], check=True, capture_output=True
    )
    plain = parse_version(asked.stdout.decode()) < (24, 5)
    host = socket.gethostname().split(".")[0]
    nodes = [
        {
            "name": name,
            "hostname": host,
            "address": "127.0.0.1",
            "port": port,
            "cpus": 2,
            "memory_mib": 1024,
            "gres": "",
            "weight": 1,
            "features": [],
        }
        for name, port in zip(("c1", "c2"), ports[2:], strict=True)
    ]
    partition = {
        "name": "all",
        "nodes": ["c1", "c2"],
        "default": True,
        "options": {},
        "max_time": "1-00:00:00",
        "default_time": "00:10:00",
    }
    return {
        "slurm_cluster_name": "site",
        "slurm_controller_host": host,
        "slurm_controller_address": "127.0.0.1",
        "slurm_controller_port": ports[0],
        "slurm_dbd_port": ports[1],
        "slurm_munge_secret": b64encode(secrets.token_bytes(128)).decode(),
        "slurm_jwt_secret": b64encode(secrets.token_bytes(32)).decode(),
        "slurm_nodes": nodes,
        "slurm_nodes_here": ["c1", "c2"],
        "slurm_partitions": [partition],
        "slurm_accounts": {"lab": [user]},
        # Several nodes on one host, without control groups.
        "slurm_settings": SETTINGS | {"DefMemPerCPU": "256"},
        "slurm_cgroup_settings": {} if plain else {"CgroupPlugin": "disabled"},
        "slurm_mariadb_socket": str(folder / "db/socket"),
    }


def _free_ports() -> list[int]:
    with ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(PORTS)]
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in held]


def _prepare_proxy(folder: Path) -> None:
    """Lay out what Debian's package and the site bring: nginx.conf, a certificate."""
    for name in ("etc/nginx", "tls", "run", "tmp"):
        (folder / name).mkdir(parents=True)
    # Its workers as somebody else, as Debian has them: the service must not take
    # those who come through the proxy for itself.
    user = "user nobody nogroup;" if os.geteuid() == 0 else ""
    places = "\n".join(
        f"{kind}_temp_path {folder}/tmp/{kind};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "etc/nginx/nginx.conf").write_text(
        f"{user}\npid {folder}/run/nginx.pid;\nerror_log {folder}/tmp/error.log;\n"
        f"events {{}}\nhttp {{ access_log off;\n{places}\n"
        f"include {folder}/etc/nginx/conf.d/*.conf; }}\n"
    )
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes"),
            *("-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}"),
            *("-keyout", folder / "tls/key.pem", "-out", folder / "tls/cert.pem"),
        ],
        check=True,
        capture_output=True,
    )
    (folder / "tls/key.pem").chmod(0o600)


@contextmanager
def _mariadb(folder: Path) -> Iterator[None]:
    is_root = os.geteuid() == 0
    user = "mysql" if is_root else pwd.getpwuid(os.geteuid()).pw_name
    me = pwd.getpwuid(os.geteuid()).pw_name
    data, temporary = folder / "db", folder / "db-tmp"
    for made in (data, temporary):
        made.mkdir()
        if is_root:
            shutil.chown(made, user)
    folders = [f"--datadir={data}", f"--tmpdir={temporary}"]
    common = ["--no-defaults", *folders, f"--user={user}"]
    subprocess.run(
        [
            *("mariadb-install-db", *common, "--skip-test-db"),
            "--auth-root-authentication-method=socket",
            f"--auth-root-socket-user={me}",
        ],
        check=True,
        capture_output=True,
    )
    if is_root:
        shutil.chown(data, user)
    options = [f"--socket={data}/socket", f"--pid-file={data}/pid", "--skip-networking"]
    argv = ["/usr/sbin/mariadbd", *common, *options]
    with _running(argv, folder / "mariadb.log", lambda: (data / "socket").exists()):
        yield


@contextmanager
def _postgresql(folder: Path) -> Iterator[None]:
    """Run a PostgreSQL that trusts all, until the role says otherwise."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not programs:
        pytest.skip("PostgreSQL is not installed")
    user = "postgres" if os.geteuid() == 0 else None
    me = pwd.getpwuid(os.geteuid()).pw_name
    for name in ("pg", "sql"):
        (folder / name).mkdir()
        if user:
            shutil.chown(folder / name, user)
    init = [f"{programs[-1]}/initdb", "-D", f"{folder}/pg", "-U", me, "-A", "trust"]
    subprocess.run(
        [*init, "-N"], check=True, stdout=subprocess.DEVNULL, user=user, cwd="/"
    )
    argv = [programs[-1] / "postgres", "-D", folder / "pg", "-h", ""]
    argv += ["-k", folder / "sql", "-c", "fsync=off"]
    place = folder / "sql/.s.PGSQL.5432"
    # SIGINT is its fast shutdown: SIGTERM's waits for every client, and the site's
    # service is one until all of the site is ended.
    with _running(argv, folder / "postgresql.log", place.exists, user, signal.SIGINT):
        yield


@contextmanager
def _running(
    argv: list[Any],
    log: Path,
    is_up: Callable[[], bool],
    user: str | None = None,
    end: signal.Signals = signal.SIGTERM,
) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            argv, stdout=output, stderr=output, user=user, cwd="/"
        )
        try:
            for _ in range(600):
                if is_up() or process.poll() is not None:
                    break
                time.sleep(0.1)
            assert process.poll() is None, log.read_text()
            yield
        finally:
            process.send_signal(end)
            process.wait(30)


def _end_all_below(folder: Path) -> None:
    """Kill what the site started: each names the folder, or has it from who did."""
    named = [one for one in psutil.process_iter() if _is_below(one, str(folder))]
    # nginx's workers name nothing: their parent does.
    found = {*named, *(child for one in named for child in _children(one))}
    for process in found:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(found, 10)


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _is_below(process: psutil.Process, folder: str) -> bool:
    try:
        words = [*process.cmdline(), *process.environ().values()]
    except psutil.Error:
        return False
    return process.pid != os.getpid() and any(folder in word for word in words)
