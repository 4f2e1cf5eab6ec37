"""The program's first moment: it loads the rest, and hears a Ctrl-C meanwhile."""

from __future__ import annotations

import importlib
import os
import sys


def run() -> None:
    """Load the program and run it; see ``hpcplat.cli.main``."""
    try:
        program = importlib.import_module("hpcplat.cli.main")
    except KeyboardInterrupt:
        os.write(2, b"hpcplat: interrupted\n")
        sys.exit(130)
    program.run()
