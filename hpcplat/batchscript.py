"""The batch script of a job: a pure function of the spec, its folder and the site."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from importlib import resources
from typing import Final

import jinja2

from hpcplat.jobs.array import ArrayChunk
from hpcplat.jobs.environment import Container
from hpcplat.jobs.options import arguments
from hpcplat.jobs.spec import JobSpec
from hpcplat.quantities import format_duration, format_memory
from hpcplat.runfolder import RunFolder
from hpcplat.sitepolicy import SitePolicy

KEY_PREFIX: Final = "hpcplat:"
_PLAIN: Final = re.compile(r"[\w\-./:,@+]*")  # what sbatch reads as it stands


@dataclass(frozen=True, slots=True)
class Part:
    """What differs between the submissions of one job.

    ``first_attempt`` is the number of the attempt that this submission begins with
    (its requeues count on from it); ``account`` the Slurm account if it is not the
    workspace's name; ``dependency`` the value of ``--dependency``, in Slurm's ids;
    ``chunk`` the part of a job array.
    """

    first_attempt: int = 1
    account: str | None = None
    dependency: str = ""
    chunk: ArrayChunk | None = None
    exclude: tuple[str, ...] = ()


def render(
    spec: JobSpec,
    folder: RunFolder,
    policy: SitePolicy,
    key: str,
    part: Part = Part(),
) -> str:
    """Return the batch script, the very text that goes to sbatch.

    No secret and no variable of the spec stands in it: those reach the agents through
    the run folder. ``key`` is the job's own, carried in ``--comment``.
    """
    environment = spec.environment
    return _template().render(
        options=[
            sbatch_quoted(option) for option in options(spec, folder, policy, key, part)
        ],
        root=str(folder.root),
        chosen=str(folder.chosen(key)),
        first_attempt=part.first_attempt,
        array=part.chunk is not None,
        offset=part.chunk.offset if part.chunk else 0,
        modules=environment.modules,
        module_setup=policy.module_setup,
        conda=environment.conda,
        conda_setup=policy.conda_setup,
        venv=environment.venv,
        staging=spec.staging is not None,
        disk=spec.staging.folder if spec.staging else None,
        stager=program(policy, "storage.staging_step"),
        stager_srun=srun(spec, policy),
        coordinator=program(policy, "launchers.coordinator"),
        agent=program(policy, "launchers.agent"),
        srun=[*srun(spec, policy), *container(spec, folder)],
    )


def program(policy: SitePolicy, module: str) -> list[str]:
    """Return the words that start one of our programs.

    ``-I`` keeps PYTHONPATH and the current folder from shadowing its modules.
    """
    return [policy.python, "-I", "-m", module]


def options(
    spec: JobSpec, folder: RunFolder, policy: SitePolicy, key: str, part: Part
) -> list[str]:
    """Return the script's sbatch options, unquoted, one a directive."""
    name = f"{spec.name}:{key}" if policy.key_in_name else spec.name
    return [
        f"--job-name={name}",
        f"--comment={KEY_PREFIX}{key}",
        *_identity(spec, part),
        *_size(spec, policy),
        *_place(spec, part),
        *_ends(spec, policy, part),
        *_output(folder, part),
        *arguments(spec.sbatch),
    ]


def time_limit(spec: JobSpec, policy: SitePolicy) -> timedelta:
    """Return the job's time limit: always finite, for backfill's sake."""
    return spec.resources.time or policy.default_time


def _identity(spec: JobSpec, part: Part) -> list[str]:
    account = part.account or spec.workspace
    return [f"--account={account}"] if account else []


def _size(spec: JobSpec, policy: SitePolicy) -> list[str]:
    """Return nodes, CPUs, GPUs and memory: one task a node, with the CPUs of all ranks.

    Exactly one option asks for GPUs: --gres and --gpus-per-node exclude each other.
    """
    asked = spec.resources
    found = [
        f"--nodes={asked.all_nodes}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={asked.ranks_per_node * asked.cpus_per_task}",
    ]
    if asked.gpus_per_node:
        amount = ":".join(filter(None, [asked.gpu_type, str(asked.gpus_per_node)]))
        gres = policy.gpu_option == "gres"
        found.append(
            f"--gres={policy.gpu_gres}:{amount}"
            if gres
            else f"--gpus-per-node={amount}"
        )
    if asked.memory is not None:
        found.append(f"--mem={format_memory(asked.memory)}")
    return found


def _place(spec: JobSpec, part: Part) -> list[str]:
    asked = spec.resources
    exclude = ",".join([*asked.exclude, *part.exclude])
    values = {
        "partition": asked.partition,
        "qos": asked.qos,
        "constraint": asked.constraint,
        "exclude": exclude,
        "reservation": asked.reservation,
    }
    found = [f"--{name}={value}" for name, value in values.items() if value]
    return [*found, "--exclusive"] if asked.exclusive else found


def _ends(spec: JobSpec, policy: SitePolicy, part: Part) -> list[str]:
    limit = time_limit(spec, policy)
    # A job shorter than its warning would be warned as it starts.
    warning = min(spec.recovery.warning, limit / 4) // timedelta(seconds=1)
    found = [
        f"--time={format_duration(limit)}",
        "--requeue" if spec.requeues else "--no-requeue",
    ]
    if warning:
        found.append(f"--signal=B:USR2@{warning}")
    if spec.resources.spare_nodes:
        found.append("--no-kill")
    if part.dependency:
        found += [f"--dependency={part.dependency}", "--kill-on-invalid-dep=yes"]
    return found


def _output(folder: RunFolder, part: Part) -> list[str]:
    """Return where Slurm itself writes; the script then turns to its attempt's log.

    ``%`` begins a replacement in --output, and ``%%`` is the character itself.
    """
    root = str(folder.root)
    logs = str(folder.logs).replace("%", "%%")
    found = [
        f"--chdir={root}",
        f"--output={logs}/slurm{'-%a' if part.chunk else ''}.log",
        "--open-mode=append",
        "--export=ALL",
    ]
    return [f"--array={part.chunk.option}", *found] if part.chunk else found


def srun(spec: JobSpec, policy: SitePolicy) -> list[str]:
    """Return the words that start a program once on each node.

    The step outlives a node (--no-kill), is not ended by the first task that ends
    (--wait=0), and leaves the node's resources to steps of the ranks' own (--overlap).
    """
    asked = spec.resources
    return [
        policy.srun,
        f"--nodes={asked.all_nodes}",
        f"--ntasks={asked.all_nodes}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={asked.ranks_per_node * asked.cpus_per_task}",
        "--no-kill",
        "--kill-on-bad-exit=0",
        "--wait=0",
        "--overlap",
        "--mpi=none",
        "--input=none",
        "--export=ALL",
    ]


def container(spec: JobSpec, folder: RunFolder) -> list[str]:
    """Return srun's words for a container that is its to start; none without one."""
    asked = spec.environment.container
    if asked is None or asked.runtime != "pyxis":
        return []
    return pyxis(asked, folder, spec.staging.folder if spec.staging else None)


def pyxis(container: Container, folder: RunFolder, disk: str | None) -> list[str]:
    """Return srun's container options; the run folder is where it is outside.

    So is ``disk``, the folder of staged datasets.
    """
    same = [str(folder.root), *([disk] if disk else [])]
    mounts = ",".join([*(f"{path}:{path}" for path in same), *container.mounts])
    words = [f"--container-image={container.image}", f"--container-mounts={mounts}"]
    if container.folder:
        words.append(f"--container-workdir={container.folder}")
    return words


def sbatch_quoted(option: str) -> str:
    r"""Return an option as sbatch reads it back from a #SBATCH line.

    sbatch takes ``\`` before any character, within quotes too, and ends the line at an
    unquoted ``#`` (its own reader, not a shell's).
    """
    name, separator, value = option.partition("=")
    if not separator or _PLAIN.fullmatch(value):
        return option
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'{name}="{escaped}"'


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_source),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters["sh"] = shlex.quote
    environment.filters["words"] = shlex.join
    return environment.get_template("job.sbatch.j2")


def _source(name: str) -> str:
    return (resources.files("sbatch_templates") / name).read_text(encoding="utf-8")
