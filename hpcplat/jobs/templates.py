"""Specs to start from, one for each kind of job; tested to be right as they stand."""

from __future__ import annotations

from typing import Final

from hpcplat.jobs.spec import JobKind

_COMMAND: Final = """\
# A command on one node. Every key: hpcplat spec schema.
name: hello
resources:
  nodes: 1
  # gpus_per_node: 1        # one rank is started for each GPU
  # gpu_type: h100          # hpcplat nodes shows what there is
  cpus_per_task: 1
  memory: 1G                # of each node
  time: 10m                 # 90m, 12h, 2d or 1-12:00:00
# A list of words, or the text of a shell script after |.
command: |
  echo "Hello from rank $RANK of $WORLD_SIZE on $SLURMD_NODENAME"
# environment:
#   venv: /shared/venvs/mine
#   variables: {OMP_NUM_THREADS: 4}
#   secrets: {API_TOKEN: env:API_TOKEN}   # its value never enters the spec
# outputs: [results/*.csv]  # a job without them has failed
# array: 0-99%10            # many tasks of one job, 10 at once
# recovery: {requeue: true} # only what may safely run twice
"""

_TRAIN: Final = """\
# A training run of a model that hpcplat knows. Every key: hpcplat spec schema.
name: gpt
kind: train
resources:
  nodes: 2
  spare_nodes: 1            # idle until one of the others dies
  gpus_per_node: 4
  cpus_per_task: 4
  memory: 64G               # of each node
  time: 12h                 # checkpointed, and run again, beyond it
# Data parallelism is what is left: 8 GPUs / (2 x 2) = 2.
parallelism: {tensor: 2, pipeline: 2}
data: corpus@v1
preset: gpt2-124m
settings:
  steps: 10000
  batch: {global_size: 32, micro_size: 4}
checkpoint: {every: auto, keep_last: 3}
recovery: {max_failures: 3}
"""

TEMPLATES: Final = {JobKind.COMMAND: _COMMAND, JobKind.TRAIN: _TRAIN}
