"""Real text that is on every machine: the Python standard library's own source."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

# Tests would double the text, and teach little beside assertEqual.
LEFT_OUT: Final = frozenset({"test", "tests", "site-packages", "idle_test"})


class Corpus(NamedTuple):
    """How much text there is."""

    files: int
    bytes: int


def write_corpus(folder: Path) -> Corpus:
    """Copy every module's source into ``folder`` as text, one file a module.

    What is not UTF-8 is left out: a few modules are so on purpose.
    """
    folder.mkdir(exist_ok=True)
    library = Path(sysconfig.get_path("stdlib"))
    files = size = 0
    for module in _modules(library):
        text = module.read_bytes()
        if _is_utf8(text):
            name = ".".join(module.relative_to(library).parts)
            (folder / f"{name}.txt").write_bytes(text)
            files, size = files + 1, size + len(text)
    return Corpus(files, size)


def _modules(library: Path) -> Iterator[Path]:
    for path in sorted(library.rglob("*.py")):
        if not LEFT_OUT.intersection(path.relative_to(library).parts):
            yield path


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return bool(text)
