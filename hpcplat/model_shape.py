"""The sizes of a GPT-class model, and what follows from them: parameters and FLOPs.

Names are those of Megatron-Core's TransformerConfig and GPTModel. Pure: a login node
plans with it, the launcher builds the model from the same record.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from hpcplat.errors import InvalidError

Size = Annotated[int, Field(ge=1)]

# Megatron pads to 128 x tensor parallel; a multiple that does not depend on the layout
# keeps checkpoints free of it.
VOCABULARY_MULTIPLE = 128


class ModelShape(BaseModel):
    """A decoder-only transformer: the sizes, and the family that sets the rest.

    ``family`` gpt: LayerNorm, GELU, biases, learned positions, tied embeddings;
    llama: RMSNorm, SwiGLU, no biases, rotary positions, untied. The defaults that
    depend on others are filled in: ``num_query_groups`` (all heads),
    ``ffn_hidden_size`` (4 x hidden), ``kv_channels`` (hidden / heads).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    family: Literal["gpt", "llama"] = Field(
        default="gpt", description="LayerNorm, GELU, learned positions; or Llama's."
    )
    num_layers: Size = Field(description="Transformer layers.")
    hidden_size: Size = Field(description="Width of the residual stream.")
    num_attention_heads: Size = Field(description="Heads of each layer.")
    num_query_groups: Size = Field(
        description="Key and value heads that the heads share; all heads if not given."
    )
    ffn_hidden_size: Size = Field(
        description="Width of the MLP; 4 x hidden if not given."
    )
    kv_channels: Size = Field(
        description="Width of a head; hidden / heads if not given."
    )
    vocab_size: Size = Field(description="Token ids; the dataset may have no more.")
    max_sequence_length: Size = Field(description="Positions, and tokens of a sample.")
    num_moe_experts: Size | None = Field(
        default=None, description="Experts in place of each MLP."
    )
    moe_router_topk: Size = Field(default=2, description="Experts that a token meets.")
    vocab_multiple: Size = Field(
        default=VOCABULARY_MULTIPLE,
        description="The vocabulary is padded to a multiple of it, in any layout.",
    )
    tied_embeddings: bool = Field(
        description="The output uses the embedding's weights; gpt does, llama not."
    )

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, given: object) -> object:
        if not isinstance(given, dict):
            return given
        known = dict(given)
        heads, hidden = known.get("num_attention_heads"), known.get("hidden_size")
        if isinstance(heads, int) and isinstance(hidden, int) and heads > 0:
            known.setdefault("num_query_groups", heads)
            known.setdefault("ffn_hidden_size", 4 * hidden)
            if "kv_channels" not in known and hidden % heads:
                raise InvalidError(
                    f"hidden_size {hidden} is not a multiple of the {heads} heads.",
                    f"Use {max(hidden // heads, 1) * heads}, or set kv_channels.",
                )
            known.setdefault("kv_channels", hidden // heads)
        known.setdefault("tied_embeddings", known.get("family", "gpt") == "gpt")
        return known

    @model_validator(mode="after")
    def _groups_share_heads(self) -> Self:
        if self.num_attention_heads % self.num_query_groups:
            raise InvalidError(
                f"num_query_groups {self.num_query_groups} does not divide the "
                f"{self.num_attention_heads} attention heads.",
                "Choose a divisor.",
            )
        if self.num_moe_experts and self.moe_router_topk > self.num_moe_experts:
            raise InvalidError(
                f"moe_router_topk {self.moe_router_topk} is more than the "
                f"{self.num_moe_experts} experts.",
                "Choose fewer.",
            )
        return self

    @property
    def padded_vocab_size(self) -> int:
        """The vocabulary rounded up to a multiple of ``vocab_multiple``."""
        multiple = self.vocab_multiple
        return -(-self.vocab_size // multiple) * multiple

    @property
    def gated(self) -> bool:
        """Whether the MLP is gated (SwiGLU: three matrices in place of two)."""
        return self.family == "llama"

    @property
    def has_biases(self) -> bool:
        """Whether linear layers carry biases; Megatron's local experts can't."""
        return self.family == "gpt" and not self.num_moe_experts

    @property
    def norm_size(self) -> int:
        """Parameters of one norm: LayerNorm has a bias, RMSNorm has none."""
        return self.hidden_size * (2 if self.family == "gpt" else 1)

    @property
    def attention_matrix_size(self) -> int:
        """Elements of one layer's query, key, value and output matrices."""
        queries = self.num_attention_heads * self.kv_channels
        keys = self.num_query_groups * self.kv_channels
        return self.hidden_size * (2 * queries + 2 * keys)

    @property
    def mlp_matrix_size(self) -> int:
        """Elements of one MLP's (one expert's) matrices."""
        return (3 if self.gated else 2) * self.hidden_size * self.ffn_hidden_size

    @property
    def layer_parameters(self) -> int:
        """Parameters of one transformer layer."""
        return self._dense_layer_parameters() + self.expert_parameters

    @property
    def expert_parameters(self) -> int:
        """Parameters of one layer's MLP, or of all its experts (split by expert)."""
        return (self.num_moe_experts or 1) * (
            self.mlp_matrix_size + self._mlp_bias_size()
        )

    def _dense_layer_parameters(self) -> int:
        router = self.hidden_size * (self.num_moe_experts or 0)
        attention = self.attention_matrix_size + self._attention_bias_size()
        return attention + 2 * self.norm_size + router

    def _attention_bias_size(self) -> int:
        heads = self.num_attention_heads + 2 * self.num_query_groups
        bias = heads * self.kv_channels + self.hidden_size
        return bias if self.has_biases else 0

    def _mlp_bias_size(self) -> int:
        return self.ffn_hidden_size + self.hidden_size if self.has_biases else 0

    @property
    def embedding_parameters(self) -> int:
        """Word embeddings (padded vocabulary) and learned positions."""
        positions = self.max_sequence_length if self.family == "gpt" else 0
        return (self.padded_vocab_size + positions) * self.hidden_size

    @property
    def output_parameters(self) -> int:
        """The last norm, and the output matrix where it is not the embedding's."""
        matrix = 0 if self.tied_embeddings else self.padded_vocab_size
        return self.norm_size + matrix * self.hidden_size

    @property
    def parameters(self) -> int:
        """All parameters, with the padding of the vocabulary."""
        layers = self.num_layers * self.layer_parameters
        return layers + self.embedding_parameters + self.output_parameters

    def flops_per_token(self, sequence_length: int) -> int:
        """Return the model FLOPs of one trained token, forward and backward.

        6 per element of every matrix a token meets, and 12 x layers x heads x
        channels x sequence length for attention, as in Chowdhery et al. 2022
        (arXiv:2204.02311), appendix B. For the GPT family this is equation 3 of
        Narayanan et al. 2021 (arXiv:2104.04473) without recomputation. The causal
        mask is not discounted, embedding look-ups, norms and recomputation count
        nothing.
        """
        experts = self.moe_router_topk if self.num_moe_experts else 1
        router = self.hidden_size * (self.num_moe_experts or 0)
        layer = self.attention_matrix_size + experts * self.mlp_matrix_size + router
        output = self.padded_vocab_size * self.hidden_size
        attention = self.num_layers * self.num_attention_heads * self.kv_channels
        return 6 * (self.num_layers * layer + output) + 12 * attention * sequence_length


def _shape(family: Literal["gpt", "llama"], **sizes: int) -> ModelShape:
    return ModelShape.model_validate({"family": family, **sizes})


def named_shapes() -> dict[str, ModelShape]:
    """Return the models known by name: sizes as published.

    GPT-2: Radford et al. 2019; GPT-3: Brown et al. 2020, table 2.1; Llama 2 and 3:
    Touvron et al. 2023, Grattafiori et al. 2024, table 3. ``tiny`` is for tests and
    demonstrations.
    """
    return {
        "gpt-tiny": _shape(
            "gpt",
            num_layers=4,
            hidden_size=64,
            num_attention_heads=4,
            vocab_size=257,
            max_sequence_length=128,
        ),
        "llama-tiny": _shape(
            "llama",
            num_layers=4,
            hidden_size=64,
            num_attention_heads=4,
            num_query_groups=2,
            ffn_hidden_size=160,
            vocab_size=257,
            max_sequence_length=128,
        ),
        **{name: _gpt(*sizes) for name, sizes in _GPT.items()},
        **{name: _llama(*sizes) for name, sizes in _LLAMA.items()},
    }


# layers, hidden, heads, positions
_GPT = {
    "gpt2-124m": (12, 768, 12, 1024),
    "gpt2-355m": (24, 1024, 16, 1024),
    "gpt2-774m": (36, 1280, 20, 1024),
    "gpt2-1.5b": (48, 1600, 25, 1024),
    "gpt3-6.7b": (32, 4096, 32, 2048),
    "gpt3-13b": (40, 5120, 40, 2048),
    "gpt3-175b": (96, 12288, 96, 2048),
}
# layers, hidden, heads, query groups, ffn, vocabulary, positions
_LLAMA = {
    "llama2-7b": (32, 4096, 32, 32, 11008, 32000, 4096),
    "llama2-13b": (40, 5120, 40, 40, 13824, 32000, 4096),
    "llama2-70b": (80, 8192, 64, 8, 28672, 32000, 4096),
    "llama3-8b": (32, 4096, 32, 8, 14336, 128256, 8192),
    "llama3-70b": (80, 8192, 64, 8, 28672, 128256, 8192),
    "llama3-405b": (126, 16384, 128, 8, 53248, 128256, 8192),
}


def _gpt(layers: int, hidden: int, heads: int, positions: int) -> ModelShape:
    return _shape(
        "gpt",
        num_layers=layers,
        hidden_size=hidden,
        num_attention_heads=heads,
        vocab_size=50257,
        max_sequence_length=positions,
    )


def _llama(*sizes: int) -> ModelShape:
    names = (
        "num_layers",
        "hidden_size",
        "num_attention_heads",
        "num_query_groups",
        "ffn_hidden_size",
        "vocab_size",
        "max_sequence_length",
    )
    return _shape("llama", **dict(zip(names, sizes, strict=True)))
