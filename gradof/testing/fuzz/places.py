"""The places of a form: what is drawn for each, given its subject.

`PLACES[name](context, spec)` is the text that stands there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from gradof.testing.fuzz.forms import Form

if TYPE_CHECKING:
    from gradof.testing.fuzz.draw import Draw

KINDS = {"x": "f", "z": "c", "k": "i", "b": "b", "w": "fcib", "v": "fc"}


class Context:
    """One form being filled."""

    def __init__(self, draw: Draw, form: Form) -> None:
        self.draw = draw
        self.rng = draw.rng
        self.form = form
        self.subject = ""
        self.dims: list[int] = []
        self.writes: tuple[str, ...] = draw.names(form.outputs)

    @property
    def shape(self) -> tuple[int, ...]:
        """The subject's shape."""
        return self.draw.world.shape(self.draw.space[self.subject])

    def subject_text(self) -> str | None:
        """Choose the subject; None where there is none to be had."""
        place, spec = self.form.subject
        if not place:
            return ""
        least, exact = _dims(spec)
        kinds = KINDS[place]
        if place == "w":
            kinds = self.draw.pick([("f", 8), ("c", 1), ("i", 2), ("b", 1)])
        world, space = self.draw.world, self.draw.space
        fits = []
        for name, value in self.draw.live.items():
            rank = len(world.shape(value))
            if world.kind(value) not in kinds or rank < least or (exact and rank != least):
                continue
            if place == "v" and not world.owned(value, [space[n] for n in self.draw.inputs]):
                continue
            fits.append(name)
        if place == "v" and world.library == "torch" and self.rng.random() < 0.12:
            shape = self.fresh_shape(least, exact)
            self.subject = self.draw.fresh(shape, kinds[0], has_gradient=False)  # and is changed
        elif not fits or (place != "v" and self.rng.random() < 0.08):
            if place == "v":
                return None
            self.subject = self.draw.fresh(self.fresh_shape(least, exact), kinds[0])
        else:  # what was made last is read most
            near = int(self.rng.expovariate(0.6))
            self.subject = fits[max(0, len(fits) - 1 - near)]
        return self.subject

    def fresh_shape(self, least: int, exact: bool) -> tuple[int, ...]:
        """The base shape, with as many dims as are needed."""
        shape = self.draw.shape
        while len(shape) < least:
            shape = (self.rng.choice((1, 2, 3)), *shape)
        if exact and len(shape) > least:
            shape = (*shape[: least - 1], math.prod(shape[least - 1 :])) if least else ()
        return shape

    def partner_shape(self) -> tuple[int, ...]:
        """A shape that can be broadcast with the subject's."""
        shape = list(self.shape)
        if self.rng.random() < 0.3:
            shape = shape[self.rng.randint(0, len(shape)) :]
        return tuple(1 if self.rng.random() < 0.12 else n for n in shape)


def _dims(spec: str) -> tuple[int, bool]:
    exact = spec.startswith("=")
    digits = spec.lstrip("=")
    return (int(digits) if digits else 0), exact


def _subject(c: Context, spec: str) -> str:
    return c.subject


def _fits(c: Context, kinds: str, same: bool) -> list[str]:
    world, shape, found = c.draw.world, c.shape, []
    for name, value in c.draw.live.items():
        other = world.shape(value)
        if world.kind(value) not in kinds:
            continue
        if other == shape or (not same and _broadcast(other, shape)):
            found.append(name)
    return found


def _broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    if len(a) > len(b):
        return False
    return all(n == m or n == 1 for n, m in zip(a[::-1], b[::-1], strict=False))


def _partner(c: Context, spec: str) -> str:
    """An array that can be broadcast with the subject, of its kind; sometimes a number."""
    kind = c.draw.world.kind(c.draw.space[c.subject])
    if spec != "a" and c.rng.random() < 0.2:
        return _number(c, "")
    kinds = "fib" if kind == "f" and c.rng.random() < 0.1 and spec != "f" else kind
    fits = _fits(c, kinds, same=False)
    if fits and c.rng.random() < 0.7:
        return c.rng.choice(fits)
    return c.draw.fresh(c.partner_shape(), kind)


def _same(c: Context, spec: str) -> str:
    """An array of the subject's shape and kind."""
    kind = spec or c.draw.world.kind(c.draw.space[c.subject])
    fits = _fits(c, kind, same=True)
    if fits and c.rng.random() < 0.7:
        return c.rng.choice(fits)
    return c.draw.fresh(c.shape, kind)


def _number(c: Context, spec: str) -> str:
    kind = c.draw.world.kind(c.draw.space[c.subject]) if c.subject else "f"
    if kind in "ib" and spec != "f":
        return str(c.rng.choice((1, 2, 3, -1)))
    return str(c.draw.pick([
        (repr(round(c.rng.uniform(-2, 2), 2)), 8), (repr(round(c.rng.uniform(0.1, 2), 2)), 4),
        ("2", 2), ("-1", 1), ("3", 1), ("0.5", 2), ("True", 0.2), ("0", 0.5),
    ]))  # fmt: skip


def _positive(c: Context, spec: str) -> str:
    return repr(round(c.rng.uniform(0.2, 2), 2))


def _mask(c: Context, spec: str) -> str:
    """A mask that can be broadcast with the subject; with a spec, one of its shape."""
    fits = _fits(c, "b", same=bool(spec))
    if fits and c.rng.random() < 0.35:
        return c.rng.choice(fits)
    kind = c.draw.world.kind(c.draw.space[c.subject])
    other = c.subject if spec or c.rng.random() < 0.6 else _partner(c, "a")
    if kind == "c":
        other = f"{other}.real"
    if c.rng.random() < 0.15 and not spec:
        return c.draw.fresh(c.partner_shape(), "b")
    sign = c.rng.choice((">", "<", ">=", "<=", "!="))
    return f"({other} {sign} {round(c.rng.uniform(-0.7, 0.7), 1)})"


def _dim(c: Context, spec: str) -> str:
    rank = len(c.shape)
    if not rank:
        return c.rng.choice(("0", "-1"))
    left = [d for d in range(rank) if d not in c.dims] or list(range(rank))
    dim = c.rng.choice(left)
    c.dims.append(dim)
    return str(dim - rank if c.rng.random() < 0.4 else dim)


def _dims_of(c: Context, spec: str) -> str:
    rank = len(c.shape)
    chosen = c.rng.sample(range(rank), c.rng.randint(1, rank)) if rank else []
    c.dims.extend(chosen)
    return "(" + "".join(f"{d}, " for d in chosen).rstrip() + ")"


def _perm(c: Context, spec: str) -> str:
    order = list(range(len(c.shape)))
    c.rng.shuffle(order)
    return "(" + "".join(f"{d}, " for d in order).rstrip() + ")"


def _slice(c: Context, spec: str) -> str:
    """An index of slices, numbers, None and an ellipsis; torch has no negative steps."""
    parts = []
    for n in c.shape[: c.rng.randint(1, max(1, len(c.shape)))]:
        parts.append(_one_slice(c, n))
    if c.rng.random() < 0.12:
        parts.insert(c.rng.randint(0, len(parts)), "None")
    if c.rng.random() < 0.15:
        parts.insert(0, "...")
        parts = parts[: len(c.shape) + 1]
    return ", ".join(parts) or "..."


def _one_slice(c: Context, n: int) -> str:
    low, high = sorted((c.rng.randint(0, max(n, 1)), c.rng.randint(0, max(n, 1))))
    steps = ("::2", "1::2", "::3", "::-1", "-2::-2") if c.draw.world.library == "numpy" else (
        "::2", "1::2", "::3")  # fmt: skip
    return str(c.draw.pick([
        (":", 3), ("1:", 2), (":-1", 2), (c.rng.choice(steps), 4),
        (f"{low}:{high + 1}", 2), (str(c.rng.randint(-1, 0)), 1.5), (f"-{min(2, n) or 1}:", 1),
    ]))  # fmt: skip


def _index(c: Context, spec: str) -> str:
    """Integers that index the dim drawn before; with `same`, an array of the subject's shape."""
    n = c.shape[c.dims[-1]] if c.dims else (c.shape[0] if c.shape else 1)
    if spec == "same":
        shape: tuple[int, ...] = c.shape
    elif spec == "flat":
        n, shape = math.prod(c.shape), (c.rng.randint(1, 5),)
    elif spec == "pair":
        shape = (2, c.rng.randint(1, 4))
    else:
        shape = (c.rng.randint(1, max(1, min(2 * n, 9))),)
    drawn = c.draw.numbers.integers(0, max(n, 1), shape)
    if c.rng.random() < 0.3 and spec not in ("same", "add"):
        drawn = drawn - (c.draw.numbers.random(shape) < 0.3) * n
    if c.draw.world.library == "numpy":  # an argument that is no float has no second gradient
        return f"np.array({drawn.tolist()!r})"
    return c.draw.fresh((), "i", "torch.int64", drawn, plain=True)




def _picked(c: Context, spec: str) -> str:
    """The subject's shape with the dim drawn first as long as the index drawn last."""
    world = c.draw.world
    index = world.shape(c.draw.space[c.draw.inputs[-1]])
    shape = list(c.shape)
    if c.dims:
        shape[c.dims[0]] = index[-1]
    return c.draw.fresh(tuple(shape), world.kind(c.draw.space[c.subject]),
                        world.dtype(c.draw.space[c.subject]))  # fmt: skip


def _reshape(c: Context, spec: str) -> str:
    total = math.prod(c.shape)
    factors = [n for n in (2, 3, 4, 5, 7) if total and total % n == 0]
    choices = ["(-1,)", f"({total},)", "(1, -1)", "(-1, 1)"]
    if factors:
        n = c.rng.choice(factors)
        choices += [f"({n}, -1)", f"(-1, {n})", f"({total // n}, {n})"] * 2
    return c.rng.choice(choices)


def _expand(c: Context, spec: str) -> str:
    shape = list(c.shape)
    shape = [c.rng.randint(1, 3) if n == 1 else n for n in shape]
    if c.rng.random() < 0.5:
        shape.insert(0, c.rng.randint(1, 3))
    return "(" + "".join(f"{n}, " for n in shape).rstrip() + ")"


def _int(c: Context, spec: str) -> str:
    low, _, high = (spec or "-2,3").partition(",")
    return str(c.rng.randint(int(low), int(high)))


def _size(c: Context, spec: str) -> str:
    """The length of a dim of the subject: the last, or the one that is named."""
    return str(c.shape[int(spec or "-1")]) if c.shape else "1"


def _flag(c: Context, spec: str) -> str:
    return c.rng.choice(("True", "False"))


def _one_of(c: Context, spec: str) -> str:
    return c.rng.choice(spec.split("|"))


def _type(c: Context, spec: str) -> str:
    chosen = c.draw.pick([("f", 8), ("c", 0.5 if c.draw.world.library == "torch" else 0)])
    return str(c.draw.pick(c.draw.world.dtypes(spec or chosen)))


def _array(c: Context, spec: str) -> str:
    """A new array whose shape is said, with numbers, S{n} (the subject's sizes) and ? (any)."""
    kind = c.draw.world.kind(c.draw.space[c.subject])
    shape = []
    for part in spec.split(","):
        if part.startswith("S"):
            shape.append(c.shape[int(part[1:])])
        elif part == "?":
            shape.append(c.rng.randint(1, 4))
        elif part:
            shape.append(int(part))
    dtype = c.draw.world.dtype(c.draw.space[c.subject])
    return c.draw.fresh(tuple(shape), kind, dtype)


def _new(c: Context, spec: str) -> str:
    return ", ".join(c.writes)


PLACES: dict[str, Callable[[Context, str], str]] = {
    **dict.fromkeys("xzkbwv", _subject),
    "y": _partner, "s": _same, "num": _number, "pos": _positive, "m": _mask, "dim": _dim,
    "dims": _dims_of, "perm": _perm, "slice": _slice, "index": _index, "picked": _picked,
    "reshape": _reshape, "expand": _expand, "int": _int, "size": _size, "flag": _flag,
    "of": _one_of, "type": _type, "array": _array, "new": _new,
}  # fmt: skip
