"""How a program of ours that no person starts ends: by a code, its fault in one line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from hpcplat.errors import ExitCode, HpcplatError


def run(main: Callable[[Sequence[str]], int]) -> NoReturn:
    """Call ``main`` with the command line's words, and end with the code it returns."""
    try:
        sys.exit(main(sys.argv[1:]))
    except HpcplatError as error:
        sys.stderr.write(f"hpcplat: {error}\n")
        sys.exit(ExitCode.MENDABLE)
