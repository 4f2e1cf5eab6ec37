"""docs/reference/settings.md: variables, the site's policy; none that is in no table."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Final

from hpcplat.jobs.reference import _choices
from hpcplat.sitepolicy import SitePolicy
from tests.docs.sources import cell, trees

HEAD: Final = """# Settings

<!-- Made by `python -m tests.docs.generate`. -->

Settings are environment variables: read once, when a program starts. `hpcplat doctor` says
what it makes of yours. Folders may begin with `~`.

"""
# For people and services; the defaults as settings.py has them.
SETTINGS: Final = {
    "HPCPLAT_URL": (
        "the service that `hpcplat login` chose, else none",
        "`https://host`, `http://127.0.0.1:8000` or `unix:/path/of/socket`; empty: none.",
    ),
    "HPCPLAT_TOKEN": ("", "Who you are, for a service that is reached by HTTP."),
    "HPCPLAT_TOKEN_FILE": (
        "`~/.config/hpcplat/token`",
        "The file that holds it; refused if others can read it.",
    ),
    "HPCPLAT_TIMEOUT": ("`30`", "Seconds that a command waits for the service."),
    "HPCPLAT_DATA": (
        "`~/.local/share/hpcplat`",
        "The folder of what is kept: the database, Aim's repository, the socket.",
    ),
    "HPCPLAT_RUNS": (
        "`runs` in the data folder",
        "The folder of the jobs' run folders. All nodes must see it under this path.",
    ),
    "HPCPLAT_DATASETS": (
        "`datasets` in the data folder",
        "The folder of the datasets. All nodes must see it under this path.",
    ),
    "HPCPLAT_DATABASE": (
        "`hpcplat.db` in the data folder",
        "`sqlite:////folder/file.db` or `postgresql://role@/database?host=/folder`.",
    ),
    "HPCPLAT_POLICY": ("", "The file of the site's policy: the keys below."),
    "HPCPLAT_RESIDENT": (
        "`on`",
        "`off`: leave no process behind that makes the next command quicker.",
    ),
}
# What a job's processes find; reading them is what hpcplat.allocation is for.
ALLOCATION: Final = {
    "HPCPLAT_RUN_FOLDER": "The job's run folder.",
    "HPCPLAT_ATTEMPT": "Which start of the job this is, from 1.",
    "HPCPLAT_GENERATION": "Which start of the ranks within the attempt, from 0.",
    "HPCPLAT_JOB_KEY": "The key that the job carries through Slurm.",
    "HPCPLAT_ARRAY_INDEX": "The task's index in the array that was asked for.",
    "HPCPLAT_KEEPER": "Where this node's keeper of states listens.",
    "HPCPLAT_STAGED": "The folder of datasets on the node's own disk, if the job stages.",
    "HPCPLAT_PULSE": "Where a rank tells its agent which step it has done.",
    "HPCPLAT_DATASETS": "The folder of the datasets, by the site's policy.",
    "HPCPLAT_TENSORBOARD": "A folder of TensorBoard files to follow, set by the job.",
}
# Between our own programs: nothing to set.
OWN: Final = {"HPCPLAT_CLUSTER", "HPCPLAT_DAEMON", "HPCPLAT_ENTERED"}
NAME: Final = re.compile(r"HPCPLAT_[A-Z_]+")


def page() -> str:
    """Return the page; KeyError for a variable of the code that no table tells of."""
    untold = variables() - {*SETTINGS, *ALLOCATION, *OWN}
    if untold:
        raise KeyError(f"tests/docs/settings.py says nothing of {sorted(untold)}")
    rows = [
        f"| `{n}` | {default} | {says} |" for n, (default, says) in SETTINGS.items()
    ]
    head = "## Variables\n\n| variable | default | what it says |\n|---|---|---|"
    return "\n".join([HEAD + head, *rows, "", _allocation(ALLOCATION), _policy()])


def variables() -> frozenset[str]:
    """Return every name of a variable of ours that stands in the code."""
    return frozenset(
        node.value
        for _, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and NAME.fullmatch(node.value)
    )


def _allocation(names: Mapping[str, str]) -> str:
    rows = [f"| `{name}` | {says} |" for name, says in names.items()]
    head = (
        "## In a job\n\nSet for a job's processes by hpcplat.\n\n"
        "| variable | what it says |\n|---|---|"
    )
    return "\n".join([head, *rows, ""])


def _policy() -> str:
    rows = [
        f"| `{name}` | {_default(name)} | {_choices(field)}{cell(field.description or '')} |"
        for name, field in SitePolicy.model_fields.items()
    ]
    head = (
        "## The site's policy\n\nA YAML file that `HPCPLAT_POLICY` names. Every key has a"
        " default that suits many sites.\n\n| key | default | what it says |\n|---|---|---|"
    )
    return "\n".join([head, *rows, ""])


def _default(name: str) -> str:
    if name == "python":  # of whoever makes this page
        return "the service's own"
    value = SitePolicy.model_fields[name].default
    if value is None:
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"
