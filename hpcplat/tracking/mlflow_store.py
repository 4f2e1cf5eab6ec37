"""What MLflow's client logs, kept in a folder.

Numbers go the way of all metrics; parameters, tags and the rest of MLflow's own words
are a JSON file for each run and model; artifacts are files.
"""

from __future__ import annotations

import json
import math
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from hpcplat.errors import ConflictError, NotFoundError
from hpcplat.files import write_whole
from hpcplat.tracking.writer import MetricsWriter

HISTORY: Final = 25_000  # points of one metric that a client gets back
ARTIFACTS: Final = "artifacts"
DEFAULT: Final = "Default"
EXPERIMENTS: Final = "experiments"
RUNS: Final = "runs"
MODELS: Final = "models"
KINDS: Final = (EXPERIMENTS, RUNS, MODELS)
ENDED: Final = ("FINISHED", "FAILED", "KILLED")

Values = dict[str, Any]


class MlflowStore:
    """Experiments, runs and models below ``folder``; safe for several threads.

    ``writer`` opens where the metrics of a run go; ``artifacts`` is the address under
    which clients find the folder, if it is not its path.
    """

    def __init__(
        self, folder: Path, writer: Callable[[str], MetricsWriter], artifacts: str = ""
    ) -> None:
        self._folder = folder
        self._open_writer = writer
        self._address = artifacts or str(folder)
        self._lock = threading.RLock()
        self._writers: dict[str, MetricsWriter] = {}
        self._latest: dict[str, dict[str, Values]] = {}
        self._history: dict[tuple[str, str], list[Values]] = {}
        self._kept: dict[str, dict[str, Values]] = {
            kind: dict(_read_all(folder / kind)) for kind in KINDS
        }
        if not self._kept[EXPERIMENTS]:
            self.add_experiment(DEFAULT, [])

    def close(self) -> None:
        """Write what waits."""
        with self._lock:
            while self._writers:
                self._writers.popitem()[1].close()

    def add_experiment(self, name: str, tags: Iterable[Values]) -> str:
        """Return the id of a new experiment; ConflictError if there is one."""
        with self._lock:
            if self.experiment_by_name(name) is not None:
                raise ConflictError(f"There is an experiment {name!r} already.")
            number = str(len(self._kept[EXPERIMENTS]))
            now = _now()
            self._kept[EXPERIMENTS][number] = {
                "experiment_id": number,
                "name": name,
                "artifact_location": self._artifacts(f"experiment-{number}"),
                "lifecycle_stage": "active",
                "creation_time": now,
                "last_update_time": now,
                "tags": list(tags),
            }
            self._save(EXPERIMENTS, number)
            return number

    def experiments(self) -> list[Values]:
        """Return all experiments."""
        return list(self._kept[EXPERIMENTS].values())

    def experiment(self, number: str) -> Values:
        """Return an experiment by id; NotFoundError."""
        return _found(self._kept[EXPERIMENTS], number, "experiment")

    def experiment_by_name(self, name: str) -> Values | None:
        """Return an experiment by name, if it is there."""
        with self._lock:
            found = (e for e in self.experiments() if e["name"] == name)
            return next(found, None)

    def add_run(self, asked: Values) -> Values:
        """Return a new run, as MLflow shows runs."""
        with self._lock:
            number = secrets.token_hex(16)
            info = {
                "run_id": number,
                "run_uuid": number,
                "run_name": asked.get("run_name") or f"run-{number[:6]}",
                "experiment_id": str(asked.get("experiment_id", "0")),
                "user_id": asked.get("user_id", ""),
                "status": "RUNNING",
                "start_time": int(asked.get("start_time") or _now()),
                "artifact_uri": self._artifacts(number),
                "lifecycle_stage": "active",
            }
            tags = {tag["key"]: tag.get("value", "") for tag in asked.get("tags", [])}
            kept = {"info": info, "params": {}, "tags": tags, "inputs": {}}
            self._kept[RUNS][number] = kept
            self._writers[number] = self._open_writer(number)
            self._save(RUNS, number)
            return self.run(number)

    def run(self, number: str) -> Values:
        """Return a run as MLflow shows runs; NotFoundError."""
        with self._lock:
            kept = _found(self._kept[RUNS], number, "run")
            data = {
                "params": _pairs(kept["params"]),
                "tags": _pairs(kept["tags"]),
                "metrics": list(self._latest.get(number, {}).values()),
            }
            return {"info": kept["info"], "data": data, "inputs": kept["inputs"]}

    def runs(self, experiments: Iterable[str]) -> list[Values]:
        """Return the runs of experiments, newest first."""
        wanted = set(experiments)
        with self._lock:
            numbers = [
                number
                for number, kept in self._kept[RUNS].items()
                if kept["info"]["experiment_id"] in wanted
            ]
            return [self.run(number) for number in reversed(numbers)]

    def update_run(self, number: str, changes: Mapping[str, Any]) -> Values:
        """Change a run's status, end time or name; return its info."""
        with self._lock:
            info: Values = _found(self._kept[RUNS], number, "run")["info"]
            known = ("status", "end_time", "run_name")
            info.update({key: changes[key] for key in known if key in changes})
            self._save(RUNS, number)
            if info["status"] in ENDED and number in self._writers:
                self._writers.pop(number).close()
            return info

    def log(
        self,
        number: str,
        metrics: Iterable[Values],
        params: Iterable[Values],
        tags: Iterable[Values],
    ) -> None:
        """Take metrics, parameters and tags of a run; they are given as MLflow does."""
        with self._lock:
            kept = _found(self._kept[RUNS], number, "run")
            for metric in metrics:
                self._log_metric(number, metric)
            news = {p["key"]: str(p.get("value", "")) for p in params}
            for key, value in news.items():
                before = kept["params"].get(key, value)
                if before != value:
                    raise ConflictError(
                        f"The parameter {key} is {before!r} already, and not {value!r}.",
                        "Log it under another name.",
                    )
            new_tags = {tag["key"]: str(tag.get("value", "")) for tag in tags}
            if news or new_tags:
                kept["params"].update(news)
                kept["tags"].update(new_tags)
                self._save(RUNS, number)

    def remove_tag(self, number: str, key: str) -> None:
        """Take a tag of a run away."""
        with self._lock:
            _found(self._kept[RUNS], number, "run")["tags"].pop(key, None)
            self._save(RUNS, number)

    def add_inputs(self, number: str, inputs: Values) -> None:
        """Note what a run read, as MLflow says it."""
        with self._lock:
            kept = _found(self._kept[RUNS], number, "run")["inputs"]
            for key, values in inputs.items():
                kept.setdefault(key, []).extend(values)
            self._save(RUNS, number)

    def history(self, number: str, name: str) -> list[Values]:
        """Return the points of a metric that were logged since this began."""
        return list(self._history.get((number, name), []))

    def add_model(self, asked: Values) -> Values:
        """Return a new logged model."""
        with self._lock:
            number = f"m-{secrets.token_hex(16)}"
            now = _now()
            info = {
                "model_id": number,
                "experiment_id": str(asked.get("experiment_id", "0")),
                "name": asked.get("name") or number,
                "artifact_uri": self._artifacts(number),
                "creation_timestamp_ms": now,
                "last_updated_timestamp_ms": now,
                "status": "LOGGED_MODEL_PENDING",
                "model_type": asked.get("model_type", ""),
                "source_run_id": asked.get("source_run_id", ""),
                "tags": asked.get("tags", []),
            }
            data = {"params": asked.get("params", []), "metrics": []}
            self._kept[MODELS][number] = {"info": info, "data": data}
            self._save(MODELS, number)
            return self.model(number)

    def model(self, number: str) -> Values:
        """Return a logged model; NotFoundError."""
        return _found(self._kept[MODELS], number, "model")

    def update_model(
        self, number: str, *, status: str = "", tags: Iterable[Values] = ()
    ) -> Values:
        """Change a logged model's status or tags."""
        with self._lock:
            model = self.model(number)
            if status:
                model["info"]["status"] = status
            model["info"]["tags"] = [*model["info"]["tags"], *tags]
            self._save(MODELS, number)
            return model

    def _log_metric(self, number: str, metric: Values) -> None:
        name, step = metric["key"], int(metric.get("step") or 0)
        value = float(metric["value"])
        stamp = int(metric.get("timestamp") or _now())
        writer = self._writers.get(number)
        if writer is None:  # a run that an earlier attempt began is resumed
            writer = self._writers[number] = self._open_writer(number)
        writer.log({name: value}, step, time=stamp / 1000)
        shown = {"key": name, "value": _shown(value), "timestamp": stamp, "step": step}
        self._latest.setdefault(number, {})[name] = shown
        points = self._history.setdefault((number, name), [])
        if len(points) < HISTORY:
            points.append(shown)

    def _artifacts(self, name: str) -> str:
        return f"{self._address}/{ARTIFACTS}/{name}/artifacts"

    def _save(self, kind: str, number: str) -> None:
        path = self._folder / kind / f"{number}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(self._kept[kind][number], ensure_ascii=False))


def _read_all(folder: Path) -> Iterator[tuple[str, Values]]:
    for path in sorted(folder.glob("*.json")):
        try:
            yield path.stem, json.loads(path.read_bytes())
        except ValueError:
            continue  # damaged: its metrics are there all the same


def _found(there: Mapping[str, Values], number: str, what: str) -> Values:
    if number not in there:
        raise NotFoundError(f"There is no {what} {number}.", "Check its id.")
    return there[number]


def _shown(value: float) -> float | str:
    """Return a number as protobuf's JSON has it."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"


def _pairs(values: Mapping[str, str]) -> list[Values]:
    return [{"key": key, "value": value} for key, value in values.items()]


def _now() -> int:
    """Return Unix time in milliseconds, as MLflow counts."""
    return int(time.time() * 1000)
