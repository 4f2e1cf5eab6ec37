"""Why a job waits: one table of Slurm's pending reasons, in words.

The names are those of Slurm's job_reason_string (src/common/job_state_reason.c) of
22.05 to 26.05. Families (``AssocGrpGRES``, ``QOSMaxGRESPerUser``) are put together from
whose limit it is and what it counts, so that every member is told.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

WORDS: Final[Mapping[str, str]] = {
    "None": "It has not been looked at yet.",
    "Priority": "Jobs of higher priority wait before it.",
    "Resources": "It is next, and waits for nodes to become free.",
    "Dependency": "It waits for another job.",
    "DependencyNeverSatisfied": "The job that it waits for can't end as it asks.",
    "BeginTime": "Its begin time has not come yet.",
    "JobHeldUser": "Somebody holds it: release it.",
    "JobHeldAdmin": "An administrator holds it, or it was requeued too often.",
    "JobHoldMaxRequeue": "It was requeued too often (MaxBatchRequeue) and is held.",
    "Licenses": "It waits for licenses.",
    "Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs_in_higher_priority"
    "_partitions": "The nodes that it needs are down, drained or kept for others.",
    "ReqNodeNotAvail": "A node that it asks for is down, drained or reserved.",
    "NodeDown": "A node that it needs is down.",
    "Reservation": "Its reservation has not begun.",
    "ReservationDeleted": "Its reservation was deleted.",
    "InvalidAccount": "Its account is not valid (any more).",
    "InvalidQOS": "Its QOS is not valid (any more).",
    "AccountNotAllowed": "The partition is not open to its account.",
    "QOSNotAllowed": "The partition or account does not allow its QOS.",
    "PartitionDown": "Its partition is down.",
    "PartitionInactive": "Its partition is switched off.",
    "PartitionNodeLimit": "It asks for more nodes than its partition gives.",
    "PartitionTimeLimit": "It asks for more time than its partition gives.",
    "PartitionConfig": "Its partition can't run it as it is set up.",
    "BadConstraints": "No node can satisfy what it asks for.",
    "Cleaning": "What its last start left behind is cleaned up first.",
    "Prolog": "The nodes are being prepared.",
    "NodesNotReady": "Its nodes are not ready yet.",
    "BootFail": "A node did not boot.",
    "FrontEndDown": "No front end can run it.",
    "JobArrayTaskLimit": "The array's own limit of tasks at once is reached.",
    "JobLaunchFailure": "It could not be started.",
    "DeadLine": "It can't end before its deadline any more.",
    "FedJobLock": "The clusters of the federation agree on it.",
    "SchedDefer": "It waits for the scheduler's next look.",
    "MaxJobCount": "The site has as many jobs as it can hold.",
    "BurstBufferResources": "It waits for room in the burst buffer.",
    "BurstBufferStageIn": "Its files are brought to the burst buffer.",
    "MaxMemPerLimit": "It asks for more memory than it may have.",
    "MaxBBSizePerUser": "Its user's share of the burst buffer is used.",
    "MaxPoweredUpNodes": "No more nodes may be powered up now.",
    "PowerNotAvail": "There is not enough power now.",
    "SystemFailure": "Slurm failed at it; ask an administrator.",
    "TimeLimit": "It reached its time limit.",
    "NonZeroExitCode": "It ended with an exit code other than 0.",
    "RaisedSignal": "A signal ended it.",
    "Preempted": "A job of higher priority pushed it out; it waits to run again.",
    "AccountingPolicy": "A limit of its account, or its user's, is reached.",
    "AssociationJobLimit": "Its account or user runs as many jobs as allowed.",
    "AssociationResourceLimit": "A limit of its account or user is reached.",
    "AssociationTimeLimit": "Its account or user has used up its time.",
    "AssocMaxJobsLimit": "Its user runs as many jobs in this account as allowed.",
    "MaxCpuPerAccount": "Its account has the CPUs that its QOS allows.",
    "WaitingForScheduling": "It has not been looked at yet.",
    "QOSJobLimit": "Its QOS runs as many jobs as allowed.",
    "QOSResourceLimit": "A limit of its QOS is reached.",
    "QOSTimeLimit": "Its QOS has used up its time.",
    "QOSUsageThreshold": "Its user has used more than its QOS asks for.",
}

_WHOSE: Final[Mapping[str, str]] = {
    "Assoc": "its account (or its user in it)",
    "QOS": "its QOS",
    "Part": "its partition",
}
_WHAT: Final[Mapping[str, str]] = {
    "GRES": "GPUs or other generic resources",
    "Gres": "GPUs or other generic resources",
    "Cpu": "CPUs",
    "CPU": "CPUs",
    "Mem": "memory",
    "Memory": "memory",
    "Node": "nodes",
    "Jobs": "jobs",
    "Submit": "jobs, waiting ones too",
    "SubmitJobs": "jobs, waiting ones too",
    "Wall": "time",
    "WallDuration": "time",
    "Energy": "energy",
    "BB": "burst buffer",
    "BBCPU": "burst buffer",
    "License": "licenses",
    "Lic": "licenses",
    "Billing": "billing units",
    "Unknown": "a resource",
    "UnknownRes": "a resource",
    "Prio": "priority",
    "Threshold": "usage",
}
_FAMILY: Final = re.compile(
    r"(?P<whose>Assoc|QOS)(?P<scope>Grp|Max|Min)"
    r"(?P<what>GRES|Gres|CPU|Cpu|Memory|Mem|Node|SubmitJobs|Submit|Jobs|WallDuration|Wall|Energy"
    r"|BBCPU|BB|License|Lic|Billing|UnknownRes|Unknown|Prio|Threshold)"
    r"(?P<minutes>RunMinutes|RunMin|Minutes|Mins|Min)?"
    r"(?:NotSatisfied)?(?:Job)?(?:Limit)?"
    r"(?P<per>Per(?:Account|User|Job|Node))?(?:Limit)?"
)
_PER: Final = {
    "PerUser": " for one user",
    "PerAccount": " for one account",
    "PerJob": " for one job",
    "PerNode": " on one node",
}
_NODES: Final = re.compile(r"UnavailableNodes:(?P<nodes>[\w\[\],.\-]*)")
# These stay until somebody changes the job or the limit: more waiting does not help.
HOPELESS: Final = frozenset(
    {
        "AccountNotAllowed",
        "BadConstraints",
        "DependencyNeverSatisfied",
        "InvalidAccount",
        "InvalidQOS",
        "JobHeldAdmin",
        "JobHeldUser",
        "JobHoldMaxRequeue",
        "PartitionNodeLimit",
        "PartitionTimeLimit",
        "QOSNotAllowed",
        "ReservationDeleted",
    }
)


def in_words(reason: str) -> str:
    """Return a pending reason as a sentence; empty for none, the name if it is new."""
    text = reason.strip().strip("()")
    if text in ("", "None", "N/A"):
        return ""
    if ", " in text or ";" in text:
        return _with_nodes(text)
    known = WORDS.get(text) or _of_family(text) or _with_nodes(text)
    return f"{known} ({text})" if len(text) < 40 and known else known


def is_hopeless(reason: str) -> bool:
    """Whether the job can't start unless somebody changes it or a limit."""
    name = reason.strip().strip("()").split(",")[0]
    if name in HOPELESS:
        return True
    match = _FAMILY.fullmatch(name)
    # A single job's own limit is not freed by others' ends.
    return match is not None and (
        match["scope"] == "Min" or match["per"] in ("PerJob", "PerNode")
    )


def _of_family(text: str) -> str:
    match = _FAMILY.fullmatch(text)
    if match is None:
        return ""
    whose = _WHOSE[match["whose"]]
    what = _WHAT[match["what"]]
    if match["minutes"]:
        what = f"{what} over time"
    if match["scope"] == "Min":
        return f"It asks for less ({what}) than {whose} wants at least."
    scope = " together" if match["scope"] == "Grp" else ""
    per = _PER.get(match["per"] or "", "")
    return f"The limit of {whose}{scope}{per} is reached: {what}."


def _with_nodes(text: str) -> str:
    """Say what a reason with its nodes means (``ReqNodeNotAvail, UnavailableNodes:``)."""
    first = re.split("[,;] ?", text, maxsplit=1)[0]
    words = WORDS.get(text) or WORDS.get(first)
    nodes = _NODES.search(text)
    if words is None:
        return f"Slurm says {text}."
    if nodes is not None and nodes["nodes"]:
        return f"{words.rstrip('.')}: {nodes['nodes']}."
    return words
