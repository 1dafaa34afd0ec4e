"""Objects of packages that nobody here wrote, built from their signatures by rule.

`built(cls)` yields modules, the likeliest arguments first; whether they are right is found out by
running them. No package and no class is known by name: only the words that people use for sizes.
"""

from __future__ import annotations

import enum
import inspect
import re
import typing
from collections.abc import Callable, Iterator
from typing import Any

import torch

WIDTH, WORDS = 8, 32
# What a number is for, by a word in its name; the first that fits.
_NUMBERS: tuple[tuple[str, Any], ...] = (
    (r"heads?$|_heads?_|n_?head", 2), (r"depth|layers?$|blocks?$|stages?$|num_res|n_flows", 2),
    (r"kernel|ksize|window", 3), (r"stride|dilation|groups?$|ratio|factor|expansion|mult", 1),
    (r"pad", 1), (r"patch", 4), (r"ima?ge?_?(size)?$|resolution|height|^h$|^w$", 16),
    (r"vocab|num_tokens|num_embeddings|codebook_size", WORDS),
    (r"seq|len|steps|horizon|frames", 16),
    (r"expert", 4), (r"rank|topk|^k$|top_k|order|degree", 2), (r"dropout|drop$|drop_", 0.1),
    (r"eps", 1e-5), (r"^p$|prob|rate|momentum|decay|alpha|beta|gamma|lambda|weight|scale|sigma|"
     r"temperature|tau|margin|threshold|^lr$|learning|_lr$|std|smooth|noise|coef", 0.5),
)  # fmt: skip
_SIZES = re.compile(r"dim|size|feature|channel|hidden|unit|width|num|class|input|output|in_|out_|"
                    r"latent|^n_|^n$|^d_|^d$|embed|nodes|planes|filters|points|grid|bins")


class Net(torch.nn.Sequential):
    """What stands for a network that a package is given."""

    def __init__(self) -> None:
        super().__init__(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh())


def built(cls: type) -> Iterator[Any]:
    """Objects of this class, made with different sizes for what no name explains."""
    seen = set()
    for other in (WIDTH, 2, 4, 16, 1):
        kwargs = arguments(cls, other)
        if kwargs is None:
            return
        key = repr({k: v for k, v in kwargs.items() if isinstance(v, (int, float, str, list))})
        if key in seen:
            continue
        seen.add(key)
        try:
            torch.manual_seed(0)
            yield cls(**kwargs)
        except Exception as error:  # not these sizes; what it says is kept for the report
            yield error


def arguments(function: Callable[..., Any], other: int, depth: int = 0) -> dict[str, Any] | None:
    """Keyword arguments for what has no default; None where no rule says one."""
    try:
        parameters = inspect.signature(function).parameters.values()
        hints = _hints(function)
    except (ValueError, TypeError):
        return None
    found = {}
    for p in parameters:
        if p.default is not p.empty or p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL):
            continue
        if p.kind is p.POSITIONAL_ONLY:
            return None
        made = _value(p.name.lower(), hints.get(p.name, p.annotation), other, depth)
        if made is None:
            return None
        found[p.name] = made
    return found


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    target = function.__init__ if isinstance(function, type) else function  # type: ignore[misc]
    try:
        return typing.get_type_hints(target)
    except Exception:  # names that only a type checker imports
        return {}


def number(name: str, other: int) -> Any:
    """The number that a name like this asks for."""
    for pattern, value in _NUMBERS:
        if re.search(pattern, name):
            return value
    return WIDTH if _SIZES.search(name) else other


def _value(name: str, kind: Any, other: int, depth: int) -> Any:
    if isinstance(kind, str):
        kind = {"int": int, "float": float, "bool": bool, "str": str}.get(kind, kind)
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return inner[0]
    if type(None) in inner:
        return _value(name, next(a for a in inner if a is not type(None)), other, depth)
    if origin in (list, tuple) or kind in (list, tuple) or origin is typing.get_origin(
        typing.Sequence[int]
    ):
        if inner and inner[0] not in (int, float):
            return None
        of = number(name.removesuffix("s"), other)
        return (tuple if tuple in (origin, kind) else list)([of, of])
    if kind is bool or name.startswith(("use_", "is_", "with_")):
        return False
    if kind is int:
        made = number(name, other)
        return made if isinstance(made, int) else 1
    if kind is float:
        return float(number(name, other)) if not _SIZES.search(name) else 0.5
    return _object(name, kind, other, depth)


def _object(name: str, kind: Any, other: int, depth: int) -> Any:
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return next(iter(kind))
    if isinstance(kind, type) and issubclass(kind, torch.Tensor):
        return torch.randn(WIDTH, WIDTH)
    if re.search(r"loss|criterion", name) and not re.search(r"weight|scale|coef", name):
        return torch.nn.MSELoss()
    if re.search(r"^act|activation|nonlin", name):
        return torch.nn.ReLU()
    if re.search(r"model|net$|module|^layer$|encoder|decoder|backbone|func|^fn$|^f$", name):
        return Net()
    if isinstance(kind, type) and issubclass(kind, torch.nn.Module):
        if kind is torch.nn.Module:
            return Net()
        return _part(kind, other, depth)
    if kind is str or kind is dict:
        return None
    if kind is inspect.Parameter.empty or kind is typing.Any:
        return number(name, other)
    if isinstance(kind, type):
        return _part(kind, other, depth)
    return number(name, other) if typing.get_origin(kind) is not None else None


def _part(kind: type, other: int, depth: int) -> Any:
    """A part that is built by the same rules."""
    kwargs = arguments(kind, other, depth + 1) if depth < 2 else None
    try:
        return None if kwargs is None else kind(**kwargs)
    except Exception:  # abstract, or not these sizes: no part by rule
        return None
