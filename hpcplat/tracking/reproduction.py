"""Whether a run can be had again: what its record names, beside what is there now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hpcplat.datasets.store import locate
from hpcplat.errors import HpcplatError, InvalidError
from hpcplat.tracking.code_state import code_state


def spec_to_repeat(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec that asks for the same run, its data named by digest."""
    spec = dict(record["spec"])
    if not spec:
        raise InvalidError(
            "The run folder has no spec.json: nothing says what was asked for.",
            "Submit the job's own spec file.",
        )
    for data in record["data"]:
        if "digest" in data and spec.get("data") == data["reference"]:
            name = data["reference"].partition("@")[0].partition(":")[0]
            spec["data"] = f"{name}@{data['digest']}"
    return spec


def obstacles(record: Mapping[str, Any]) -> list[str]:
    """Return what is gone or differs now from what the record names; none: []."""
    return [*_code(record["code"], record["spec"]), *_data(record), *_places(record)]


def _code(code: Mapping[str, Any], spec: Mapping[str, Any]) -> Iterator[str]:
    if not code:
        yield "the record does not say which code was run"
        return
    folder = Path(code["folder"])
    if not folder.is_dir():
        yield f"the code's folder {folder} is gone"
        return
    command = spec.get("command") or ()
    argv = command if isinstance(command, list) else ()
    now, _ = code_state(folder, argv)
    if now.commit != code["commit"]:
        yield f"{folder} is at commit {now.commit[:12]}, not {code['commit'][:12]}"
    if now.diff != code["diff"]:
        yield f"{folder} has other uncommitted changes than then"
    for name, digest in code["files"].items():
        if dict(now.files).get(name) != digest:
            yield f"{folder / name} is gone or was changed"


def _data(record: Mapping[str, Any]) -> Iterator[str]:
    for data in record["data"]:
        name = data["reference"].partition("@")[0].partition(":")[0]
        if "digest" not in data:
            yield f"the record does not say which version of {name} was read"
            continue
        if Path(data.get("folder", "")).name == data["digest"]:
            # Where it was read from then, which need not be where we look by default.
            if not Path(data["folder"]).is_dir():
                yield f"data: the version {data['folder']} is gone"
            continue
        try:
            locate(f"{name}@{data['digest']}")
        except HpcplatError as error:
            yield f"data: {error.what}"


def _places(record: Mapping[str, Any]) -> Iterator[str]:
    environment = record["environment"]
    for key in ("virtual_environment", "conda"):
        path = environment.get(key)
        if path and not Path(path).is_dir():
            yield f"the environment {path} is gone"
    python = environment.get("python", {}).get("executable")
    if python and not Path(python).exists():
        yield f"the interpreter {python} is gone"
    parent = record.get("parent") or {}
    if parent and not Path(parent["checkpoint"]).exists():
        yield f"the checkpoint {parent['checkpoint']} that it began from is gone"
