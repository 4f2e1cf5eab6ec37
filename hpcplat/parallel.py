"""How a job's ranks are laid out: one validated value, and the map it implies.

The words and the order of the dimensions are Megatron-Core's: a rank's coordinates
follow from its number by reading it as a mixed-radix number, first word fastest
(megatron.core.parallel_state.RankGenerator). The dense layers see tensor x context x
data x pipeline, the experts of a mixture see expert-tensor x expert x expert-data x
pipeline, over the same ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from hpcplat.errors import InvalidError

# Megatron's own flag for the second order names only three words of it.
ORDER_NAMES = {"tp-pp-dp": "tp-cp-ep-pp-dp", "tp-dp-pp": "tp-cp-ep-dp-pp"}

Order = Annotated[
    Literal["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"],
    BeforeValidator(lambda name: ORDER_NAMES.get(name, name)),
]
Size = Annotated[int, Field(ge=1)]


class LayoutError(InvalidError):
    """A layout that cannot be: the rule in words and the nearest one that can."""


class ParallelLayout(BaseModel):
    """Sizes of the parallel dimensions; data parallelism is what is left over.

    ``virtual_pipeline`` is the number of model chunks each pipeline rank holds (1: the
    plain 1F1B schedule). ``expert_tensor`` defaults to ``tensor``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    tensor: Size = 1
    pipeline: Size = 1
    virtual_pipeline: Size = 1
    context: Size = 1
    expert: Size = 1
    expert_tensor: Size | None = None
    sequence_parallel: bool = False
    order: Order = "tp-cp-ep-dp-pp"

    @model_validator(mode="after")
    def _stands_by_itself(self) -> Self:
        """Refuse what no number of ranks and no model could mend."""
        if self.virtual_pipeline > 1 and self.pipeline == 1:
            raise LayoutError(
                f"virtual_pipeline {self.virtual_pipeline} needs pipeline > 1.",
                "Set pipeline to 2 or more, or virtual_pipeline to 1.",
            )
        if self.sequence_parallel and self.tensor == 1:
            raise LayoutError(
                "sequence_parallel splits what tensor parallelism repeats: tensor is 1.",
                "Set tensor to 2 or more, or sequence_parallel to false.",
            )
        if self._experts_break_the_order():
            raise LayoutError(
                f"order {self.order} with pipeline {self.pipeline} needs "
                f"expert_tensor x expert ({self.expert_tensor_size * self.expert}) equal "
                f"to tensor x context ({self.tensor * self.context}).",
                "Use order tp-cp-ep-dp-pp.",
            )
        return self

    def _experts_break_the_order(self) -> bool:
        # Megatron lets experts have another data size only where pp comes last, as
        # else their pipeline groups would not be those of the dense layers.
        same_data = self.expert_tensor_size * self.expert == self.tensor * self.context
        return not (self.order.endswith("pp") or self.pipeline == 1 or same_data)

    @property
    def model_ranks(self) -> int:
        """How many ranks hold one copy of the dense layers."""
        return self.tensor * self.context * self.pipeline

    @property
    def expert_tensor_size(self) -> int:
        """The tensor-parallel size inside experts."""
        return self.tensor if self.expert_tensor is None else self.expert_tensor

    def data(self, world: int) -> int:
        """Return the data-parallel size of ``world`` ranks; LayoutError if none."""
        return _quotient(world, self.model_ranks, "tensor x context x pipeline")

    def expert_data(self, world: int) -> int:
        """Return the data-parallel size that experts see."""
        ranks = self.expert_tensor_size * self.expert * self.pipeline
        return _quotient(world, ranks, "expert tensor x expert x pipeline")

    def __str__(self) -> str:
        """Name the dimensions that are more than 1: ``tp2 pp2 vpp2 sp``."""
        words = {
            "tp": self.tensor,
            "pp": self.pipeline,
            "vpp": self.virtual_pipeline,
            "cp": self.context,
            "ep": self.expert,
            "etp": self.expert_tensor or 1,
        }
        parts = [f"{name}{size}" for name, size in words.items() if size > 1]
        return " ".join(parts + ["sp"] * self.sequence_parallel) or "data parallel only"


class Allocation(BaseModel):
    """The machines: nodes, ranks on each (one a GPU), and nodes kept as spares."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    nodes: Size = 1
    ranks_per_node: Size = 1
    spare_nodes: Annotated[int, Field(ge=0)] = 0

    @property
    def world(self) -> int:
        """How many ranks train."""
        return max(self.nodes - self.spare_nodes, 0) * self.ranks_per_node


class RankPlace(NamedTuple):
    """Where one rank stands: its coordinates, its node and its place on the node.

    ``node`` counts the job's nodes from 0; ``local_rank`` is also the GPU's index.
    """

    rank: int
    tensor: int
    context: int
    data: int
    pipeline: int
    expert_tensor: int
    expert: int
    expert_data: int
    node: int
    local_rank: int


def require_fit(layout: ParallelLayout, allocation: Allocation) -> None:
    """Raise LayoutError if sizes don't fit; at once, however many ranks there are."""
    _dimensions(layout, allocation)


def rank_map(layout: ParallelLayout, allocation: Allocation) -> tuple[RankPlace, ...]:
    """Return the place of every rank, in rank order; LayoutError if sizes don't fit."""
    found = _dimensions(layout, allocation)
    ranks = range(allocation.world)
    return tuple(_place(rank, *found, allocation.ranks_per_node) for rank in ranks)


def place_of(layout: ParallelLayout, allocation: Allocation, rank: int) -> RankPlace:
    """Return the place of one rank; LayoutError if sizes don't fit."""
    found = _dimensions(layout, allocation)
    return _place(rank, *found, allocation.ranks_per_node)


def _dimensions(
    layout: ParallelLayout, allocation: Allocation
) -> tuple[_Dimensions, _Dimensions]:
    """Return the sizes that the dense layers see, and those that experts do."""
    world = allocation.world
    dense = _Dimensions(
        layout.order,
        {
            "tp": layout.tensor,
            "cp": layout.context,
            "ep": 1,
            "dp": layout.data(world),
            "pp": layout.pipeline,
        },
    )
    experts = _Dimensions(
        layout.order,
        {
            "tp": layout.expert_tensor_size,
            "cp": 1,
            "ep": layout.expert,
            "dp": layout.expert_data(world),
            "pp": layout.pipeline,
        },
    )
    return dense, experts


def groups(
    places: tuple[RankPlace, ...], *dimensions: str
) -> Iterator[tuple[int, ...]]:
    """Yield the ranks that differ in ``dimensions`` only, such as ``"tensor"``.

    Dimensions are RankPlace's names, of the dense layers or of the experts, not both.
    """
    own = ("expert_tensor", "expert", "expert_data", "pipeline")
    dense = ("tensor", "context", "data", "pipeline")
    family = own if set(dimensions) & set(own[:3]) else dense
    fixed = [name for name in family if name not in dimensions]
    found: dict[tuple[int, ...], list[int]] = {}
    for place in places:
        key = tuple(getattr(place, name) for name in fixed)
        found.setdefault(key, []).append(place.rank)
    return (tuple(ranks) for ranks in found.values())


@dataclass(frozen=True, slots=True)
class _Dimensions:
    """Sizes by Megatron's two-letter names, read in an order, first word fastest."""

    order: str
    sizes: Mapping[str, int]

    def at(self, rank: int) -> dict[str, int]:
        """Return the coordinates of a rank by name."""
        found = {}
        for name in self.order.split("-"):
            rank, found[name] = divmod(rank, self.sizes[name])
        return found


def _place(
    rank: int, dense: _Dimensions, experts: _Dimensions, per_node: int
) -> RankPlace:
    own, inside = dense.at(rank), experts.at(rank)
    return RankPlace(
        rank,
        own["tp"],
        own["cp"],
        own["dp"],
        own["pp"],
        inside["tp"],
        inside["ep"],
        inside["dp"],
        *divmod(rank, per_node),
    )


def _quotient(world: int, ranks: int, words: str) -> int:
    if world < 1 or world % ranks:
        raise LayoutError(
            f"{words} = {ranks} does not divide the {world} ranks.",
            "Choose sizes whose product divides nodes x GPUs per node (less spares).",
        )
    return world // ranks


def places_as_json(places: tuple[RankPlace, ...]) -> list[dict[str, Any]]:
    """Return the map as plain values, for the run folder's rank map."""
    return [place._asdict() for place in places]
