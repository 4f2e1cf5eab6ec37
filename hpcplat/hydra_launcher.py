"""Hydra's submitit launcher on hpcplat's executor.

Two lines in the application; ``hydra/launcher=submitit_slurm`` and its settings stay::

    from hpcplat.hydra_launcher import use_hpcplat
    use_hpcplat()
"""

from __future__ import annotations

import importlib
from typing import Final

from hpcplat.errors import UnavailableError

PLUGIN: Final = "hydra_plugins.hydra_submitit_launcher.submitit_launcher"
EXECUTOR: Final = "hpcplat"  # our entry point among submitit's plugins


def use_hpcplat() -> None:
    """Have Hydra's ``submitit_slurm`` launcher submit through hpcplat from now on.

    Hydra takes launchers from its own namespace package only; so its class for Slurm
    is told the name of another executor, which is all that it has for one. Raises
    UnavailableError if the launcher is not installed.
    """
    try:
        # Hydra loads its plugins afresh when it looks for them: let it look first.
        importlib.import_module("hydra.core.plugins").Plugins.instance()
        module = importlib.import_module(PLUGIN)
    except ImportError as error:
        raise UnavailableError(
            "Hydra's submitit launcher is not installed.",
            "pip install hydra-submitit-launcher",
        ) from error
    module.SlurmLauncher._EXECUTOR = EXECUTOR
