"""Pending reasons in words: the families, the nodes, and what waiting won't mend."""

from __future__ import annotations

import re

import pytest

from hpcplat.slurm import reasons

# Of Slurm's own table (22.05 to 26.05): each has words of its own, none falls through.
REASONS = re.findall(
    r"\w+",
    """
AccountNotAllowed AccountingPolicy AssocGrpBB AssocGrpBBMinutes AssocGrpBBRunMinutes
AssocGrpBilling AssocGrpBillingMinutes AssocGrpBillingRunMinutes AssocGrpCPUMinutesLimit
AssocGrpCPURunMinutesLimit AssocGrpCpuLimit AssocGrpEnergy AssocGrpEnergyMinutes
AssocGrpEnergyRunMinutes AssocGrpGRES AssocGrpGRESMinutes AssocGrpGRESRunMinutes
AssocGrpJobsLimit AssocGrpLicense AssocGrpLicenseMinutes AssocGrpLicenseRunMinutes
AssocGrpMemLimit AssocGrpMemMinutes AssocGrpMemRunMinutes AssocGrpNodeLimit
AssocGrpNodeMinutes AssocGrpNodeRunMinutes AssocGrpSubmitJobsLimit AssocGrpUnknown
AssocGrpWallLimit AssocMaxBBPerJob AssocMaxBBPerNode AssocMaxCpuPerJobLimit
AssocMaxGRESPerJob AssocMaxGRESPerNode AssocMaxJobsLimit AssocMaxMemPerJob
AssocMaxNodePerJobLimit AssocMaxSubmitJobLimit AssocMaxWallDurationPerJobLimit
AssociationJobLimit AssociationResourceLimit AssociationTimeLimit BadConstraints
BeginTime BurstBufferResources BurstBufferStageIn Cleaning DeadLine Dependency
DependencyNeverSatisfied FrontEndDown InvalidAccount InvalidQOS JobArrayTaskLimit
JobHeldAdmin JobHeldUser JobHoldMaxRequeue JobLaunchFailure Licenses NodeDown
NonZeroExitCode PartitionConfig PartitionDown PartitionInactive PartitionNodeLimit
PartitionTimeLimit PowerNotAvail Preempted Priority Prolog QOSGrpBB QOSGrpBilling
QOSGrpCpuLimit QOSGrpGRES QOSGrpGRESMinutes QOSGrpGRESRunMinutes QOSGrpJobsLimit
QOSGrpMemLimit QOSGrpNodeLimit QOSGrpSubmitJobsLimit QOSGrpWallLimit QOSJobLimit
QOSMaxCpuMinutesPerJobLimit QOSMaxCpuPerJobLimit QOSMaxCpuPerUserLimit QOSMaxGRESPerJob
QOSMaxGRESPerNode QOSMaxGRESPerUser QOSMaxGRESPerAccount QOSMaxJobsPerUserLimit
QOSMaxMemoryPerJob QOSMaxMemoryPerUser QOSMaxNodePerJobLimit QOSMaxNodePerUserLimit
QOSMaxSubmitJobPerUserLimit QOSMaxWallDurationPerJobLimit QOSMinCpuNotSatisfied
QOSMinGRES QOSMinNode QOSNotAllowed QOSResourceLimit QOSTimeLimit QOSUsageThreshold
RaisedSignal Reservation ReservationDeleted Resources SchedDefer SystemFailure TimeLimit
WaitingForScheduling ReqNodeNotAvail
""",
)


@pytest.mark.parametrize("reason", REASONS)
def test_every_reason_has_words(reason: str) -> None:
    words = reasons.in_words(reason)
    assert not words.startswith("Slurm says"), words
    assert reason in words or len(reason) >= 40
    assert words[0].isupper()


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (
            "AssocGrpGRES",
            "The limit of its account (or its user in it) together is reached: GPUs or"
            + " other generic resources. (AssocGrpGRES)",
        ),
        (
            "QOSMaxGRESPerUser",
            "The limit of its QOS for one user is reached: GPUs or other generic"
            + " resources. (QOSMaxGRESPerUser)",
        ),
        (
            "(ReqNodeNotAvail, UnavailableNodes:n[1-2])",
            "A node that it asks for is down, drained or reserved: n[1-2].",
        ),
        (
            "ReqNodeNotAvail, May be reserved for other job",
            "A node that it asks for is down, drained or reserved.",
        ),
        ("BrandNewReason", "Slurm says BrandNewReason. (BrandNewReason)"),
        ("", ""),
        ("None", ""),
    ],
)
def test_the_words(reason: str, words: str) -> None:
    assert reasons.in_words(reason) == words


@pytest.mark.parametrize(
    ("reason", "hopeless"),
    [
        ("JobHeldAdmin", True),
        ("QOSMaxGRESPerJob", True),
        ("AssocMaxWallDurationPerJobLimit", True),
        ("AssocGrpGRES", False),
        ("QOSMaxGRESPerUser", False),
        ("Priority", False),
        ("ReqNodeNotAvail, UnavailableNodes:n1", False),
    ],
)
def test_what_waiting_does_not_mend(reason: str, hopeless: bool) -> None:
    assert reasons.is_hopeless(reason) is hopeless
