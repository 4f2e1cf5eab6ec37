"""What a site decides about batch scripts: its spellings, its defaults, its programs."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from hpcplat.jobs import parse_file
from hpcplat.jobs.complaints import spec_error
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
    node_failures: int = Field(
        default=0,
        ge=0,
        description="Nodes that died in `node_hours`, for `checkpoint.every: auto`; the "
        "service adds those of its jobs.",
    )
    node_hours: float = Field(
        default=0.0, ge=0, description="Hours of nodes in which `node_failures` died."
    )
    datasets: PathText | None = Field(
        default=None,
        description="The folder of all datasets; jobs see it as HPCPLAT_DATASETS.",
    )
    submission: Literal["direct", "sudo", "rest"] = Field(
        default="direct", description="How the service submits as a person."
    )
    slurmrestd: str | None = Field(
        default=None, description="Its URL, for submission: rest."
    )
    jwt_key: PathText | None = Field(
        default=None, description="The key of Slurm's tokens, for submission: rest."
    )
    munge_socket: PathText | None = Field(
        default=None, description="munged's socket, if not the usual one."
    )
    oidc_issuer: str | None = Field(
        default=None, description="Whose OIDC tokens the API takes."
    )
    oidc_audience: str = Field(
        default="hpcplat", description="For whom these tokens must be."
    )
    oidc_claim: Word = Field(
        default="preferred_username", description="The claim that names the Unix user."
    )
    oidc_pattern: str = Field(
        default=r"([a-z_][a-z0-9_\-]{0,30})",
        description="What the whole claim must match; its group is the user.",
    )
    https_only: bool = Field(
        default=False,
        description="Browsers come by HTTPS alone: the session's cookie is Secure even"
        " where no proxy says X-Forwarded-Proto.",
    )
    requests_per_second: float = Field(
        default=50.0, ge=0, description="Of each person but administrators; 0: any."
    )
    gpu_hour_price: float | None = Field(
        default=None, ge=0, description="What a GPU-hour costs, for usage reports."
    )
    key_in_name: bool = Field(
        default=False,
        description="Add the key to the job's name, for accounting without comments.",
    )


def read_policy(path: Path) -> SitePolicy:
    """Return the policy in a YAML or JSON file; SpecError names each faulty field.

    Raises NotFoundError when the file is not there.
    """
    try:
        return SitePolicy.model_validate(parse_file(path))
    except ValidationError as error:
        raise spec_error(error, SitePolicy) from error
