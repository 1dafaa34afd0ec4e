"""Inputs for a function, by the names and annotations of its parameters.

`candidates(function)` yields recipes; `make(recipe, seed)` makes arguments from one, the same for
the same seed and others for another.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from tests.packages.build import WIDTH, WORDS, Net, number

_B = 2
SHAPES: tuple[tuple[int, ...], ...] = (
    (_B, WIDTH), (_B, 16, WIDTH), (_B, WIDTH, 16), (_B, 3, 16, 16), (_B, WIDTH, 16, 16), (6, WIDTH),
    (_B, WIDTH, WIDTH), (_B, 1, 16, 16), (_B, 2, 16, WIDTH), (_B, 16), (_B, 3, 32, 32), (WIDTH,),
    (_B, 4, WIDTH, WIDTH), (_B, WIDTH, 4, 8, 8), (_B, 3, 8, 16, 16), (_B, 1, 64), (_B, 2), (_B, 3),
    (_B, 1), (_B, 16, 1), (_B, 4), (),
)  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """One argument: a tensor's shape and what it holds, or a plain value."""

    what: str  # float, positive, int, bool, complex, plain
    shape: tuple[int, ...] = ()
    plain: Any = None
    top: int = WORDS


Recipe = dict[str, Kind]
_GRAPH = {
    "edge_index": Kind("int", (2, 12), top=6), "edge_weight": Kind("positive", (12,)),
    "edge_attr": Kind("float", (12, WIDTH)), "batch": Kind("sorted", (6,), top=2),
    "edge_type": Kind("int", (12,), top=2), "row": Kind("int", (12,), top=6),
    "col": Kind("int", (12,), top=6), "pos": Kind("float", (6, 3)),
    "index": Kind("sorted", (6,), top=2), "z": Kind("int", (6,), top=8),
}  # fmt: skip


def candidates(function: Callable[..., Any]) -> Iterator[Recipe]:
    """Recipes, the likeliest first."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (ValueError, TypeError):
        return
    needed = [p for p in parameters if p.default is p.empty and p.kind in (
        p.POSITIONAL_OR_KEYWORD, p.POSITIONAL_ONLY, p.KEYWORD_ONLY)]  # fmt: skip
    if not needed and any(p.kind is p.VAR_POSITIONAL for p in parameters):
        needed = [p for p in parameters if p.kind is p.VAR_POSITIONAL]
    if not needed and parameters:
        needed = [p for p in parameters[:1] if p.kind is not p.VAR_KEYWORD]
    names = [p.name for p in needed]
    plain = {p.name: value for p in needed if (value := _plain(p)) is not None}
    graph = "edge_index" in names
    for shape in (SHAPES if not graph else ((6, WIDTH), (6, 3))):
        for first, others in _KINDS:
            recipe = {}
            for i, name in enumerate(names):
                if name in plain:
                    recipe[name] = plain[name]
                elif graph and name in _GRAPH:
                    recipe[name] = _GRAPH[name]
                else:
                    recipe[name] = _tensor(name, shape, others if i else first)
            if any(k.what != "plain" for k in recipe.values()) or not recipe:
                yield recipe
            if len(names) - len(plain) <= 1 and others != "same":
                break


# Kinds of the first tensor and of the others.
_KINDS = (
    ("float", "same"), ("float", "classes"), ("float", "rows"), ("float", "positive"),
    ("int", "same"), ("complex", "same"),
)  # fmt: skip


def _tensor(name: str, shape: tuple[int, ...], kind: str) -> Kind:
    lower = name.lower()
    if re.search(r"mask", lower):
        return Kind("true", shape[:2] if len(shape) > 2 else shape)
    if re.search(r"^t$|time(step)?s?$|sigma|noise_level", lower):
        return Kind("positive", shape[:1])
    if re.search(r"token|_ids|^ids", lower):
        return Kind("int", (_B, 16))
    if kind == "classes":  # a class for each row, or for each cell of a picture
        return Kind("int", shape[:1] + shape[2:], top=4)
    if kind == "rows":
        return Kind("float", shape[:1])
    return Kind("float" if kind == "same" else kind, shape)


def _plain(p: inspect.Parameter) -> Kind | None:
    kind = p.annotation
    if isinstance(kind, str):
        kind = {"int": int, "float": float, "bool": bool}.get(kind, kind)
    if kind is int:
        return Kind("plain", plain=int(number(p.name.lower(), 2)) or 1)
    if kind is float:
        return Kind("plain", plain=0.5)
    if kind is bool:
        return Kind("plain", plain=True)
    if typing.get_origin(kind) is typing.Literal:
        return Kind("plain", plain=typing.get_args(kind)[0])
    if re.search(r"^(func|fn|f|model|module|net)$", p.name):
        return Kind("plain", plain=Net())
    if re.search(r"^(dim|axis|k|n|num_\w+|\w+_dim|size)$", p.name):
        return Kind("plain", plain=1 if p.name in ("dim", "axis") else number(p.name, 2))
    return None


def make(
    recipe: Recipe, seed: int, grad: bool, batch: int | None = None, wide: bool = False
) -> dict[str, Any]:
    """Arguments; another `seed` gives other values, `batch` another first size, `wide` doubles."""
    generator = torch.Generator().manual_seed(seed + 100)
    made = {}
    for name, kind in recipe.items():
        if kind.what == "plain":
            made[name] = kind.plain
            continue
        shape = kind.shape
        if batch is not None and shape and kind.what != "sorted":
            shape = (batch, *shape[1:])
        made[name] = _filled(kind, shape, generator)
        if wide and made[name].is_floating_point():
            made[name] = made[name].double()
        if grad and (made[name].is_floating_point() or made[name].is_complex()):
            made[name].requires_grad_()
    return made


def _filled(kind: Kind, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    if kind.what == "int":
        return torch.randint(kind.top, shape, generator=generator)
    if kind.what == "sorted":
        size = shape[0]
        return torch.arange(size) * kind.top // size
    if kind.what == "true":
        return torch.ones(shape, dtype=torch.bool)
    if kind.what == "positive":
        return torch.rand(shape, generator=generator) * 0.8 + 0.1
    if kind.what == "complex":
        return torch.randn(shape, generator=generator, dtype=torch.complex64)
    return torch.randn(shape, generator=generator)
