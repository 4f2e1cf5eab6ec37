"""The drop-in with a service: what the quota never lets run is not handed to Slurm."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hpcplat.cli.person import Person, stop_resident

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

# Who is in several accounts must name one: the service does not guess the default.
SBATCH = ("sbatch", "--account=lab")


@pytest.fixture
def limited(person: Person) -> Iterator[Person]:
    """Somebody with a service, whose account may have two GPUs."""
    modify = ("sacctmgr", "-i", "modify", "account", "lab", "set")
    person.cluster.run(*modify, "GrpTRES=gres/gpu=2")
    try:
        stop_resident(person)  # one that knew the limits from before
        person.run("jobs")
        (socket,) = (person.folder / "data").glob("resident-*.sock")
        url = {"HPCPLAT_URL": f"unix:{socket}"}
        yield Person(person.cluster, person.folder, person.env | url)
    finally:
        person.cluster.run(*modify, "GrpTRES=gres/gpu=-1")


def test_what_can_never_run_is_refused_with_the_reason(limited: Person) -> None:
    refused = limited.run(*SBATCH, "--gres=gpu:4", "--wrap", "true", status=1)
    assert refused.stdout == ""
    assert refused.stderr.startswith(
        "sbatch: error: 4 GPUs asked; account lab may have 2 GPUs (GrpTRES): it can"
    )
    taken = limited.out(*SBATCH, "--parsable", "--gres=gpu:2", "--wrap", "true")
    number = int(taken)
    queue = limited.cluster.run("squeue", "-h", "-t", "all", "-o", "%A").stdout.split()
    assert max(map(int, queue)) == number  # nothing else was submitted
    limited.run("wait", taken, "--timeout", "60")
