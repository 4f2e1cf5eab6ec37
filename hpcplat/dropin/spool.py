"""Records of sbatch calls in a folder of the user's, until the service has them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from hpcplat.files import write_whole

SPOOL: Final = "sbatch"  # the folder's name, among the user's data
PRIVATE: Final = 0o600  # scripts may hold what others must not read


class Spool:
    """A folder with one file for each call; every file is whole at any moment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, record: Mapping[str, Any]) -> None:
        """Keep a record, in place of an earlier one with the same key."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self._path(record["key"])
        write_whole(path, json.dumps(record), PRIVATE, durable=False)

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield what is kept, oldest first; a file that is gone meanwhile is skipped."""
        for path in sorted(self.folder.glob("hpc-*.json")):
            try:
                record: dict[str, Any] = json.loads(path.read_bytes())
            except (FileNotFoundError, ValueError):
                continue
            yield record

    def is_empty(self) -> bool:
        """Tell whether nothing is kept."""
        return next(self.folder.glob("hpc-*.json"), None) is None

    def remove(self, key: str) -> None:
        """Drop a record: the service has it."""
        self._path(key).unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json"
