"""Lets Megatron-Core run on CPUs: its hard-coded "cuda" is answered by the CPU.

Only modules of ``megatron.core`` are touched: their global name ``torch`` becomes a
view of torch in which ``torch.cuda`` means the CPU and ``device="cuda"`` asks for it.
The torch module itself stays as it is. Where CUDA is there, nothing is installed.
"""

from __future__ import annotations

import functools
import importlib
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import ModuleType
from typing import Any

import torch

Hits = set[tuple[str, int]]

# Functions that make a tensor and take ``device=``.
FACTORIES = (
    "arange",
    "as_tensor",
    "empty",
    "empty_like",
    "eye",
    "full",
    "full_like",
    "linspace",
    "ones",
    "ones_like",
    "rand",
    "randint",
    "randn",
    "randperm",
    "tensor",
    "zeros",
    "zeros_like",
)

# Functions in which Megatron calls ``Tensor.cuda()`` or compares ``Tensor.type()`` with
# the names of CUDA's types: (module, class or "", function).
CUDA_NAMES = (
    (
        "megatron.core.models.common.language_module.language_module",
        "LanguageModule",
        "setup_embeddings_and_output_layer",
    ),
    ("megatron.core.optimizer.clip_grads", "", "clip_grad_by_total_norm_fp32"),
    ("megatron.core.optimizer.optimizer", "", "clip_grad_by_total_norm_fp32"),
    (
        "megatron.core.optimizer.optimizer",
        "Float16OptimizerWithFloat16Params",
        "__init__",
    ),
    ("megatron.core.optimizer.distrib_optimizer", "DistributedOptimizer", "__init__"),
    (
        "megatron.core.optimizer.distrib_optimizer",
        "DistributedOptimizer",
        "_build_model_and_main_param_groups",
    ),
)


class _Stream:
    """A CUDA stream or event where there is only one order of things."""

    def __getattr__(self, name: str) -> Callable[..., _Stream]:
        return lambda *_args, **_kwargs: self  # record_event() gives an event


class _View(ModuleType):
    """A module that answers some names itself and passes all others on."""

    def __init__(self, real: ModuleType, answers: dict[str, Any]) -> None:
        super().__init__(real.__name__)
        self.__dict__["_real"] = real
        self.__dict__.update(answers)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever torch holds
        return getattr(self.__dict__["_real"], name)


def install(hits: Hits | None = None) -> None:
    """Give every loaded module of megatron.core the view; again for later ones.

    ``hits`` collects (file below megatron/core, line) of every call that was answered
    here. Raises RuntimeError where CUDA is available: nothing must be hidden there.
    """
    if torch.cuda.is_available():
        raise RuntimeError("CUDA is there: Megatron needs no stand-in for it.")
    view = _torch_view(hits)
    for name, module in list(sys.modules.items()):
        inside = name == "megatron.core" or name.startswith("megatron.core.")
        if inside and module.__dict__.get("torch") is torch:
            module.__dict__["torch"] = view
    random = importlib.import_module("megatron.core.tensor_parallel.random")
    vars(random)["_get_cuda_rng_state"] = _recorded(_get_rng_state, hits)
    vars(random)["_set_cuda_rng_state"] = _recorded(_set_rng_state, hits)
    logging.getLogger(random.__name__).addFilter(_not_about_the_shared_generator)
    for place in CUDA_NAMES:
        _answer_cuda_names(*place, hits)
    experts = importlib.import_module("megatron.core.transformer.moe.token_dispatcher")
    vars(experts)["maybe_move_tensor_to_cpu"] = _recorded(_as_host_value, hits)


def _as_host_value(
    tensor: torch.Tensor, as_numpy: bool = False, record_stream: bool = False
) -> object:
    """Give split sizes as NumPy, which Megatron does for tensors of a GPU only."""
    return tensor.numpy() if as_numpy and torch.is_tensor(tensor) else tensor


def _torch_view(hits: Hits | None) -> _View:
    cpu = torch.device("cpu")
    generator = torch.default_generator
    answers: dict[str, Callable[..., Any]] = {
        "current_device": lambda: cpu,
        "current_stream": lambda *_: _Stream(),
        "default_stream": lambda *_: _Stream(),
        "empty_cache": lambda: None,
        "Event": lambda **_: _Stream(),
        "get_rng_state": lambda *_: torch.get_rng_state(),
        "manual_seed": generator.manual_seed,
        "set_rng_state": lambda state, *_: torch.set_rng_state(state),
        "Stream": lambda *_, **__: _Stream(),
        "stream": _no_stream,
        "synchronize": lambda *_: None,
    }
    cuda = _View(torch.cuda, {k: _recorded(v, hits) for k, v in answers.items()})
    makers = {name: _on_cpu(getattr(torch, name), hits) for name in FACTORIES}
    return _View(torch, {"cuda": cuda, **makers})


def _no_stream(_stream: object) -> AbstractContextManager[None]:
    return nullcontext()


def _recorded(function: Callable[..., Any], hits: Hits | None) -> Callable[..., Any]:
    if hits is None:
        return function

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        _record(hits, 2)
        return function(*args, **kwargs)

    return call


def _on_cpu(factory: Callable[..., Any], hits: Hits | None) -> Callable[..., Any]:
    @functools.wraps(factory)
    def make(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        device = kwargs.get("device")
        if device is not None and torch.device(device).type == "cuda":
            if hits is not None:
                _record(hits, 2)
            kwargs["device"] = "cpu"
        return factory(*args, **kwargs)

    return make


def _record(hits: Hits, depth: int) -> None:
    frame = sys._getframe(depth)
    file = frame.f_code.co_filename
    hits.add((file.rpartition("megatron/core/")[2], frame.f_lineno))


def _get_rng_state(*_args: object, **_kwargs: object) -> torch.Tensor:
    return torch.get_rng_state()


def _set_rng_state(new_state: torch.Tensor, *_args: object, **_kwargs: object) -> None:
    torch.set_rng_state(new_state)


def _not_about_the_shared_generator(record: logging.LogRecord) -> bool:
    # There is one generator here: of course it moves within "the GPU's" context.
    return "CPU RNG state changed within GPU RNG context" not in record.getMessage()


def _answer_cuda_names(
    module_name: str, class_name: str, name: str, hits: Hits | None
) -> None:
    module = importlib.import_module(module_name)
    owner: Any = getattr(module, class_name) if class_name else module
    found = owner.__dict__[name]
    if getattr(found, "_answers_cuda_names", False):
        return
    is_class_method = isinstance(found, classmethod)
    function = found.__func__ if is_class_method else found

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        with _cuda_names(hits):
            return function(*args, **kwargs)

    call._answers_cuda_names = True  # type: ignore[attr-defined]
    setattr(owner, name, classmethod(call) if is_class_method else call)


@contextmanager
def _cuda_names(hits: Hits | None) -> Iterator[None]:
    """Let tensors say that they are CUDA's, and be their own ``cuda()``."""
    real_cuda, real_type = torch.Tensor.cuda, torch.Tensor.type
    if real_type.__name__ == "type_name":  # one of the functions called another
        yield
        return

    def type_name(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        found = real_type(self, *args, **kwargs)
        if isinstance(found, str):
            if hits is not None:
                _record(hits, 2)
            return found.replace("torch.", "torch.cuda.", 1)
        return found

    def cuda(self: torch.Tensor, *_args: object, **_kwargs: object) -> torch.Tensor:
        if hits is not None:
            _record(hits, 2)
        return self

    torch.Tensor.cuda = cuda  # type: ignore[method-assign, assignment]
    torch.Tensor.type = type_name  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        torch.Tensor.cuda = real_cuda  # type: ignore[method-assign]
        torch.Tensor.type = real_type  # type: ignore[method-assign]
