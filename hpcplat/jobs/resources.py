"""What a job asks of the cluster: nodes, GPUs, memory, time, and where."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from hpcplat.jobs.fields import (
    Constraint,
    Count,
    CountFromZero,
    HostList,
    Memory,
    Record,
    TimeLimit,
    Word,
    Words,
    refuse,
)


class Resources(Record):
    """Nodes and what each of them gives."""

    nodes: Count = Field(default=1, description="Nodes that work; spares come on top.")
    spare_nodes: CountFromZero = Field(
        default=0, description="More nodes, idle until one of the others dies."
    )
    gpus_per_node: CountFromZero = Field(default=0, description="GPUs on each node.")
    gpu_type: Word | None = Field(
        default=None, description="The site's name of the GPU type, such as h100."
    )
    tasks_per_node: Count | None = Field(
        default=None, description="Ranks on each node: one a GPU if not given, else 1."
    )
    cpus_per_task: Count = Field(default=1, description="CPUs of each rank.")
    memory: Memory | None = Field(
        default=None,
        description="Memory of each node; the partition's default if not given.",
    )
    time: TimeLimit | None = Field(
        default=None,
        description="The longest the job may run; the site's policy if not given.",
    )
    partition: Words | None = Field(
        default=None, description="A partition, or several: a,b."
    )
    qos: Word | None = Field(default=None, description="Slurm's quality of service.")
    constraint: Constraint | None = Field(
        default=None, description="Node features, such as hbm&ib."
    )
    exclude: HostList = Field(default=(), description="Nodes to leave out.")
    reservation: Words | None = Field(
        default=None, description="A reservation to run in."
    )
    exclusive: bool = Field(
        default=False, description="Share the nodes with no other job."
    )

    @property
    def ranks_per_node(self) -> int:
        """How many ranks each working node starts."""
        return self.tasks_per_node or self.gpus_per_node or 1

    @property
    def world(self) -> int:
        """How many ranks the job has."""
        return self.nodes * self.ranks_per_node

    @property
    def all_nodes(self) -> int:
        """Nodes asked of Slurm, spares included."""
        return self.nodes + self.spare_nodes

    @model_validator(mode="after")
    def _gpus_make_sense(self) -> Self:
        if self.gpu_type and not self.gpus_per_node:
            refuse(
                f"gpu_type is {self.gpu_type} but gpus_per_node is 0.",
                "Give gpus_per_node, or leave gpu_type out.",
                "gpu_type",
            )
        return self
