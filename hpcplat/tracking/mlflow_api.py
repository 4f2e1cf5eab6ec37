"""The calls of MLflow's REST API that logging needs, over a store; no HTTP here.

Names and shapes: the MLflow REST API reference ("mlflow.org/docs/latest/rest-api").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from hpcplat.errors import ConflictError, HpcplatError, NotFoundError
from hpcplat.tracking.mlflow_store import MlflowStore

Values = dict[str, Any]


class Answer(NamedTuple):
    """An HTTP status and the JSON that goes with it."""

    status: int
    body: Values


class Call(NamedTuple):
    """What was asked: the words of the query or body, and names from the path."""

    store: MlflowStore
    words: Values
    names: Mapping[str, str]


def answer(store: MlflowStore, method: str, path: str, words: Values) -> Answer:
    """Answer one call; ``path`` is below ``/api/2.0/mlflow/``."""
    for route_method, pattern, action in _ROUTES:
        match = re.fullmatch(pattern, path)
        if match is not None and method == route_method:
            return _tried(action, Call(store, words, match.groupdict()))
    what = f"hpcplat does not know MLflow's call {method} {path}."
    return _error(HTTPStatus.NOT_FOUND, "ENDPOINT_NOT_FOUND", what)


def _tried(action: Callable[[Call], Values], call: Call) -> Answer:
    try:
        return Answer(HTTPStatus.OK, action(call))
    except NotFoundError as error:
        return _error(HTTPStatus.NOT_FOUND, "RESOURCE_DOES_NOT_EXIST", str(error))
    except ConflictError as error:
        return _error(HTTPStatus.BAD_REQUEST, "RESOURCE_ALREADY_EXISTS", str(error))
    except HpcplatError as error:
        return _error(HTTPStatus.BAD_REQUEST, "INVALID_PARAMETER_VALUE", str(error))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"The call lacks something, or has it in another form: {error!r}"
        return _error(HTTPStatus.BAD_REQUEST, "INVALID_PARAMETER_VALUE", what)


def _error(status: int, code: str, what: str) -> Answer:
    return Answer(status, {"error_code": code, "message": what})


def _experiment_by_name(call: Call) -> Values:
    name = call.words["experiment_name"]
    found = call.store.experiment_by_name(name)
    if found is None:
        raise NotFoundError(f"There is no experiment {name!r}.", "Create it.")
    return {"experiment": found}


def _create_experiment(call: Call) -> Values:
    tags = call.words.get("tags", [])
    return {"experiment_id": call.store.add_experiment(call.words["name"], tags)}


def _experiment(call: Call) -> Values:
    return {"experiment": call.store.experiment(str(call.words["experiment_id"]))}


def _search_experiments(call: Call) -> Values:
    return {"experiments": call.store.experiments()}


def _set_experiment_tag(call: Call) -> Values:
    tag = {"key": call.words["key"], "value": call.words["value"]}
    call.store.experiment(str(call.words["experiment_id"]))["tags"].append(tag)
    return {}


def _create_run(call: Call) -> Values:
    call.store.experiment(str(call.words.get("experiment_id", "0")))
    return {"run": call.store.add_run(call.words)}


def _run_id(call: Call) -> str:
    return str(call.words.get("run_id") or call.words["run_uuid"])


def _get_run(call: Call) -> Values:
    return {"run": call.store.run(_run_id(call))}


def _update_run(call: Call) -> Values:
    return {"run_info": call.store.update_run(_run_id(call), call.words)}


def _search_runs(call: Call) -> Values:
    runs = call.store.runs(call.words.get("experiment_ids", []))
    return {"runs": runs[: int(call.words.get("max_results", 1000))]}


def _log_metric(call: Call) -> Values:
    call.store.log(_run_id(call), [call.words], [], [])
    return {}


def _log_parameter(call: Call) -> Values:
    call.store.log(_run_id(call), [], [call.words], [])
    return {}


def _set_tag(call: Call) -> Values:
    call.store.log(_run_id(call), [], [], [call.words])
    return {}


def _log_batch(call: Call) -> Values:
    parts = (call.words.get(name, []) for name in ("metrics", "params", "tags"))
    call.store.log(_run_id(call), *parts)
    return {}


def _delete_tag(call: Call) -> Values:
    call.store.remove_tag(_run_id(call), call.words["key"])
    return {}


def _log_inputs(call: Call) -> Values:
    inputs = {k: v for k, v in call.words.items() if isinstance(v, list)}
    call.store.add_inputs(_run_id(call), inputs)
    return {}


def _metric_history(call: Call) -> Values:
    return {"metrics": call.store.history(_run_id(call), call.words["metric_key"])}


def _create_model(call: Call) -> Values:
    return {"model": call.store.add_model(call.words)}


def _get_model(call: Call) -> Values:
    return {"model": call.store.model(call.names["model"])}


def _finish_model(call: Call) -> Values:
    status = str(call.words.get("status", ""))
    return {"model": call.store.update_model(call.names["model"], status=status)}


def _tag_model(call: Call) -> Values:
    tags = call.words.get("tags", [])
    return {"model": call.store.update_model(call.names["model"], tags=tags)}


def _nothing(_: Call) -> Values:
    return {}


_MODEL: Final = r"logged-models/(?P<model>[^/]+)"
_ROUTES: Final = (
    ("GET", "experiments/get-by-name", _experiment_by_name),
    ("GET", "experiments/get", _experiment),
    ("POST", "experiments/create", _create_experiment),
    ("POST", "experiments/search", _search_experiments),
    ("GET", "experiments/search", _search_experiments),
    ("POST", "experiments/set-experiment-tag", _set_experiment_tag),
    ("POST", "runs/create", _create_run),
    ("GET", "runs/get", _get_run),
    ("POST", "runs/update", _update_run),
    ("POST", "runs/search", _search_runs),
    ("POST", "runs/log-metric", _log_metric),
    ("POST", "runs/log-parameter", _log_parameter),
    ("POST", "runs/set-tag", _set_tag),
    ("POST", "runs/delete-tag", _delete_tag),
    ("POST", "runs/log-batch", _log_batch),
    ("POST", "runs/log-inputs", _log_inputs),
    ("POST", "runs/outputs", _nothing),
    ("POST", "runs/log-model", _nothing),
    ("GET", "metrics/get-history", _metric_history),
    ("POST", "logged-models", _create_model),
    ("GET", _MODEL, _get_model),
    ("PATCH", _MODEL, _finish_model),
    ("PATCH", f"{_MODEL}/tags", _tag_model),
    ("POST", f"{_MODEL}/params", _get_model),
)
