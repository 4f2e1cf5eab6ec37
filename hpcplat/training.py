"""What a training run with one of our models does, as one validated record.

A job spec's ``preset``, ``settings``, ``parallelism``, ``data`` and ``checkpoint``
become a Training here, on the login node, before anything is queued; the launcher
makes it again from the very same spec. Pure: no torch.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, Field, JsonValue, ValidationError, model_validator

from hpcplat.errors import InvalidError
from hpcplat.jobs import JobKind, JobSpec
from hpcplat.jobs.complaints import Complaint, SpecError, spec_error
from hpcplat.jobs.fields import Count, CountFromZero, Record, refuse
from hpcplat.jobs.policies import Checkpoint
from hpcplat.model_shape import ModelShape, named_shapes
from hpcplat.parallel import Allocation, LayoutError, ParallelLayout
from hpcplat.parallel_rules import Batch, Plan, check
from hpcplat.quantities import counted

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, lt=1)]

FAMILIES = ("gpt", "llama")


class DataSettings(Record):
    """Which tokens, in which order."""

    root: str | None = Field(
        default=None, description="The folder of all datasets; your own if not given."
    )
    sequence_length: Count | None = Field(
        default=None, description="Tokens a sample; the model's maximum if not given."
    )
    train_split: str = "train"
    validation_split: str = "validation"
    seed: CountFromZero = Field(default=1234, description="Of the order of samples.")


class BatchSettings(Record):
    """Samples per step, and per forward pass of a replica."""

    global_size: Count = Field(default=8, description="Samples of one step, all ranks.")
    micro_size: Count = Field(default=1, description="Samples of one forward pass.")


class OptimizerSettings(Record):
    """AdamW, and how its state and the gradients are spread over replicas."""

    learning_rate: Positive = 3e-4
    weight_decay: NotNegative = 0.1
    beta1: Fraction = 0.9
    beta2: Fraction = 0.95
    epsilon: Positive = 1e-8
    clip_grad: NotNegative = Field(
        default=1.0, description="Largest gradient norm; 0: none."
    )
    distributed: bool = Field(
        default=False, description="Split the optimizer's state over replicas (ZeRO 1)."
    )
    overlap_grad_reduce: bool = Field(
        default=False, description="Reduce gradients during the backward pass."
    )
    overlap_param_gather: bool = Field(
        default=False, description="Gather parameters during the forward pass."
    )

    @model_validator(mode="after")
    def _gather_needs_split_state(self) -> Self:
        if self.overlap_param_gather and not self.distributed:
            refuse(
                "overlap_param_gather needs the distributed optimizer.",
                "Set distributed to true.",
                "overlap_param_gather",
            )
        if self.overlap_param_gather and not self.overlap_grad_reduce:
            refuse(
                "overlap_param_gather needs overlap_grad_reduce.",
                "Set it to true.",
                "overlap_grad_reduce",
            )
        return self


class ScheduleSettings(Record):
    """The learning rate over the steps: warm-up, then one of four ways down."""

    kind: Literal["cosine", "linear", "wsd", "constant"] = "cosine"
    warmup_steps: CountFromZero = 0
    minimum: NotNegative = Field(
        default=0.0, description="The last learning rate, as a fraction of the highest."
    )
    decay_steps: Count | None = Field(
        default=None,
        description="Steps until the minimum (wsd: the length of the decay at the"
        " end); all steps if not given (wsd: a tenth).",
    )


class PrecisionSettings(Record):
    """Number formats, and the loss scale of fp16."""

    format: Literal["fp32", "bf16", "fp16"] = "fp32"
    initial_loss_scale: Positive = 2.0**16
    minimum_loss_scale: Positive = 1.0
    loss_scale_window: Count = Field(
        default=1000, description="Steps without overflow before the scale doubles."
    )


class RecomputeSettings(Record):
    """Which activations are computed again in the backward pass to save memory."""

    granularity: Literal["none", "selective", "full"] = "none"
    layers: Count = Field(default=1, description="full: layers of one recomputed unit.")


class EvaluationSettings(Record):
    """How often the validation split is looked at; 0: never."""

    every: CountFromZero = 0
    batches: Count = Field(default=8, description="Global batches of one evaluation.")


class Settings(Record):
    """A job spec's ``settings`` for a preset."""

    model: dict[str, JsonValue] = Field(
        default_factory=dict,
        description="Sizes in place of the preset's, and any TransformerConfig field.",
    )
    data: DataSettings = Field(default_factory=DataSettings)
    batch: BatchSettings = Field(default_factory=BatchSettings)
    steps: Count = 100
    optimizer: OptimizerSettings = OptimizerSettings()
    schedule: ScheduleSettings = Field(default_factory=ScheduleSettings)
    precision: PrecisionSettings = Field(default_factory=PrecisionSettings)
    recompute: RecomputeSettings = Field(default_factory=RecomputeSettings)
    evaluation: EvaluationSettings = Field(default_factory=EvaluationSettings)
    seed: CountFromZero = Field(default=1234, description="Of weights and dropout.")
    deterministic: bool | None = Field(
        default=None, description="Same bits every time; yes on CPU if not given."
    )
    on_nan: Literal["stop", "skip", "rollback"] = Field(
        default="stop",
        description="A loss that is no number: stop, leave the step out, or go back"
        " to the newest checkpoint and leave out the samples.",
    )
    prove_resume: bool = Field(
        default=True, description="Compare state and repeated steps after a resume."
    )
    collective_timeout: Count = Field(
        default=600, description="Seconds a collective may take before it fails."
    )

    @model_validator(mode="after")
    def _schedule_fits(self) -> Self:
        if self.schedule.warmup_steps > self.steps:
            refuse(
                f"warmup_steps {self.schedule.warmup_steps} is more than the "
                f"{counted(self.steps, 'step')}.",
                f"Give at most {self.steps}.",
                "schedule.warmup_steps",
            )
        return self


@dataclass(frozen=True, slots=True)
class Training:
    """A whole training run: the model, its layout, its data and its settings.

    ``transformer`` holds further fields of Megatron's TransformerConfig by name; the
    launcher refuses unknown ones.
    """

    name: str
    model: ModelShape
    transformer: dict[str, JsonValue]
    settings: Settings
    layout: ParallelLayout
    allocation: Allocation
    dataset: str | None
    checkpoint: Checkpoint

    @property
    def sequence_length(self) -> int:
        """Tokens of one sample."""
        return self.settings.data.sequence_length or self.model.max_sequence_length

    @property
    def batch(self) -> Batch:
        """The batch as layout rules see it."""
        batch = self.settings.batch
        return Batch(batch.global_size, batch.micro_size, self.sequence_length)

    def plan(self, allocation: Allocation | None = None) -> Plan:
        """Return the plan that layout rules check, on these or on other machines."""
        uneven = any(name in self.transformer for name in _UNEVEN)
        machines = allocation or self.allocation
        return Plan(self.layout, machines, self.model, self.batch, uneven)


# Fields by which a user says himself which stage holds which layers.
_UNEVEN = (
    "num_layers_in_first_pipeline_stage",
    "num_layers_in_last_pipeline_stage",
    "pipeline_model_parallel_layout",
    "account_for_embedding_in_pipeline_split",
    "account_for_loss_in_pipeline_split",
)


def training_of(spec: JobSpec) -> Training:
    """Return what a spec of kind train with a preset asks for.

    Raises InvalidError (SpecError with the field's dotted path) for settings, a model
    or a layout that cannot be.
    """
    if spec.kind is not JobKind.TRAIN or spec.preset is None:
        raise InvalidError("This job trains no preset.", "Give kind: train and preset.")
    settings = _validated(Settings, dict(spec.settings), "settings")
    model, transformer = _model(spec.preset, settings.model)
    training = Training(
        name=spec.name,
        model=model,
        transformer=transformer,
        settings=settings,
        layout=spec.parallelism,
        allocation=spec.allocation,
        dataset=spec.data,
        checkpoint=spec.checkpoint,
    )
    _check(training)
    return training


def _check(training: Training) -> None:
    length, most = training.sequence_length, training.model.max_sequence_length
    if training.model.family == "gpt" and length > most:
        raise _complaint(
            "settings.data.sequence_length",
            f"{length} tokens exceed the model's {most} positions.",
            f"Give at most {most}, or raise settings.model.max_sequence_length.",
        )
    try:
        check(training.plan())
    except LayoutError as error:
        raise _complaint("parallelism", error.what, error.remedy) from error


def _model(
    preset: str, changes: dict[str, JsonValue]
) -> tuple[ModelShape, dict[str, JsonValue]]:
    """Return the preset's sizes with the changes, and what is not a size of ours."""
    own = {name: changes[name] for name in changes if name in ModelShape.model_fields}
    rest = {name: changes[name] for name in changes if name not in own}
    sizes = _preset_sizes(preset)
    derived = {"hidden_size", "num_attention_heads", "family"} & own.keys()
    if derived:  # let what follows from them follow again
        for name in ("num_query_groups", "ffn_hidden_size", "kv_channels"):
            sizes.pop(name, None)
    try:
        shape = _validated(ModelShape, sizes | own, "settings.model")
    except SpecError:
        raise
    except InvalidError as error:
        raise _complaint("settings.model", error.what, error.remedy) from error
    return shape, rest


def _preset_sizes(preset: str) -> dict[str, Any]:
    if preset in FAMILIES:
        return {"family": preset}
    shapes = named_shapes()
    if preset not in shapes:
        known = [*FAMILIES, *shapes]
        near = difflib.get_close_matches(preset, known, 1, 0.4)
        hint = f"The nearest is {near[0]}." if near else f"Known: {', '.join(known)}."
        raise _complaint("preset", f"{preset!r} is not a model that we know.", hint)
    return shapes[preset].model_dump()


ModelT = TypeVar("ModelT", bound=BaseModel)


def _validated(model: type[ModelT], values: dict[str, Any], prefix: str) -> ModelT:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        complaints = spec_error(error, model).complaints
        raise SpecError(
            tuple(
                Complaint(f"{prefix}.{one.field}".strip("."), one.what, one.remedy)
                for one in complaints
            )
        ) from error


def _complaint(field: str, what: str, remedy: str) -> SpecError:
    return SpecError((Complaint(field, what, remedy),))
