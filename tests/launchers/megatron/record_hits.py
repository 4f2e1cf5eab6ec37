"""Trains, and writes down which lines of Megatron the stand-in answered. A test's tool."""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

from launchers.megatron import cpu
from launchers.megatron.__main__ import main


def forget_the_first() -> None:
    """Let modules have torch again, so that the recording stand-in is put in."""
    for name, module in sys.modules.items():
        if name.startswith("megatron.core") and isinstance(
            vars(module).get("torch"), cpu._View
        ):
            vars(module)["torch"] = torch
    for module_name, class_name, name in cpu.CUDA_NAMES:
        module = importlib.import_module(module_name)
        owner = getattr(module, class_name) if class_name else module
        found = owner.__dict__[name]
        inner = found.__func__ if isinstance(found, classmethod) else found
        real: Any = vars(inner)["__wrapped__"]
        wrap = classmethod(real) if isinstance(found, classmethod) else real
        setattr(owner, name, wrap)


hits: cpu.Hits = set()
forget_the_first()
cpu.install(hits)
code = main(sys.argv[1:])
Path(f"hits-{os.environ['RANK']}.json").write_text(json.dumps(sorted(hits)))
sys.exit(code)
