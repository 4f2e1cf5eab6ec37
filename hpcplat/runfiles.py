"""The files of a run folder before its job starts: pure, then written in one place."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hpcplat.batchscript import Part, program, render
from hpcplat.errors import ExitCode
from hpcplat.files import Owner, write_whole
from hpcplat.jobs.environment import Container
from hpcplat.jobs.spec import JobSpec
from hpcplat.launchplan import LaunchPlan
from hpcplat.parallel import places_as_json, rank_map
from hpcplat.runfolder import PRIVATE_FILE, RunFolder
from hpcplat.settings import DATASETS
from hpcplat.shrinking import shrinks
from hpcplat.sitepolicy import SitePolicy
from hpcplat.training import training_of

PUBLIC_FILE: Final = 0o644
PROGRAM_FILE: Final = 0o755
WARM_MODULES: Final = ("launchers.megatron.preload",)


@dataclass(frozen=True, slots=True)
class RunFile:
    """A file to be: where, what, and its mode."""

    path: Path
    content: str
    mode: int = PUBLIC_FILE


def run_files(
    spec: JobSpec,
    folder: RunFolder,
    policy: SitePolicy,
    key: str,
    part: Part = Part(),  # noqa: B008 - frozen
) -> tuple[RunFile, ...]:
    """Return all that a job needs in its folder but for secrets; the script is last."""
    places = places_as_json(rank_map(spec.parallelism, spec.allocation))
    found = [
        RunFile(folder.spec, spec.model_dump_json(indent=1) + "\n"),
        RunFile(folder.plan, launch_plan(spec, folder, policy, key).to_json()),
        RunFile(folder.rank_map, json.dumps(places) + "\n"),
    ]
    if isinstance(spec.command, str):
        found.append(RunFile(folder.command, spec.command, PROGRAM_FILE))
    script = render(spec, folder, policy, key, part)
    return (*found, RunFile(folder.script, script))


def secrets_file(folder: RunFolder, values: Mapping[str, str]) -> RunFile:
    """Return the file that carries secret values to the agents: the owner's alone."""
    return RunFile(folder.secrets, json.dumps(dict(values)) + "\n", PRIVATE_FILE)


def secret_names(spec: JobSpec) -> dict[str, str]:
    """Return the secrets to be taken from the submitter's environment: name, source."""
    return {
        name: reference.removeprefix("env:")
        for name, reference in spec.environment.secrets.items()
        if reference.startswith("env:")
    }


def write_files(
    folder: RunFolder,
    files: Iterable[RunFile],
    *,
    owner: Owner | None = None,
    durable: bool = True,
) -> None:
    """Make the run folder with its subfolders, and write each file whole.

    As root for somebody else, ``owner`` is who gets them. The folder above stays
    root's, so that nobody can put a link where the run folder is to be.
    """
    folder.root.parent.mkdir(parents=True, exist_ok=True)
    _make_folder(folder.root, owner, [folder.logs, folder.metrics])
    for file in files:
        write_whole(file.path, file.content, file.mode, durable=durable, owner=owner)


def _make_folder(root: Path, owner: Owner | None, inner: Iterable[Path]) -> None:
    """Make a folder with what is in it, and only then give it away."""
    try:
        root.mkdir()
    except FileExistsError:
        if owner is None:
            for path in inner:
                path.mkdir(exist_ok=True)
        return
    for path in inner:
        path.mkdir()
        if owner is not None:
            os.chown(path, owner.uid, owner.gid, follow_symlinks=False)
    if owner is not None:
        os.chown(root, owner.uid, owner.gid, follow_symlinks=False)


def launch_plan(
    spec: JobSpec, folder: RunFolder, policy: SitePolicy, key: str
) -> LaunchPlan:
    """Return what the agents start."""
    environment = spec.environment
    return LaunchPlan(
        key=key,
        name=spec.name,
        nodes=spec.resources.nodes,
        spare_nodes=spec.resources.spare_nodes,
        ranks_per_node=spec.resources.ranks_per_node,
        cpus_per_task=spec.resources.cpus_per_task,
        argv=rank_argv(spec, folder, policy),
        folder=environment.folder,
        variables={**_site_variables(policy), **environment.variables},
        secrets=environment.secrets,
        outputs=spec.outputs,
        grace=spec.recovery.grace.total_seconds(),
        # A requeue, and the other tasks of an array, read the secrets again.
        keep_secrets=spec.requeues or spec.array is not None,
        recovers=spec.requeues,
        max_failures=spec.recovery.max_failures,
        warm=WARM_MODULES if _is_ours(spec) else (),
        agent_store=_is_ours(spec),
        copies=_is_ours(spec)
        and spec.requeues
        and spec.recovery.memory_copies_every > 0,
        final_codes=(ExitCode.MENDABLE,) if spec.preset else (),
        node_failures=policy.node_failures,
        node_hours=policy.node_hours,
        **_of_training(spec),
    )


def _of_training(spec: JobSpec) -> dict[str, Any]:
    """Return what only a training of our own has: its batch, its smaller worlds."""
    if spec.preset is None:
        return {}
    training = training_of(spec)
    return {
        "batch": training.settings.batch.global_size,
        "stages": training.layout.pipeline,
        "shrinks": shrinks(training) if spec.recovery.shrink else (),
    }


def _site_variables(policy: SitePolicy) -> dict[str, str]:
    return {} if policy.datasets is None else {DATASETS: policy.datasets}


def _is_ours(spec: JobSpec) -> bool:
    """Return whether the ranks are our own launcher's, run by the agents' own Python."""
    return spec.preset is not None and spec.environment.container is None


def rank_argv(spec: JobSpec, folder: RunFolder, policy: SitePolicy) -> tuple[str, ...]:
    """Return the words that start one rank, container and all."""
    words = _command(spec, folder, policy)
    container = spec.environment.container
    if container is None or container.runtime == "pyxis":
        return words
    gpus = spec.resources.gpus_per_node > 0
    disk = spec.staging.folder if spec.staging else None
    return (*apptainer(container, folder, policy, gpus=gpus, disk=disk), *words)


def apptainer(
    container: Container,
    folder: RunFolder,
    policy: SitePolicy,
    *,
    gpus: bool,
    disk: str | None = None,
) -> tuple[str, ...]:
    """Return the words that run a command in an image, the run folder mounted.

    So is ``disk``, the folder of staged datasets. Variables pass from outside as they
    are (Apptainer's default).
    """
    words = [policy.apptainer, "exec"]
    if gpus:
        words.append("--nv")
    words.append(f"--bind={folder.root}")
    if disk:
        words.append(f"--bind={disk}")
    words += [f"--bind={mount}" for mount in container.mounts]
    if container.folder:
        words.append(f"--pwd={container.folder}")
    return (*words, *container.options, container.image)


def _command(spec: JobSpec, folder: RunFolder, policy: SitePolicy) -> tuple[str, ...]:
    if spec.preset is not None:
        return (*program(policy, "launchers.megatron"), str(folder.spec))
    if isinstance(spec.command, str):
        # A file, not `bash -c`: a script may be larger than an argument (128 KiB).
        own_shell = spec.command.startswith("#!")
        path = str(folder.command)
        return (path,) if own_shell else ("/bin/bash", path)
    return spec.command or ()
