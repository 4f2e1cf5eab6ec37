"""Trains on a disk that takes files of so many bytes only, or says that it is full."""

from __future__ import annotations

import resource
import sys

from launchers.megatron.__main__ import main

if sys.argv[1] == "none":
    vars(sys.modules["launchers.megatron.space"])["free_bytes"] = lambda _folder: 0
else:
    limit = (int(sys.argv[1]), resource.getrlimit(resource.RLIMIT_FSIZE)[1])
    resource.setrlimit(resource.RLIMIT_FSIZE, limit)
sys.exit(main(sys.argv[2:]))
