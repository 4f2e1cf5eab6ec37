"""hpcplat.client, loaded without what only httpx's own program needs.

``import httpx`` also loads its command line, and with it Click, Rich and Pygments:
more than half of its time. A stand-in for that one module spares every command that.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Final

_PROGRAM: Final = "httpx._main"


def main() -> None:
    """Stand in for httpx's command line, which nobody starts from here."""


_is_first = _PROGRAM not in sys.modules
if _is_first:
    _stand_in = ModuleType(_PROGRAM)
    _stand_in.__dict__["main"] = main
    sys.modules[_PROGRAM] = _stand_in

from hpcplat.client import Client, ServiceFaultError, connect

if _is_first:
    del sys.modules[_PROGRAM]

__all__ = ["Client", "ServiceFaultError", "connect"]
