"""Scripts of many shapes, and the specs that ask for the same."""

from __future__ import annotations

from typing import Any

import pytest

from hpcplat.errors import InvalidError
from hpcplat.jobs import spec_of
from hpcplat.sbatchline.body import parse_body
from hpcplat.sbatchline.commandline import parse
from hpcplat.sbatchline.directives import parse_script
from hpcplat.sbatchline.precedence import request
from hpcplat.sbatchline.specs import Imported, imported


def spec(text: str) -> Imported:
    asked = request(parse(["train.sh"]), parse_script(text), ())
    return imported(asked, parse_body(text), "train.sh")


@pytest.mark.parametrize(
    ("lines", "resources"),
    [
        ("-N2 --gres=gpu:h100:4", {"nodes": 2, "gpus_per_node": 4, "gpu_type": "h100",
                                   "tasks_per_node": 1}),
        ("-N2 --gpus-per-node=4 --ntasks-per-node=4", {"nodes": 2, "gpus_per_node": 4}),
        ("-N2 -G8 --ntasks-per-node=4", {"nodes": 2, "gpus_per_node": 4}),
        ("-n8 --ntasks-per-node=4 --gpus-per-task=a100:1",
         {"nodes": 2, "gpus_per_node": 4, "gpu_type": "a100"}),
        ("-n4 -c2 --mem-per-cpu=1G", {"nodes": 1, "tasks_per_node": 4,
                                      "cpus_per_task": 2, "memory": "8G"}),
        ("--gpus-per-node=2 --ntasks-per-node=2 --mem-per-gpu=10G",
         {"nodes": 1, "gpus_per_node": 2, "memory": "20G"}),
        ("-t 1-00:00:00 -p gpu,debug -q high --exclusive --mem=0",
         {"nodes": 1, "time": "1-00:00:00", "partition": "gpu,debug", "qos": "high",
          "exclusive": True}),
        ("--gres=gpu", {"nodes": 1, "gpus_per_node": 1}),
    ],
)  # fmt: skip
def test_resources(lines: str, resources: dict[str, Any]) -> None:
    found = spec(f"#!/bin/bash\n#SBATCH {lines}\nhostname\n")
    assert found.values["resources"] == resources
    spec_of(found.values)


def test_what_srun_starts_is_the_command() -> None:
    found = spec(
        "#!/bin/bash\n#SBATCH --ntasks=2\nmodule load cuda\nexport A=1\n"
        'srun --kill-on-bad-exit -l python train.py --name "$A b" \\\n  --lr 1\n'
    )
    assert found.values["command"] == (
        'module load cuda\nexport A=1\nexec python train.py --name "$A b"    --lr 1\n'
    )
    assert found.notes == (
        "srun --kill-on-bad-exit is not taken over.",
        "srun --label is not taken over.",
        "The lines ahead of srun now run in every rank, not once.",
    )


def test_a_script_of_one_task_is_its_own_command() -> None:
    found = spec("#!/bin/sh\n#SBATCH -t5\n# note\nset -e\nhostname\n")
    assert found.values["command"] == "# note\nset -e\nhostname\n"
    assert found.notes == ()


def test_several_steps_are_pointed_out() -> None:
    found = spec("#!/bin/sh\n#SBATCH -N2\nsrun a\nfor i in 1 2; do srun b; done\n")
    assert "starts 2 steps itself" in found.notes[0]


def test_a_script_in_python_is_run_by_its_interpreter() -> None:
    found = spec("#!/usr/bin/env python3\n#SBATCH -t5\nprint('srun x')\n")
    assert found.values["command"] == ["/usr/bin/env", "python3", "train.sh"]


def test_the_rest() -> None:
    found = spec(
        "#!/bin/sh\n#SBATCH -J two\\ words -A nlp -a 0-9%2 -d afterok:1:2 --requeue\n"
        "#SBATCH -o out.txt --mail-type=END --hold -D /data\nhostname\n"
    )
    values = found.values
    assert (values["name"], values["workspace"]) == ("two words", "nlp")
    assert values["array"] == "0-9%2"
    assert values["dependencies"] == [
        {"job": "slurm:1", "after": "ok"},
        {"job": "slurm:2", "after": "ok"},
    ]
    assert values["recovery"] == {"requeue": True}
    assert values["environment"] == {"folder": "/data"}
    assert values["sbatch"] == {"mail-type": "END"}
    assert found.notes == (
        "--output=out.txt is not taken over.",
        "--hold is not taken over.",
    )
    spec_of(values)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("-N x", "--nodes=x is no count"),
        ("-n many", "--ntasks=many is no count"),
        ("-d singleton", "no like in a spec"),
        ("-N1\n#SBATCH hetjob", "heterogeneous"),
    ],
)
def test_refusals(lines: str, message: str) -> None:
    with pytest.raises(InvalidError, match=message):
        spec(f"#!/bin/sh\n#SBATCH {lines}\nhostname\n")
