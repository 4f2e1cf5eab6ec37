"""Gathers text to train on: the Python standard library's own source, as .txt files.

python some_text.py FOLDER
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main(folder: Path) -> None:
    """Copy each module's source."""
    folder.mkdir(parents=True, exist_ok=True)
    for source in sorted(Path(os.__file__).parent.glob("*.py")):
        (folder / f"{source.stem}.txt").write_bytes(source.read_bytes())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
