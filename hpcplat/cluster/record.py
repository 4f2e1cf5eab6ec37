"""The file in a cluster's folder that says what the cluster is."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from hpcplat import files
from hpcplat.cluster.configuration import Layout
from hpcplat.cluster.folder import ClusterFolder
from hpcplat.cluster.ports import Ports
from hpcplat.cluster.spec import ClusterSpec, NodeGroup
from hpcplat.errors import InvalidError


def write(layout: Layout) -> None:
    """Write the record; from here on the folder is known to be a cluster's."""
    spec = layout.spec
    plain = {
        field.name: getattr(spec, field.name) for field in dataclasses.fields(spec)
    }
    plain["folder"] = str(spec.folder)
    plain["root"] = str(spec.root) if spec.root else None
    plain["settings"] = dict(spec.settings)
    plain["groups"] = [dataclasses.asdict(group) for group in spec.groups]
    content = {
        "spec": plain,
        "base_port": layout.ports.base,
        "user": layout.user,
        "version": layout.version,
    }
    files.write_whole(layout.folder.record, json.dumps(content, indent=2) + "\n")


def read(folder: ClusterFolder) -> Layout | None:
    """Return what the folder's record says, or None where there is none.

    Raises InvalidError when the record cannot be read as one.
    """
    if not folder.record.exists():
        return None
    try:
        content = json.loads(folder.record.read_text())
        major, minor = content["version"]
        return Layout(
            spec=_spec(content["spec"]),
            folder=folder,
            ports=Ports(content["base_port"]),
            user=content["user"],
            version=(major, minor),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidError(
            f"{folder.record} is not the record of a cluster ({error}).",
            "Another version of hpcplat may have written it: use that one.",
        ) from error


def _spec(plain: dict[str, Any]) -> ClusterSpec:
    groups = tuple(NodeGroup(**group) for group in plain.pop("groups"))
    root = plain.pop("root")
    folder = Path(plain.pop("folder"))
    return ClusterSpec(
        **plain, groups=groups, folder=folder, root=Path(root) if root else None
    )
