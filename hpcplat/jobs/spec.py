"""JobSpec: what somebody asks for, as one frozen record."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    JsonValue,
    Tag,
    model_validator,
)

from hpcplat.jobs.array import ArrayText
from hpcplat.jobs.environment import Environment
from hpcplat.jobs.fields import (
    Argument,
    Line,
    PathTexts,
    Record,
    Text,
    Word,
    plain_json,
    refuse,
)
from hpcplat.jobs.options import OptionName, OptionValue
from hpcplat.jobs.policies import Checkpoint, Recovery
from hpcplat.jobs.resources import Resources
from hpcplat.jobs.staging import Staged
from hpcplat.parallel import Allocation, LayoutError, ParallelLayout, require_fit

_DATASET: Final = r"^[A-Za-z0-9][A-Za-z0-9_./-]*@[A-Za-z0-9][A-Za-z0-9_.:-]*$"


Command = Annotated[
    Annotated[Text, Tag("(text)")] | Annotated[tuple[Argument, ...], Tag("(words)")],
    Discriminator(lambda value: "(text)" if isinstance(value, str) else "(words)"),
]


class JobKind(StrEnum):
    """What sort of job it is; each kind has its own launcher."""

    COMMAND = "command"
    TRAIN = "train"


class Dependency(Record):
    """Another job that must start or end first."""

    job: Line = Field(description="The other job: hpcplat's id or name, or slurm:123.")
    after: Literal["ok", "any", "failed", "started"] = Field(
        default="ok",
        description="After its success, any end, its failure, or its start.",
    )


def _dependency(value: Any) -> Any:  # noqa: ANN401 - whatever stood in the file
    """Take ``any:job`` or a job alone for a record."""
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"(?:(ok|any|failed|started):)?(.+)", value)
    return {"after": match[1] or "ok", "job": match[2]} if match else value


class JobSpec(Record):
    """A request: what to run, on what, and what to do when it ends or fails."""

    name: Line = Field(description="The job's name, one line.")
    workspace: Word | None = Field(
        default=None,
        description="The team that pays (a Slurm account); yours if not given.",
    )
    kind: JobKind = Field(
        default=JobKind.COMMAND,
        description="command: any program. train: a training run.",
    )
    resources: Resources = Field(default_factory=Resources)
    parallelism: ParallelLayout = Field(
        default_factory=ParallelLayout,
        description="How a model is split over the ranks; data parallelism follows.",
    )
    data: Annotated[str, Field(pattern=_DATASET, max_length=255)] | None = Field(
        None, description="A dataset and its version: name@version."
    )
    staging: Staged = Field(
        default=None,
        description="true: copy the dataset to each node's own disk first.",
    )
    command: Command | None = Field(
        default=None, description="A list of words, or the text of a shell script."
    )
    preset: Word | None = Field(default=None, description="A model that hpcplat knows.")
    settings: Annotated[dict[Word, JsonValue], AfterValidator(plain_json)] = Field(
        default_factory=dict, description="The preset's own settings."
    )
    environment: Environment = Field(default_factory=Environment)
    outputs: PathTexts = Field(
        default=(),
        description="Files that must be there at the end; * and ** are allowed.",
    )
    checkpoint: Checkpoint = Field(default_factory=Checkpoint)
    recovery: Recovery = Field(default_factory=Recovery)
    dependencies: tuple[Annotated[Dependency, BeforeValidator(_dependency)], ...] = ()
    array: ArrayText | None = Field(
        default=None,
        description="Many tasks of one job: 0-999, and %50 at once at most.",
    )
    sbatch: dict[OptionName, OptionValue] = Field(
        default_factory=dict, description="Other long options of sbatch, as they are."
    )

    @property
    def requeues(self) -> bool:
        """Whether Slurm may run the job again: a training run resumes, a command may.

        A command that was not written to be run twice must not be.
        """
        asked = self.recovery.requeue
        return self.kind is JobKind.TRAIN if asked is None else asked

    @property
    def allocation(self) -> Allocation:
        """The machines as the parallel layout sees them."""
        return Allocation(
            nodes=self.resources.all_nodes,
            ranks_per_node=self.resources.ranks_per_node,
            spare_nodes=self.resources.spare_nodes,
        )

    @model_validator(mode="after")
    def _has_something_to_run(self) -> Self:
        words = self.command.split() if isinstance(self.command, str) else self.command
        if words is not None and not any(words):
            refuse("The command is empty.", "Say what to run.", "command")
        if self.kind is JobKind.COMMAND:
            return self._is_a_command()
        if (self.command is None) == (self.preset is None):
            refuse(
                "A training run needs a preset or a command, and not both.",
                "Give one of them.",
                "preset",
            )
        return self

    def _is_a_command(self) -> Self:
        if self.preset is not None:
            refuse(
                f"preset {self.preset} is for training runs.",
                "Write kind: train, or leave preset out.",
                "preset",
            )
        if self.command is None:
            refuse("There is no command.", "Say what to run.", "command")
        return self

    @model_validator(mode="after")
    def _settings_have_a_preset(self) -> Self:
        if self.settings and self.preset is None:
            refuse("settings are a preset's.", "Give a preset too.", "settings")
        return self

    @model_validator(mode="after")
    def _there_is_something_to_stage(self) -> Self:
        if self.staging is None:
            return self
        if self.data is None:
            refuse("staging copies a dataset.", "Give data too.", "staging")
        if self.environment.container and self.staging.folder is None:
            refuse(
                "A container sees a staged dataset only in a folder that is named.",
                "Give staging.folder: it is mounted inside too.",
                "staging.folder",
            )
        return self

    @model_validator(mode="after")
    def _layout_fits(self) -> Self:
        try:
            require_fit(self.parallelism, self.allocation)
        except LayoutError as error:
            refuse(error.what, error.remedy, "parallelism")
        return self
