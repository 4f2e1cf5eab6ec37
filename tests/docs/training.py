"""docs/reference/training-settings.md: what a training preset can be told."""

from __future__ import annotations

from hpcplat.jobs.reference import tables
from hpcplat.model_shape import ModelShape, named_shapes
from hpcplat.training import Settings

HEAD = """\
# Training settings

<!-- Made by `python -m tests.docs.generate`. -->

A job spec of `kind: train` with a `preset` takes these keys under `settings`. `preset` is one
of the models below, or a family (`gpt`, `llama`) whose sizes stand under `settings.model`.
Under `settings.model` any field of Megatron-Core's TransformerConfig may be given by its own
name too (`attention_dropout: 0.1`, `qk_layernorm: true`). `hpcplat spec check FILE` says what
cannot be; `hpcplat layout MODEL --gpus N` which layouts fit.

## Models

| preset | layers | hidden | heads (groups) | MLP | vocabulary | tokens | parameters |
|---|---|---|---|---|---|---|---|
"""


def page() -> str:
    """Return the page as Markdown."""
    models = "\n".join(_model(name, shape) for name, shape in named_shapes().items())
    parts = [
        HEAD + models + "\n",
        *tables(ModelShape, "settings.model"),
        *tables(Settings, "settings"),
    ]
    return "\n".join(parts)


def _model(name: str, shape: ModelShape) -> str:
    heads = f"{shape.num_attention_heads} ({shape.num_query_groups})"
    cells = (
        f"`{name}`",
        shape.num_layers,
        shape.hidden_size,
        heads,
        shape.ffn_hidden_size,
        shape.vocab_size,
        shape.max_sequence_length,
        _count(shape.parameters),
    )
    return "| " + " | ".join(map(str, cells)) + " |"


def _count(parameters: int) -> str:
    if parameters < 1e9:
        return f"{parameters / 1e6:.1f} million"
    return f"{parameters / 1e9:.2f} billion"
