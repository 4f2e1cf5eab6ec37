from __future__ import annotations

from pathlib import Path

import pytest

from hpcplat.allocation import (
    NodePlace,
    RankPlacement,
    node_place,
    rank_placement,
    rank_variables,
)
from hpcplat.errors import NotFoundError
from hpcplat.runfolder import RunFolder

PLACE = RankPlacement(
    rank=3,
    world_size=8,
    local_rank=1,
    local_world_size=2,
    node_rank=1,
    master_address="n1",
    master_port=20_001,
    run_folder=RunFolder(Path("/r")),
    attempt=2,
    generation=0,
    job_key="k",
    array_index=1005,
)


def test_a_rank_reads_what_its_agent_said() -> None:
    assert rank_placement(rank_variables(PLACE)) == PLACE


def test_a_task_of_an_array_sees_the_index_that_was_asked_for() -> None:
    assert rank_variables(PLACE)["SLURM_ARRAY_TASK_ID"] == "1005"


def test_a_program_that_asks_slurm_gets_the_same_rank() -> None:
    variables = rank_variables(PLACE)
    assert variables["SLURM_PROCID"] == variables["RANK"] == "3"
    assert variables["SLURM_NTASKS"] == variables["WORLD_SIZE"] == "8"


def test_outside_of_a_job_the_missing_variable_is_named() -> None:
    with pytest.raises(NotFoundError, match="RANK is not set"):
        rank_placement({})
    with pytest.raises(NotFoundError, match="SLURM_JOB_ID is not set"):
        node_place({})


def test_an_agent_knows_its_node() -> None:
    environ = {
        "SLURM_JOB_ID": "12",
        "SLURMD_NODENAME": "n2",
        "SLURM_NODEID": "1",
        "SLURM_STEP_NUM_NODES": "3",
    }
    assert node_place(environ) == NodePlace(12, "n2", 1, 3)
