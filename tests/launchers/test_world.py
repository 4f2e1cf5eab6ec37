from __future__ import annotations

from hpcplat.launchplan import LaunchPlan
from launchers.messages import Join
from launchers.world import Member, master_address, node_of, starts, working

PLAN = LaunchPlan("k", "n", nodes=2, ranks_per_node=2, argv=("true",), spare_nodes=1)


def _member(index: int, host: str, via: str, address: str) -> Member:
    join = Join("w", f"n{index + 1}", index, host, via, 20_000 + index)
    return Member(join, address)


THREE = [_member(i, f"h{i}", "batch", f"10.0.0.{i}") for i in (2, 0, 1)]


def test_the_first_nodes_work_and_the_last_stands_by() -> None:
    assert [m.join.node for m in working(PLAN, THREE)] == ["n1", "n2"]


def test_a_spare_takes_the_place_of_one_that_is_missing() -> None:
    assert [m.join.node for m in working(PLAN, THREE[:2])] == ["n1", "n3"]


def test_ranks_stand_in_blocks_of_a_node() -> None:
    orders = starts(PLAN, working(PLAN, THREE), "h0", 0)
    assert orders["n1"].ranks == (0, 1)
    assert orders["n2"].ranks == (2, 3)
    assert {order.world_size for order in orders.values()} == {4}
    assert [order.node_rank for order in orders.values()] == [0, 1]
    assert node_of(3, orders) == "n2"
    assert node_of(9, orders) == "an unknown node"


def test_all_ranks_meet_where_rank_0_is() -> None:
    orders = starts(PLAN, working(PLAN, THREE), "h0", 0)
    places = {(o.master_address, o.master_port) for o in orders.values()}
    assert places == {("batch", 20_000)}


def test_the_address_is_one_that_others_can_use() -> None:
    own = _member(0, "batch", "127.0.0.1", "127.0.0.1")
    other = _member(1, "h1", "10.0.0.9", "10.0.0.1")
    assert master_address((own, other), "batch") == "10.0.0.9"  # as the other came
    assert master_address((other, own), "batch") == "10.0.0.1"  # as we see it
    assert master_address((own,), "batch") == "127.0.0.1"
