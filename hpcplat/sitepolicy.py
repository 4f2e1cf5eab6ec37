"""What a site decides about batch scripts: its spellings, its defaults, its programs."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Literal

from pydantic import Field

from hpcplat.jobs.fields import Count, PathText, Record, TimeLimit, Word


class SitePolicy(Record):
    """One site's answers to what every batch script asks."""

    gpu_option: Literal["gres", "gpus-per-node"] = Field(
        default="gres", description="How GPUs are asked for; never both."
    )
    gpu_gres: Word = Field(default="gpu", description="The site's name of the gres.")
    default_time: TimeLimit = Field(
        default=timedelta(hours=1), description="For jobs that give no time."
    )
    max_array_size: Count = Field(
        default=1001, description="MaxArraySize of scontrol show config."
    )
    python: PathText = Field(
        default=sys.executable,
        description="The Python that has hpcplat, on every node.",
    )
    srun: PathText = Field(default="srun", description="The srun of the batch host.")
    apptainer: PathText = Field(default="apptainer", description="Or singularity.")
    module_setup: PathText | None = Field(
        default=None, description="A file to source where `module` is not defined."
    )
    conda_setup: PathText | None = Field(
        default=None, description="The conda.sh to source; else `conda` from PATH."
    )
    key_in_name: bool = Field(
        default=False,
        description="Add the key to the job's name, for accounting without comments.",
    )
