"""The rank map equals megatron-core's own parallel_state; sizes that don't fit fail."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest
from pydantic import ValidationError

from hpcplat.parallel import (
    Allocation,
    LayoutError,
    Order,
    ParallelLayout,
    groups,
    place_of,
    places_as_json,
    rank_map,
    require_fit,
)

ORDERS: tuple[Order, ...] = ("tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp")
DENSE = {"tp": "tensor", "cp": "context", "dp": "data", "pp": "pipeline"}
EXPERT = {"tp": "expert_tensor", "ep": "expert", "dp": "expert_data", "pp": "pipeline"}


def divisors(number: int) -> list[int]:
    return [size for size in range(1, number + 1) if number % size == 0]


def dense_layouts(world: int) -> Iterator[ParallelLayout]:
    sizes = divisors(world)
    for order in ORDERS:
        for tensor, pipeline, context in product(sizes, sizes, sizes):
            fits = world % (tensor * pipeline * context) == 0
            if fits and (order == ORDERS[0] or pipeline == 1 or context == 1):
                yield ParallelLayout(
                    order=order, tensor=tensor, pipeline=pipeline, context=context
                )


def with_experts(layout: ParallelLayout, world: int) -> Iterator[ParallelLayout]:
    rest = world // layout.pipeline
    for expert, expert_tensor in product(divisors(rest), divisors(rest)):
        if rest % (expert * expert_tensor):
            continue
        found = layout.model_copy(
            update={"expert": expert, "expert_tensor": expert_tensor}
        )
        same_data = found.expert_data(world) == found.data(world)
        # Megatron refuses the others: pipeline groups of experts would differ.
        if layout.order.endswith("pp") or layout.pipeline == 1 or same_data:
            yield found


def differences(layout: ParallelLayout, world: int, family: str) -> int:
    """Count the group kinds in which our map and Megatron's RankGenerator differ."""
    state = pytest.importorskip("megatron.core.parallel_state")
    places = rank_map(layout, Allocation(ranks_per_node=world))
    sizes = {"pp": layout.pipeline, "ep": 1, "cp": 1}
    if family == "dense":
        names, tokens = DENSE, [*DENSE, "tp-pp", "tp-dp", "tp-dp-cp", "tp-cp", "dp-cp"]
        sizes |= {"tp": layout.tensor, "cp": layout.context, "dp": layout.data(world)}
    else:
        names, tokens = EXPERT, ["tp", "ep", "dp", "tp-ep", "tp-ep-pp"]
        sizes |= {"tp": layout.expert_tensor_size, "ep": layout.expert}
        sizes["dp"] = layout.expert_data(world)
    generator = state.RankGenerator(**sizes, order=layout.order)
    return sum(
        set(groups(places, *(names[word] for word in token.split("-"))))
        != {tuple(ranks) for ranks in generator.get_ranks(token)}
        for token in tokens
    )


@pytest.mark.slow
def test_dense_groups_are_megatrons_for_every_layout_up_to_64_ranks() -> None:
    checked = 0
    for world in range(1, 65):
        for layout in dense_layouts(world):
            assert differences(layout, world, "dense") == 0, (world, layout)
            checked += 1
    assert checked == 3136


@pytest.mark.slow
@pytest.mark.parametrize("world", [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64])
def test_expert_groups_are_megatrons(world: int) -> None:
    checked = 0
    for layout in dense_layouts(world):
        if layout.context > 2 or layout.tensor > 8:
            continue  # the experts' map depends on neither: two of each are enough
        for found in with_experts(layout, world):
            assert differences(found, world, "expert") == 0, (world, found)
            checked += 1
    assert checked > 0


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 5, 11])
def test_every_rank_stands_where_megatrons_parallel_state_puts_it(rank: int) -> None:
    dist = pytest.importorskip("torch.distributed")
    state = pytest.importorskip("megatron.core.parallel_state")
    fake = pytest.importorskip("torch.testing._internal.distributed.fake_pg")
    dist.init_process_group("fake", rank=rank, world_size=12, store=fake.FakeStore())
    try:
        for layout in dense_layouts(12):
            state.initialize_model_parallel(
                tensor_model_parallel_size=layout.tensor,
                pipeline_model_parallel_size=layout.pipeline,
                context_parallel_size=layout.context,
                order=layout.order,
                create_gloo_process_groups=False,
            )
            place = rank_map(layout, Allocation(ranks_per_node=12))[rank]
            assert (place.tensor, place.context, place.data, place.pipeline) == (
                state.get_tensor_model_parallel_rank(),
                state.get_context_parallel_rank(),
                state.get_data_parallel_rank(),
                state.get_pipeline_model_parallel_rank(),
            )
            state.destroy_model_parallel()
    finally:
        dist.destroy_process_group()


def test_places_and_coordinates_of_a_known_layout() -> None:
    places = rank_map(
        ParallelLayout(tensor=2, pipeline=2),
        Allocation(nodes=3, ranks_per_node=4, spare_nodes=1),
    )
    assert len(places) == 8
    last = places[7]
    assert (last.tensor, last.data, last.pipeline) == (1, 1, 1)
    assert (last.node, last.local_rank) == (1, 3)
    assert sorted(groups(places, "tensor")) == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert sorted(groups(places, "pipeline")) == [(0, 4), (1, 5), (2, 6), (3, 7)]
    assert places_as_json(places)[7]["pipeline"] == 1


@pytest.mark.parametrize("order", ORDERS)
def test_one_ranks_place_is_that_of_the_map(order: Order) -> None:
    layout = ParallelLayout(tensor=2, pipeline=2, order=order)
    allocation = Allocation(nodes=4, ranks_per_node=4)
    places = rank_map(layout, allocation)
    alone = tuple(place_of(layout, allocation, rank) for rank in range(16))
    assert alone == places


def test_that_sizes_fit_is_told_at_once_however_many_ranks_there_are() -> None:
    """To make every rank's place would take hours, and all memory."""
    huge = Allocation(nodes=10**9, ranks_per_node=10**4)
    layout = ParallelLayout(tensor=8, pipeline=4)
    require_fit(layout, huge)
    assert place_of(layout, huge, 10**12).node == 10**8
    with pytest.raises(LayoutError, match="does not divide the 9999999990000 ranks"):
        require_fit(
            layout.model_copy(update={"tensor": 7}),
            Allocation(nodes=999_999_999, ranks_per_node=10**4),
        )


def test_the_other_order_by_megatrons_flag_name() -> None:
    layout = ParallelLayout.model_validate(
        {"tensor": 2, "pipeline": 2, "order": "tp-pp-dp"}
    )
    places = rank_map(layout, Allocation(ranks_per_node=8))
    assert sorted(groups(places, "data")) == [(0, 4), (1, 5), (2, 6), (3, 7)]


def test_sizes_that_do_not_divide_the_ranks_are_refused() -> None:
    with pytest.raises(LayoutError, match="= 4 does not divide the 6 ranks"):
        rank_map(ParallelLayout(tensor=2, pipeline=2), Allocation(ranks_per_node=6))
    with pytest.raises(LayoutError, match="expert"):
        rank_map(ParallelLayout(expert=4), Allocation(ranks_per_node=6))
    with pytest.raises(LayoutError):
        rank_map(ParallelLayout(), Allocation(nodes=1, spare_nodes=1))


@pytest.mark.parametrize(
    ("bad", "rule"),
    [
        ({"virtual_pipeline": 2}, "virtual_pipeline 2 needs pipeline > 1"),
        ({"sequence_parallel": True}, "tensor is 1"),
        ({"order": "tp-pp-dp", "pipeline": 2, "context": 2}, "Use order tp-cp-ep-dp"),
        ({"order": "tp-pp-dp", "pipeline": 2, "expert": 2}, "expert_tensor x expert"),
    ],
)
def test_layouts_that_no_cluster_could_mend_are_refused(
    bad: dict[str, object], rule: str
) -> None:
    with pytest.raises(LayoutError, match=rule):
        ParallelLayout.model_validate(bad)


@pytest.mark.parametrize("bad", [{"tensor": 0}, {"order": "pp-tp"}, {"tensr": 2}])
def test_bad_fields_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ParallelLayout.model_validate(bad)


def test_its_short_name() -> None:
    layout = ParallelLayout(tensor=2, pipeline=4, sequence_parallel=True)
    assert str(layout) == "tp2 pp4 sp"
    assert str(ParallelLayout()) == "data parallel only"
