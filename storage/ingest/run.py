"""A whole ingest: plan, make the parts in several processes, assemble, publish."""

from __future__ import annotations

import importlib.metadata
import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hpcplat.datasets.manifest import Manifest
from hpcplat.datasets.names import DatasetPaths, Reference, check_name
from hpcplat.datasets.store import Store
from hpcplat.errors import ConflictError, InvalidError
from storage.ingest.dealing import Dealt, merged
from storage.ingest.options import IngestOptions
from storage.ingest.parts import Hashes, Part, part_folder
from storage.ingest.recipe import Recipe, Task, label_of
from storage.ingest.sources import without_secrets
from storage.publishing import Draft, changing, clear_drafts
from storage.writing import disk_of

# A manifest stays small: of a million pictures not every path is written down.
_SOURCES_LISTED = 1000

# In a version whose repeats were left out: the hashes of all its samples, 16 bytes each
# and sorted, so that what is added later can be told from them.
SEEN = "seen.blake2b"

_POLL = 1.0  # seconds between looks for parts that other workers make

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Target:
    """Where the version goes: root folder, dataset name, and tags to set.

    ``append`` takes the version that ``latest`` stands for and adds to it.
    """

    root: Path
    name: str
    tags: Sequence[str] = ()
    append: bool = False

    def __post_init__(self) -> None:
        check_name(self.name)
        for tag in self.tags:
            check_name(tag, "tag")


class Share(NamedTuple):
    """Which worker this is, of how many."""

    number: int
    of: int


ALONE = Share(0, 1)


def quiet(done: int, total: int) -> None:
    """Show no progress."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done: a recipe, what every kind of ingest is asked, the tasks."""

    recipe: Recipe
    options: IngestOptions
    tasks: Sequence[Task]

    @classmethod
    def of(cls, recipe: Recipe, options: IngestOptions, sources: Sequence[str]) -> Plan:
        """Look at the sources and cut them into tasks."""
        return cls(recipe, options, recipe.tasks(sources))

    def work_folder(self, dataset: DatasetPaths) -> Path:
        """Return where parts lie: the same folder when the same is asked again."""
        return dataset.drafts / label_of(self.recipe, self.options, self.tasks)


def run_ingest(
    plan: Plan, target: Target, *, processes: int = 1, progress: Progress = quiet
) -> Manifest:
    """Make a version and publish it.

    What was done before a kill is not done again. The result is the same for any
    number of processes and kills.
    """
    with changing(target.root, target.name) as dataset, disk_of(target.root):
        work = plan.work_folder(dataset)
        make_parts(plan, work, ALONE, processes=processes, progress=progress)
        return publish(plan, target, dataset)


def ingest_share(
    plan: Plan, target: Target, share: Share, processes: int, progress: Progress
) -> Manifest | None:
    """Do one worker's share of an ingest; worker 0 waits for all, and publishes.

    Each worker of a job calls it. The others get None. Waiting has no limit of its
    own: when a worker fails, its job ends, and this one with it.
    """
    if share.number:
        dataset = DatasetPaths.under(target.root, target.name)
        with disk_of(target.root):
            work = plan.work_folder(dataset)
            make_parts(plan, work, share, processes=processes, progress=progress)
        return None
    with changing(target.root, target.name) as dataset, disk_of(target.root):
        work = plan.work_folder(dataset)
        make_parts(plan, work, share, processes=processes, progress=progress)
        folders = [part_folder(work, number) for number in range(len(plan.tasks))]
        while not all(folder.exists() for folder in folders):
            time.sleep(_POLL)
        return publish(plan, target, dataset)


def make_parts(
    plan: Plan,
    work: Path,
    share: Share,
    *,
    processes: int = 1,
    progress: Progress = quiet,
) -> None:
    """Do the tasks of one worker that have no part yet."""
    (work / "parts").mkdir(parents=True, exist_ok=True)
    mine = range(share.number, len(plan.tasks), share.of)
    left = [number for number in mine if not part_folder(work, number).exists()]
    done = len(mine) - len(left)
    progress(done, len(mine))
    jobs = [
        (plan.recipe, part_folder(work, n), plan.tasks[n], plan.options) for n in left
    ]
    for _ in _run_all(jobs, min(processes, len(jobs))):
        done += 1
        progress(done, len(mine))


Job = tuple[Recipe, Path, Task, IngestOptions]


def _run_all(jobs: Sequence[Job], processes: int) -> Iterator[None]:
    if processes < 2:
        yield from map(_make_part, jobs)
        return
    # Not forked: libraries that have started threads do not survive it.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, initializer=_alone) as pool:
        futures = [pool.submit(_make_part, job) for job in jobs]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BaseException:  # one task failed, or Ctrl-C: do not begin the others
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _alone() -> None:
    """Keep each worker to one core; the tokenizers library asks the environment."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


def _make_part(job: Job) -> None:
    recipe, folder, task, options = job
    recipe.make_part(folder, task, options.splitting)


def publish(plan: Plan, target: Target, dataset: DatasetPaths) -> Manifest:
    """Put all parts together, make the version visible, and clean up."""
    work = plan.work_folder(dataset)
    folders = [part_folder(work, number) for number in range(len(plan.tasks))]
    missing = [folder.name for folder in folders if not folder.exists()]
    if missing:
        raise ConflictError(
            f"{len(missing)} of {len(folders)} parts are missing.",
            "Run the ingest again: it makes them.",
        )
    parts = [Part(folder) for folder in folders]
    names = [part.names() for part in parts]
    options = plan.options
    with _draft(plan, target, dataset, work) as draft:
        known = _known(draft, options)
        dealt = Dealt(names, options.splitting, known if options.deduplicate else None)
        attributes = plan.recipe.write(draft, parts, dealt, options)
        if known is not None:
            seen = merged(known, dealt.hashes())
            draft.add_file(SEEN, seen.astype("<u8").tobytes())
        origin = provenance_of(plan, _counts(parts, dealt))
        manifest = draft.publish(attributes, origin, tags=target.tags)
    clear_drafts(dataset)
    return manifest


def _known(draft: Draft, options: IngestOptions) -> Hashes | None:
    """Return the hashes of what the version to add to holds; None: nobody asks for them.

    Raises InvalidError where repeats of it are to be left out and it has no hashes.
    """
    content = draft.parent_file(SEEN)
    if content is not None:
        return np.frombuffer(content, "<u8").reshape(-1, 2)
    if not options.deduplicate:
        return None
    if draft.parent is not None:
        raise InvalidError(
            "The version to add to was made without --deduplicate, so that repeats of "
            "what it holds cannot be told.",
            "Leave --deduplicate out, or ingest all anew with it.",
        )
    return np.empty((0, 2), "<u8")


def _counts(parts: Sequence[Part], dealt: Dealt) -> Mapping[str, int]:
    counts = dict(counted(parts))
    return counts | {"repeats": dealt.repeats} if dealt.repeats else counts


def _draft(plan: Plan, target: Target, dataset: DatasetPaths, work: Path) -> Draft:
    parent = Store(target.root).digest(Reference(target.name)) if target.append else ""
    size = plan.options.shard_mib * 2**20
    label = f"{work.name}.version"
    return Draft(dataset, label, plan.recipe.kind, parent=parent, shard_bytes=size)


def counted(parts: Sequence[Part]) -> Mapping[str, int]:
    """Return the counts of all parts together, without zeros."""
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part.counts)
    return {name: count for name, count in sorted(total.items()) if count}


def provenance_of(plan: Plan, counts: Mapping[str, int]) -> dict[str, Any]:
    """Return where a version came from: sources, options, counts, code version."""
    wholes = {piece.path: piece.size for task in plan.tasks for piece in task}
    sources = [{"path": without_secrets(p), "size": size} for p, size in wholes.items()]
    asked = [
        options.model_dump(mode="json")
        for options in (plan.options, plan.recipe.options)
    ]
    return {
        "sources": sources[:_SOURCES_LISTED],
        "source_count": len(sources),
        "options": asked[0] | asked[1],
        "counts": dict(counts),
        "hpcplat": importlib.metadata.version("hpcplat"),
        "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
