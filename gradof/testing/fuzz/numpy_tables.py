"""Forms of numpy programs that tables have: our table of ops, and the harness's table of cases."""

from __future__ import annotations

import functools
import re
from typing import Any

import numpy as np

from gradof.ops.registry import all_ops
from gradof.testing.fuzz.draw import Draw
from gradof.testing.fuzz.forms import Form
from gradof.testing.numpy_samples import Case
from gradof.testing.numpy_table import CASES

# What differences are no judge of: what has no gradient by convention, or jumps everywhere.
NO_SLOPE = frozenset({"nextafter", "fmod", "remainder", "floor_divide"})
_OPERAND = re.compile(r"\b[xyzuv]\b")


@functools.cache
def elementwise() -> tuple[Form, ...]:
    """Every elementwise op of our table with one or two operands, by each of its names."""
    found = []
    for op in all_ops():
        if "elementwise" not in op.traits or not 1 <= len(op.inputs) <= 2 or op.name in NO_SLOPE:
            continue
        for name in op.names:
            path = {"numpy": "np", "scipy": "special"}.get(name.split(".")[0])
            if path is None:
                continue
            operands = "{x}" if len(op.inputs) == 1 else "{x}, {y:a}"
            text = f"{path}.{name.split('.')[-1]}({operands})"
            found.append(Form(text, name=f"op {op.name}", squash=op.domain))
    return tuple(found)


def squashed(form: Form) -> Form:
    """The form with its operands brought into the op's domain by tanh."""
    text = form.text
    for place, (low, high) in zip(("{x}", "{y:a}"), form.squash, strict=False):
        half = round((high - low) / 2, 6)
        inside = f"{half} * np.tanh({place}) + {round(low + half, 6)}"
        text = text.replace(place, inside, 1)
    return Form(text, name=form.name)


@functools.cache
def _cases() -> tuple[Case, ...]:
    # what is searched has to be sorted, which what a program has made is not
    searches = ("searchsorted", "np.interp(")
    return tuple(c for c in CASES if not any(name in c.source for name in searches))


def add_case(draw: Draw) -> bool:
    """A case of the table, with its operands, or what the program has in their place."""
    case = draw.rng.choice(_cases())
    if "special." in case.source and "special" not in draw.space:
        return False
    known = len(draw.inputs)
    names = dict(zip("xyzuv", (_operand(draw, a) for a in case.arguments(draw.rng.randrange(99))),
                     strict=False))  # fmt: skip
    text = _OPERAND.sub(lambda m: names.get(m[0], m[0]), case.source)
    writes = draw.names(1)
    if "return " in text:
        inside = "\n".join(f"    {line}" for line in text.splitlines())
        text = f"def case():\n{inside}\n{writes[0]} = case()"
    form = Form(text, block="\n" in text, name=f"case {case.name}")
    if draw.run(form, text, writes):
        return True
    draw.discard(known)
    return False


def _operand(draw: Draw, array: Any) -> str:
    """Source of an operand: of small integers and masks the numbers themselves."""
    if array.dtype.kind != "f":
        dtype = "bool_" if array.dtype.kind == "b" else array.dtype.name
        return f"np.array({array.tolist()!r}, dtype=np.{dtype})"
    for name in reversed(draw.live):
        value = draw.space[name]
        if value.dtype.kind == "f" and np.size(value) >= array.size and draw.rng.random() < 0.4:
            if np.shape(value) == array.shape:
                return str(name)
            return f"np.ravel({name})[:{array.size}].reshape({array.shape})"
    return draw.enter(array.astype(getattr(np, draw.main[3:])))
