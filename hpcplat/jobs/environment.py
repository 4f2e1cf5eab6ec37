"""Where a job's processes find their programs, variables and secrets."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from hpcplat.jobs.fields import (
    Line,
    Lines,
    PathText,
    PathTexts,
    Record,
    VariableName,
    VariableValue,
    refuse,
)

# What steers the dynamic loader or Slurm's own programs, or is the launcher's to say.
RESERVED_PREFIXES: Final = ("SLURM_", "SBATCH_", "PMIX_", "PMI_", "HPCPLAT_", "LD_")
RESERVED_NAMES: Final = frozenset(
    {
        "CUDA_VISIBLE_DEVICES",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "NODE_RANK",
        "GROUP_RANK",
        "RANK",
        "WORLD_SIZE",
        "BASH_ENV",
        "ENV",
    }
)
ALLOWED_NAMES: Final = frozenset({"LD_LIBRARY_PATH"})

_REFERENCE: Final = re.compile(
    r"env:[A-Za-z_][A-Za-z0-9_]*|file:(?:/|~/)[^\0\n]+", re.DOTALL
)


def _unreserved(name: str) -> str:
    upper = name.upper()
    reserved = name in RESERVED_NAMES or upper.startswith(RESERVED_PREFIXES)
    if reserved and name not in ALLOWED_NAMES:
        refuse(
            f"{name} is set by Slurm or by the launcher, or steers the loader.",
            "Choose another name, or set it inside the command.",
        )
    return name


def _reference(text: str) -> str:
    if not _REFERENCE.fullmatch(text):
        # The value is not repeated: somebody may have written the secret itself.
        refuse(
            "A secret is given by reference only.",
            "Write env:NAME (taken from your environment when you submit)"
            " or file:/path/of/a/file.",
        )
    return text


FreeName = Annotated[VariableName, AfterValidator(_unreserved)]
SecretReference = Annotated[str, AfterValidator(_reference)]
Modules = Annotated[
    tuple[
        Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+/@~-]*$")],
        ...,
    ],
    BeforeValidator(lambda value: (value,) if isinstance(value, str) else value),
]


class Container(Record):
    """A container that the ranks run in."""

    runtime: Literal["apptainer", "pyxis"] = Field(
        default="apptainer",
        description="Apptainer's own command, or pyxis (srun's plug-in).",
    )
    image: PathText = Field(description="A .sif or .sqsh file, or an image's address.")
    mounts: PathTexts = Field(
        default=(), description="HOST:CONTAINER or HOST:CONTAINER:ro."
    )
    folder: PathText | None = Field(
        default=None, description="The folder to work in, inside."
    )
    options: Lines = Field(default=(), description="More words for apptainer exec.")

    @model_validator(mode="after")
    def _options_have_a_place(self) -> Self:
        if self.runtime == "pyxis" and self.options:
            refuse(
                "options are apptainer's; pyxis takes none.",
                "Leave them out, or use runtime: apptainer.",
                "options",
            )
        return self


class Environment(Record):
    """Modules, a virtual environment, a container; variables; secrets."""

    venv: PathText | None = Field(
        default=None, description="The folder of a virtual environment."
    )
    conda: Line | None = Field(
        default=None, description="A conda environment: name or folder."
    )
    modules: Modules = Field(default=(), description="Modules to load, in order.")
    container: Container | None = None
    folder: PathText | None = Field(
        default=None,
        description="The folder to work in; where you submitted if not given.",
    )
    variables: dict[FreeName, VariableValue] = Field(
        default_factory=dict, description="Any text without NUL reaches every rank."
    )
    secrets: dict[FreeName, SecretReference] = Field(
        default_factory=dict,
        description="env:NAME or file:/path; the value never enters the spec.",
    )

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        if self.venv and self.conda:
            refuse("venv and conda are both given.", "Leave one out.", "conda")
        both = sorted(self.variables.keys() & self.secrets.keys())
        if both:
            refuse(
                f"{both[0]} is both a variable and a secret.",
                "Leave one out.",
                f"secrets.{both[0]}",
            )
        return self
