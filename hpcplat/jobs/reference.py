"""The reference page of job specs, made from the records themselves.

``python -m hpcplat.jobs.reference docs/reference/job-spec.md`` writes it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from hpcplat.files import write_whole
from hpcplat.jobs.complaints import record_in
from hpcplat.jobs.environment import RESERVED_NAMES, RESERVED_PREFIXES
from hpcplat.jobs.options import OWN_FIELD
from hpcplat.jobs.spec import JobSpec
from hpcplat.jobs.templates import TEMPLATES

_HEAD = """\
# The job spec

<!-- Made by `python -m hpcplat.jobs.reference docs/reference/job-spec.md`. -->

A job is asked for in a YAML file (or JSON, or as `hpcplat.jobs.JobSpec` in Python).
`hpcplat spec template KIND` prints one to start from, `hpcplat spec check FILE` says what
is wrong with one, a line for each fault, and `hpcplat spec schema` prints the JSON Schema
for your editor. Any value may be changed at submission: `--set resources.nodes=4`.

Files are UTF-8 and at most 1 MiB. YAML aliases are not taken. What looks like a time, a date
or an octal number stays the text that it is: `12:00:00` needs no quotes.
"""


def page() -> str:
    """Return the page as Markdown."""
    parts = [_HEAD, *tables(JobSpec, ""), _options(), _variables(), *_examples()]
    return "\n".join(parts)


def tables(model: type[BaseModel], path: str) -> Iterator[str]:
    """Yield a table of the record's keys, then those of the records in it."""
    title = f"## `{path}`" if path else "## The keys"
    inner = {n: record_in(f.annotation) for n, f in model.model_fields.items()}
    rows = [_row(n, f, inner[n], path) for n, f in model.model_fields.items()]
    head = "| key | default | what it says |\n|---|---|---|"
    yield "\n".join([title, "", head, *rows, ""])
    for name, record in inner.items():
        if record is not None:
            yield from tables(record, _dotted(path, name))


def _row(name: str, field: FieldInfo, record: type[BaseModel] | None, path: str) -> str:
    says = field.description or _summary(record) or ""
    if record is not None:
        anchor = _dotted(path, name).replace(".", "")
        says += f" See [`{_dotted(path, name)}`](#{anchor})."
    return f"| `{name}` | {_default(field, record)} | {_choices(field)}{says.strip()} |"


def _dotted(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _summary(record: type[BaseModel] | None) -> str:
    return (record.__doc__ or "").strip().split("\n")[0] if record else ""


def _default(field: FieldInfo, record: type[BaseModel] | None) -> str:
    if field.is_required():
        return "**needed**"
    if record is not None:
        return ""
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is None or value in ((), {}):
        return ""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"`{text}`"


def _choices(field: FieldInfo) -> str:
    """Return the words that a key takes, where they are few."""
    values: Any = getattr(field.annotation, "__args__", ())
    words = [value for value in values if isinstance(value, str)]
    return " or ".join(f"`{word}`" for word in words) + ". " if words else ""


def _options() -> str:
    rows = [f"| `--{name}` | `{field}` |" for name, field in sorted(OWN_FIELD.items())]
    head = (
        "## Options of sbatch\n\n"
        "Other long options of sbatch go under `sbatch`, as `name: value`"
        " (`mail-type: END`), or `name: true` for one without a value. These have a key"
        " of their own:\n\n| sbatch | key |\n|---|---|\n"
    )
    return head + "\n".join(rows) + "\n"


def _variables() -> str:
    names = ", ".join(f"`{name}`" for name in sorted(RESERVED_NAMES))
    prefixes = ", ".join(f"`{prefix}…`" for prefix in RESERVED_PREFIXES)
    return (
        "## Variables that are not yours to set\n\n"
        f"{names}; and {prefixes} (but `LD_LIBRARY_PATH` is).\n"
    )


def _examples() -> Iterator[str]:
    for kind, text in TEMPLATES.items():
        yield f"## Example: {kind}\n\n```yaml\n{text}```\n"


if __name__ == "__main__":
    write_whole(Path(sys.argv[1]), page())
