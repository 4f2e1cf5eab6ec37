"""The configuration files of a local cluster, from the templates that sites use too."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jinja2

from hpcplat.cluster.folder import ClusterFolder
from hpcplat.cluster.ports import Ports
from hpcplat.cluster.spec import ClusterSpec, NodeSpec

ADDRESS = "127.0.0.1"
DATABASE = "slurm_acct_db"
# slurm.conf lines that ClusterSpec.settings may replace.
SETTINGS = {
    # Several nodes on one host, and more CPUs than it has.
    "SlurmdParameters": "config_overrides",
    "SelectType": "select/cons_tres",
    "SelectTypeParameters": "CR_Core_Memory",
    "DefMemPerCPU": "1024",
    "ProctrackType": "proctrack/linuxproc",
    "TaskPlugin": "task/none",
    "MpiDefault": "none",
    "JobAcctGatherType": "jobacct_gather/linux",
    "JobAcctGatherFrequency": "10",
    "PropagateResourceLimits": "NONE",
    # Nothing outside this machine is listened to.
    "CommunicationParameters": "NoCtldInAddrAny,NoInAddrAny",
    # Quick enough for tests, yet a busy machine's slurmd isn't taken for dead.
    "SchedulerParameters": "sched_interval=2,bf_interval=2,batch_sched_delay=0",
    "SlurmdTimeout": "30",
    "MessageTimeout": "20",
    "KillWait": "5",
    "ReturnToService": "2",
    # Who goes first: the QOS above all, then the share, then the age. Who is pushed
    # out of the way goes back into the queue.
    "SchedulerType": "sched/backfill",
    "PreemptType": "preempt/qos",
    "PreemptMode": "REQUEUE",
    "PriorityType": "priority/multifactor",
    "PriorityWeightQOS": "100000",
    "PriorityWeightFairshare": "10000",
    "PriorityWeightAge": "1000",
    "PriorityDecayHalfLife": "7-0",
    "PriorityCalcPeriod": "1",
}


@dataclass(frozen=True, slots=True)
class Layout:
    """All that the configuration files say: the spec, where it lies, who runs it."""

    spec: ClusterSpec
    folder: ClusterFolder
    ports: Ports
    user: str
    version: tuple[int, int]


def render_all(layout: Layout) -> dict[str, str]:
    """Return the text of each configuration file by its name."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("hpcplat.cluster"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,  # as Ansible renders them
        keep_trailing_newline=True,
        autoescape=False,  # plain text, not HTML
    )
    values = variables(layout)
    names = ("slurm.conf", "gres.conf", "slurmdbd.conf", "cgroup.conf")
    return {
        name: environment.get_template(f"{name}.j2").render(values) for name in names
    }


def variables(layout: Layout) -> dict[str, Any]:
    """Return the templates' variables; their heads say what each means."""
    host = socket.gethostname().split(".")[0]
    folder, spec = layout.folder, layout.spec
    return {
        "slurm_cluster_name": spec.name,
        "slurm_controller_host": host,
        "slurm_controller_address": ADDRESS,
        "slurm_controller_port": layout.ports.slurmctld,
        "slurm_user": layout.user,
        "slurmd_user": layout.user,
        "slurm_state_folder": folder.state,
        "slurm_spool_folder": folder.spools / "%n",
        "slurm_run_folder": folder.run,
        "slurm_log_folder": folder.logs,
        "slurm_munge_socket": folder.munge_socket,
        # The life of a job's credential is also what a requeued job has to wait.
        "slurm_auth_info": [f"cred_expire={spec.requeue_delay}"],
        "slurm_jwt_key": folder.jwt_key,
        "slurm_dbd_host": host,
        "slurm_dbd_address": ADDRESS,
        "slurm_dbd_port": layout.ports.slurmdbd,
        "slurm_storage_host": "localhost",
        "slurm_storage_name": DATABASE,
        "slurm_storage_user": layout.user,
        "slurm_storage_password": "",
        "slurm_tres": ["gres/gpu", *(f"gres/gpu:{kind}" for kind in _gpu_types(spec))],
        "slurm_settings": {**SETTINGS, **spec.settings},
        "slurm_cgroup_settings": _cgroup_settings(layout.version),
        "slurm_nodes": list(_nodes(layout, host)),
        "slurm_gpus": list(_gpus(layout)),
        "slurm_partitions": [_partition(spec)],
    }


def _gpu_types(spec: ClusterSpec) -> list[str]:
    return sorted({node.gpu_type for node in spec.nodes if node.gpus})


def _cgroup_settings(version: tuple[int, int]) -> Mapping[str, str]:
    return {"CgroupPlugin": "disabled"} if version >= (24, 5) else {}


def _nodes(layout: Layout, host: str) -> Iterator[Mapping[str, Any]]:
    for number, node in enumerate(layout.spec.nodes, start=1):
        yield {
            "name": node.name,
            "hostname": host,
            "address": ADDRESS,
            "port": layout.ports.slurmd(number),
            "cpus": layout.spec.cpus_per_node,
            "memory_mib": layout.spec.memory_mib_per_node,
            "gres": f"gpu:{node.gpu_type}:{node.gpus}" if node.gpus else "",
            # The scheduler takes light nodes first, so spares are left for last.
            "weight": 10 if node.is_spare else 1,
            "features": _features(node),
        }


def _features(node: NodeSpec) -> list[str]:
    kinds = [node.gpu_type] if node.gpus else []
    return [*kinds, "spare"] if node.is_spare else kinds


def _gpus(layout: Layout) -> Iterator[Mapping[str, Any]]:
    for node in layout.spec.nodes:
        if node.gpus:
            last = f"[0-{node.gpus - 1}]" if node.gpus > 1 else "0"
            yield {
                "nodes": node.name,
                "type": node.gpu_type,
                "file": f"{layout.folder.gpus}/gpu{last}",
            }


def _partition(spec: ClusterSpec) -> Mapping[str, Any]:
    return {
        "name": spec.partition,
        "nodes": [node.name for node in spec.nodes],
        "default": True,
        "max_time": "7-00:00:00",
        "default_time": "01:00:00",
        # Shares are charged by GPUs, the scarce thing; 4 CPUs weigh as one.
        "options": {"TRESBillingWeights": "CPU=0.25,GRES/gpu=1.0"},
    }
