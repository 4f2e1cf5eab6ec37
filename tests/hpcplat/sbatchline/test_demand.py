"""What calls of sbatch ask for at least."""

from __future__ import annotations

from datetime import timedelta

import pytest

from hpcplat.sbatchline.commandline import parse
from hpcplat.sbatchline.demand import Demand, demand
from hpcplat.sbatchline.directives import parse_script
from hpcplat.sbatchline.precedence import request

NOTHING = Demand(1, 1, 0, "", None, None, 1)


def asked(lines: str) -> Demand:
    return demand(
        request(parse(["a.sh"]), parse_script(f"#!/bin/sh\n#SBATCH {lines}"), ())
    )


@pytest.mark.parametrize(
    ("lines", "least"),
    [
        ("-J x", NOTHING),
        ("-N 2-4 -c 3 --gres=gpu:h100:4", Demand(2, 6, 8, "h100", None, None, 1)),
        ("-N 3 -n 4 --gpus=4", Demand(3, 4, 4, "", None, None, 1)),
        ("-n 8 --ntasks-per-node=3", Demand(3, 8, 0, "", None, None, 1)),
        ("-n 4 --gpus-per-task=a100:2", Demand(1, 4, 8, "a100", None, None, 1)),
        ("-N 2 --mem=4G", Demand(2, 2, 0, "", 8192, None, 1)),
        ("-N 2 --mem=0", Demand(2, 2, 0, "", None, None, 1)),
        ("-n 2 -c 2 --mem-per-cpu=1G", Demand(1, 4, 0, "", 4096, None, 1)),
        ("-t 1-0 -a 0-9:3%2", Demand(1, 1, 0, "", None, timedelta(days=1), 4)),
        ("-t 10 --time-min=5", Demand(1, 1, 0, "", None, timedelta(minutes=5), 1)),
        ("-t UNLIMITED --gres=license:1", NOTHING),
        ("-t soon -a some --mem=much", NOTHING),  # sbatch says so itself
    ],
)
def test_the_least_that_is_asked_for(lines: str, least: Demand) -> None:
    assert asked(lines) == least
