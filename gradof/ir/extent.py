"""Sizes that stand for any length: an int for one length, with the formula that holds for all.

    lengths = Lengths({"n": 20})              # one length, as an example
    n = lengths.symbol("n")
    n - 1, 3 * n + 2                          # 19 and 62, and the formulas n-1 and 3*n+2
    n > 16                                    # True, and a condition: so for other lengths, too
    lengths.hold({"n": 12})                   # False: 12 > 16 does not hold

A graph whose types and attributes have extents among their numbers goes through every pass as one
of the example's length. What is decided on the way by comparing sizes is a condition.

Note [Sizes that lose their formula]
An extent that C code makes a plain int of (`range(n)`, `np.prod(shape)`) is that of the example
from there on. So whoever emits code from a graph with extents does it twice, for two examples: the
two are the same text exactly if no number in it came from a length by another way than a formula.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard, Union

Values = Mapping[str, int]
Atom = Union[str, "Quotient"]


class Unsized(Exception):
    """A size has no formula here: the graph is one of its length alone."""


@dataclass(frozen=True)
class Form:
    """A whole number and multiples of atoms: symbols and quotients."""

    constant: int = 0
    terms: tuple[tuple[Atom, int], ...] = ()

    def value(self, values: Values) -> int:
        """The number for these lengths."""
        total = self.constant
        for atom, times in self.terms:
            total += times * (values[atom] if isinstance(atom, str) else atom.value(values))
        return total

    def plus(self, other: Form, times: int = 1) -> Form:
        """self + times * other."""
        found = dict(self.terms)
        for atom, n in other.terms:
            found[atom] = found.get(atom, 0) + times * n
        terms = tuple(sorted(((a, n) for a, n in found.items() if n), key=str))
        return Form(self.constant + times * other.constant, terms)

    def times(self, factor: int) -> Form:
        """factor * self."""
        return Form().plus(self, factor)

    def over(self, by: int) -> Form:
        """self // by."""
        if all(n % by == 0 for _, n in self.terms):
            return Form(self.constant // by, tuple((a, n // by) for a, n in self.terms))
        return Form(0, ((Quotient(self, by), 1),))

    def __str__(self) -> str:
        parts = [f"{n}*{a}" if n != 1 else str(a) for a, n in self.terms]
        if self.constant or not parts:
            parts.append(str(self.constant))
        return "+".join(parts).replace("+-", "-")


@dataclass(frozen=True)
class Quotient:
    """form // by, of a form that is not below zero."""

    form: Form
    by: int

    def value(self, values: Values) -> int:
        """The number for these lengths."""
        return self.form.value(values) // self.by

    def __str__(self) -> str:
        return f"({self.form})//{self.by}"


class Lengths:
    """The lengths of an example, and the conditions that were met with it."""

    def __init__(self, values: Values) -> None:
        self.values = dict(values)
        self.conditions: dict[tuple[Form, str], bool] = {}
        self.named: dict[str, tuple[str, Form]] = {}  # names of LLVM's: their type, and formula

    def symbol(self, name: str) -> Extent:
        """The length of this name."""
        return Extent(Form(0, ((name, 1),)), self)

    def of(self, form: Form) -> int:
        """A size of this formula."""
        return Extent(form, self) if form.terms else form.constant

    def name(self, form: Form, kind: str = "i64") -> str:
        """The name in emitted code of what has this formula."""
        made = f'%"{form}"' if kind == "i64" else f'%"{kind} {form}"'
        self.named[made] = kind, form
        return made

    def compare(self, form: Form, how: str) -> bool:
        """Whether a formula compares so with 0; a condition from now on."""
        truth: bool = _COMPARE[how](form.value(self.values), 0)
        self.conditions[form, how] = truth
        return truth

    def hold(self, values: Values) -> bool:
        """Whether all conditions are met by other lengths as by the example."""
        return all(
            _COMPARE[how](form.value(values), 0) is truth
            for (form, how), truth in self.conditions.items()
        )


_COMPARE: dict[str, Callable[[int, int], bool]] = {
    name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")
}


class Extent(int):
    """See the module docstring. As text it is a name of LLVM's that stands for its formula."""

    form: Form
    lengths: Lengths

    def __new__(cls, form: Form, lengths: Lengths) -> Extent:
        """The size of this formula."""
        made = int.__new__(cls, form.value(lengths.values))
        made.form, made.lengths = form, lengths
        return made

    def __add__(self, other: Any) -> Any:
        return self.lengths.of(self.form.plus(form_of(other)))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self.lengths.of(self.form.plus(form_of(other), -1))

    def __rsub__(self, other: Any) -> Any:
        return self.lengths.of(form_of(other).plus(self.form, -1))

    def __mul__(self, other: Any) -> Any:
        if type(other) in (int, bool):
            return self.lengths.of(self.form.times(other))
        if isinstance(other, Extent):
            raise Unsized(f"{self.form} times {other.form}")
        return NotImplemented

    __rmul__ = __mul__

    def __neg__(self) -> Any:
        return self.lengths.of(self.form.times(-1))

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return -self if self < 0 else self

    def __bool__(self) -> bool:
        return self.lengths.compare(self.form, "ne")

    def __floordiv__(self, other: Any) -> Any:
        """-(-n // k), rounded up, is (n + k - 1) // k: what is divided is not below zero."""
        times = self._times(other)
        if times is not None:
            return times
        if type(other) is not int or other <= 0:
            raise Unsized(f"{self!r} // {other!r}")
        if self < 0:
            return -((-self + (other - 1)) // other)
        return self.lengths.of(self.form.over(other))

    def __mod__(self, other: Any) -> Any:
        if self._times(other) is not None:
            return 0
        if type(other) is not int or other <= 0 or self < 0:
            raise Unsized(f"{self!r} % {other!r}")
        return self - other * (self // other)

    def __rfloordiv__(self, other: Any) -> Any:
        if type(other) is not int or self <= 0:
            raise Unsized(f"{other!r} // {self!r}")
        times = int.__floordiv__(other, self)
        rest = other - times * self  # is less than a whole one, for other lengths, too
        if rest < 0 or rest >= self:
            raise Unsized(f"{other!r} // {self!r}")
        return times

    def __rmod__(self, other: Any) -> Any:
        return other - (other // self) * self

    def _times(self, other: Any) -> int | None:
        """How many times an extent this is, if it is a multiple whatever the lengths."""
        if not isinstance(other, Extent) or other == 0:
            return None
        times = int.__floordiv__(self, other)
        return times if self.form == other.form.times(times) else None

    def _refuse(self, *_: Any) -> Any:
        raise Unsized(f"{self.form} as another number")

    __int__ = __float__ = __truediv__ = __rtruediv__ = __pow__ = __rpow__ = _refuse
    __divmod__ = __rdivmod__ = __index__ = _refuse
    __and__ = __or__ = __xor__ = __lshift__ = __rshift__ = __invert__ = _refuse

    def __hash__(self) -> int:
        return int.__hash__(self)

    def __repr__(self) -> str:
        return str(self.form)

    def __str__(self) -> str:
        return self.lengths.name(self.form)

    def __format__(self, spec: str) -> str:
        return str(self)


def form_of(size: Any) -> Form:
    """The formula of a size."""
    if isinstance(size, Extent):
        return size.form
    if type(size) in (int, bool):
        return Form(int(size))
    raise Unsized(f"a size and {size!r}")


def _comparing(how: str) -> Callable[[Extent, Any], Any]:
    compare = _COMPARE[how]

    def method(self: Extent, other: Any) -> Any:
        if type(other) not in (int, bool, Extent):
            return NotImplemented
        form = self.form.plus(form_of(other), -1)
        if not form.terms:
            return compare(form.constant, 0)
        return self.lengths.compare(form, how)

    return method


for _how in _COMPARE:
    setattr(Extent, f"__{_how}__", _comparing(_how))


class Amount(float):
    """An extent as a number of arithmetic; it is no operand of Python's."""

    form: Form
    lengths: Lengths

    def __new__(cls, form: Form, lengths: Lengths) -> Amount:
        """The number of this formula."""
        made = float.__new__(cls, form.value(lengths.values))
        made.form, made.lengths = form, lengths
        return made

    def _refuse(self, *_: Any) -> Any:
        raise Unsized(f"{self.form} in arithmetic")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = _refuse
    __rtruediv__ = __pow__ = __rpow__ = __int__ = __float__ = __abs__ = __neg__ = _refuse
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __trunc__ = _refuse

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Amount) and self.form == other.form

    def __hash__(self) -> int:
        return float.__hash__(self)

    def __repr__(self) -> str:
        return f"float({self.form})"


def is_whole(n: object) -> TypeGuard[int]:
    """Whether a size is a whole number, and no truth."""
    return type(n) is int or type(n) is Extent


def example(n: int) -> int:
    """A size as that of the example, for what decides how fast code is, and not what it computes.

    Where the two examples of Note [Sizes that lose their formula] decide differently, so it is.
    """
    return int.__add__(n, 0)


def ragged(size: int, by: int) -> bool:
    """Whether steps of `by` may not end where a size does."""
    return isinstance(size, Extent) or size % by != 0


def runtime(size: int) -> int | str:
    """A size as a loop counts to it; one that follows from lengths may be 0 for some."""
    return str(size) if isinstance(size, Extent) else size


def as_float(n: int) -> float:
    """A size as a number of arithmetic."""
    return Amount(n.form, n.lengths) if isinstance(n, Extent) else float(n)
