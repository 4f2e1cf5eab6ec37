"""`hpcplat layout`: which layouts a model can have on so many GPUs, with the memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from hpcplat.cli.session import AsJson, print_json
from hpcplat.cli.tables import Column, is_terminal, shown
from hpcplat.errors import InvalidError, NotFoundError
from hpcplat.footprint import (
    GIB,
    Choices,
    Footprint,
    Precision,
    Recompute,
    bubble,
    footprint,
)
from hpcplat.jobs import read_spec
from hpcplat.model_shape import ModelShape, named_shapes
from hpcplat.parallel import Allocation, ParallelLayout
from hpcplat.parallel_rules import Batch, Plan, legal_layouts
from hpcplat.training import training_of

app = typer.Typer()

SOURCES = (
    "Sources: ZeRO (arXiv:1910.02054), Korthikanti et al. (arXiv:2205.05198), Narayanan "
    "et al. (arXiv:2104.04473)."
)
ROOM = 0.9  # of a GPU's memory: the rest is for workspaces and fragmentation


@dataclass(frozen=True, slots=True)
class Proposal:
    """A legal layout, what it needs, and whether that fits."""

    plan: Plan
    need: Footprint
    fits: bool

    @property
    def order(self) -> tuple[bool, int, float, int]:
        """Fitting first, then the least splitting: each split costs communication."""
        layout = self.plan.layout
        return not self.fits, layout.model_ranks, bubble(self.plan), layout.tensor


@app.command()
def layout(  # noqa: PLR0913 - one for each option
    model: Annotated[str, typer.Argument(help="A known model, or a job spec's file.")],
    gpus: Annotated[int, typer.Option(min=1, help="GPUs in all.")],
    per_node: Annotated[int, typer.Option(min=1, help="GPUs on a node.")] = 8,
    memory: Annotated[float, typer.Option(help="GiB of one GPU.")] = 80.0,
    sequence: Annotated[int, typer.Option(help="Tokens a sample; 0: the most.")] = 0,
    global_batch: Annotated[int, typer.Option(min=1, help="Samples a step.")] = 512,
    micro_batch: Annotated[int, typer.Option(min=1, help="Samples a pass.")] = 1,
    precision: Annotated[
        Literal["bf16", "fp16", "fp32"], typer.Option(help="Number format.")
    ] = "bf16",
    recompute: Annotated[
        Literal["none", "selective", "full"],
        typer.Option(help="Activations computed twice (selective: flash attention)."),
    ] = "selective",
    most: Annotated[int, typer.Option(min=1, help="Rows to show.")] = 12,
    as_json: AsJson = False,
) -> None:
    """Propose layouts for a model: what is legal, what fits, and the arithmetic.

    Example: hpcplat layout llama3-8b --gpus 16 --memory 80
    """
    shape = shape_of(model)
    machines = _machines(gpus, per_node)
    batch = Batch(global_batch, micro_batch, sequence or shape.max_sequence_length)
    choices = _choices(precision, recompute)
    found = proposals(shape, machines, batch, choices, memory)[:most]
    if not found:
        raise InvalidError(
            f"{model} has no legal layout on {gpus} GPUs with a global batch of "
            f"{global_batch}.",
            "Choose a batch and a number of GPUs that share divisors with the model.",
        )
    if as_json:
        print_json({"layouts": [_plain(one) for one in found]})
        return
    print(shown([_row(one) for one in found], COLUMNS))
    if is_terminal():
        print("\n" + arithmetic(found[0], choices, memory))


def shape_of(model: str) -> ModelShape:
    """Return a known model's sizes, or those that a job spec's file asks for."""
    if Path(model).is_file():
        return training_of(read_spec(Path(model))).model
    shapes = named_shapes()
    if model not in shapes:
        raise NotFoundError(
            f"{model} is neither a known model nor a file.",
            f"Known: {', '.join(shapes)}.",
        )
    return shapes[model]


def proposals(
    shape: ModelShape,
    machines: Allocation,
    batch: Batch,
    choices: Choices,
    memory: float,
) -> list[Proposal]:
    """Return all legal layouts, the best first; ``memory`` in GiB."""
    start = Plan(ParallelLayout(), machines, shape, batch)
    found = []
    for legal in legal_layouts(start):
        shared = legal.model_copy(update={"sequence_parallel": legal.tensor > 1})
        plan = Plan(shared, machines, shape, batch)
        need = footprint(plan, choices)
        found.append(Proposal(plan, need, need.total <= ROOM * memory * GIB))
    return sorted(found, key=lambda one: one.order)


def arithmetic(best: Proposal, choices: Choices, memory: float) -> str:
    """Return the sums behind the first row, in words."""
    plan, need = best.plan, best.need
    assert plan.model is not None
    world, layout_ = plan.allocation.world, plan.layout
    half = choices.precision != "fp32"
    share = (
        layout_.data(world) * layout_.context if choices.distributed_optimizer else 1
    )
    parts = (
        ("weights", f"{2 if half else 4} bytes each", need.weights),
        ("gradients", "4 bytes each (fp32)", need.gradients),
        (
            "optimizer",
            f"{12 if half else 8} bytes each, over {share} replicas",
            need.optimizer,
        ),
        ("activations", f"recompute {choices.recompute}", need.activations),
    )
    head = (
        f"{layout_}: {plan.model.parameters / 1e9:.2f} billion parameters, "
        f"{need.parameters / 1e9:.3f} on the fullest GPU (the first stage):"
    )
    sums = [f"  {name:12}{how:38}{size / GIB:8.2f} GiB" for name, how, size in parts]
    end = (
        f"  together    {need.total / GIB:.2f} GiB of {ROOM:.0%} of {memory:g}; the "
        f"pipeline waits {bubble(plan):.1%} of a step."
    )
    return "\n".join([head, *sums, end, SOURCES])


def _machines(gpus: int, per_node: int) -> Allocation:
    if gpus <= per_node:
        return Allocation(nodes=1, ranks_per_node=gpus)
    if gpus % per_node:
        raise InvalidError(
            f"{gpus} GPUs do not fill nodes of {per_node}.",
            f"Take {gpus // per_node * per_node}, or give --per-node.",
        )
    return Allocation(nodes=gpus // per_node, ranks_per_node=per_node)


def _choices(precision: Precision, recompute: Recompute) -> Choices:
    return Choices(precision=precision, recompute=recompute)


def _row(one: Proposal) -> Mapping[str, Any]:
    plan = one.plan
    return {
        "layout": str(plan.layout),
        "data": plan.layout.data(plan.allocation.world),
        "micro": plan.micro_batches,
        "bubble": bubble(plan),
        "fits": one.fits,
        **asdict(one.need),
        "total": one.need.total,
    }


def _plain(one: Proposal) -> Mapping[str, Any]:
    return {**_row(one), "parallelism": one.plan.layout.model_dump(mode="json")}


def _gib(name: str) -> Column:
    return Column(name.upper(), lambda row: f"{row[name] / GIB:.1f}", 2, right=True)


COLUMNS = (
    Column("LAYOUT", lambda row: row["layout"]),
    Column("DATA", lambda row: str(row["data"]), right=True),
    Column("MICRO", lambda row: str(row["micro"]), 3, right=True),
    Column("BUBBLE", lambda row: f"{row['bubble']:.1%}", 1, right=True),
    _gib("weights"),
    _gib("gradients"),
    _gib("optimizer"),
    _gib("activations"),
    Column("GIB", lambda row: f"{row['total'] / GIB:.1f}", right=True),
    Column("FITS", lambda row: "yes" if row["fits"] else "no"),
)
