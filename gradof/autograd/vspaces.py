"""Vector spaces of the values that functions take and return: arrays, numbers, containers.

>>> vspace([1.0, np.zeros(2)]).zeros()
[array(0.), array([0., 0.])]

The arithmetic is numpy's and Python's, so traced arrays go through it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np

from gradof.tracer.numpy.array import TracedArray


class VSpace:
    """A vector space; subclasses are registered for types of values."""

    mappings: ClassVar[dict[type, Callable[[Any], VSpace]]] = {}
    iscomplex = False
    size: Any
    shape: Any

    def __init__(self, value: Any) -> None:
        pass

    def zeros(self) -> Any:
        """The zero vector."""
        raise NotImplementedError(repr(self))

    def ones(self) -> Any:
        """The vector of ones."""
        raise NotImplementedError(repr(self))

    def randn(self) -> Any:
        """A normal random vector."""
        raise NotImplementedError(repr(self))

    def standard_basis(self) -> Iterator[Any]:
        """The unit vectors."""
        raise NotImplementedError(repr(self))

    def add(self, x: Any, y: Any) -> Any:
        """x + y."""
        return self._add(x, y)

    def mut_add(self, x: Any, y: Any) -> Any:
        """x + y, where x may be None for zero."""
        return y if x is None else self._add(x, y)

    def scalar_mul(self, x: Any, a: Any) -> Any:
        """x * a."""
        return self._scalar_mul(x, a)

    def inner_prod(self, x: Any, y: Any) -> Any:
        """The inner product, a real number."""
        return self._inner_prod(x, y)

    def covector(self, x: Any) -> Any:
        """The covector of a vector: its conjugate."""
        return self._covector(x)

    def _add(self, x: Any, y: Any) -> Any:
        return x + y

    _mut_add = _add

    def _scalar_mul(self, x: Any, a: Any) -> Any:
        return x * a

    def _inner_prod(self, x: Any, y: Any) -> Any:
        raise NotImplementedError(repr(self))

    def _covector(self, x: Any) -> Any:
        return x

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}_{self.__dict__}"

    @classmethod
    def register(
        cls, value_type: type, vspace_maker: Callable[[Any], VSpace] | None = None
    ) -> None:
        """Values of this type are in this space, or in what `vspace_maker` gives for them."""
        VSpace.mappings[value_type] = vspace_maker or cls


class ArrayVSpace(VSpace):
    """Real arrays of one shape and dtype."""

    def __init__(self, value: Any) -> None:
        array = value if type(value) is TracedArray else np.asarray(value)
        self.shape = tuple(array.shape)
        self.dtype = array.dtype

    @property
    def size(self) -> Any:
        """The number of real coordinates."""
        return int(np.prod(self.shape)) * (2 if self.iscomplex else 1)

    @property
    def ndim(self) -> int:
        """The number of dims."""
        return len(self.shape)

    def zeros(self) -> Any:
        """An array of zeros."""
        return np.zeros(self.shape, self.dtype)

    def ones(self) -> Any:
        """An array of ones, 1 + 1j where it is complex."""
        return np.full(self.shape, 1 + 1j if self.iscomplex else 1, self.dtype)

    def randn(self) -> Any:
        """An array of normal random numbers."""
        drawn = np.array(np.random.randn(*self.shape))
        if self.iscomplex:
            drawn = drawn + 1j * np.array(np.random.randn(*self.shape))
        return drawn.astype(self.dtype)

    def standard_basis(self) -> Iterator[Any]:
        """Each array with a single 1; then 1j, where it is complex."""
        for place in np.ndindex(*self.shape):
            for unit in (1.0, 1j) if self.iscomplex else (1.0,):
                vector = np.zeros(self.shape, self.dtype)
                vector[place] = unit
                yield vector

    def _inner_prod(self, x: Any, y: Any) -> Any:
        return np.dot(np.ravel(x), np.ravel(y))


class ComplexArrayVSpace(ArrayVSpace):
    """Complex arrays of one shape and dtype, as a real vector space."""

    iscomplex = True

    def _inner_prod(self, x: Any, y: Any) -> Any:
        return np.real(np.dot(np.conj(np.ravel(x)), np.ravel(y)))

    def _covector(self, x: Any) -> Any:
        return np.conj(x)


class ContainerVSpace(VSpace):
    """Lists, tuples, named tuples and dicts, item by item. `shape` holds the items' spaces."""

    def __init__(self, value: Any) -> None:
        self.kind = type(value)
        self.shape = {k: vspace(v) for k, v in _items(value)}

    def _made(self, items: dict[Any, Any]) -> Any:
        if self.kind is dict:
            return items
        values = list(items.values())
        return self.kind(*values) if hasattr(self.kind, "_fields") else self.kind(values)

    def _map(self, function: Callable[..., Any], *values: Any) -> Any:
        items = self.shape.items()
        return self._made({k: function(vs, *(v[k] for v in values)) for k, vs in items})

    @property
    def size(self) -> Any:
        """The number of real coordinates."""
        return sum(vs.size for vs in self.shape.values())

    def zeros(self) -> Any:
        """Zeros everywhere."""
        return self._map(lambda vs: vs.zeros())

    def ones(self) -> Any:
        """Ones everywhere."""
        return self._map(lambda vs: vs.ones())

    def randn(self) -> Any:
        """Normal random numbers everywhere."""
        return self._map(lambda vs: vs.randn())

    def standard_basis(self) -> Iterator[Any]:
        """The unit vectors of each item, the others zero."""
        for key, vs in self.shape.items():
            for unit in vs.standard_basis():
                yield self._made({
                    k: unit if k == key else other.zeros() for k, other in self.shape.items()
                })  # fmt: skip

    def _add(self, x: Any, y: Any) -> Any:
        return self._map(lambda vs, a, b: vs._add(a, b), x, y)

    _mut_add = _add

    def _scalar_mul(self, x: Any, a: Any) -> Any:
        return self._map(lambda vs, v: vs._scalar_mul(v, a), x)

    def _inner_prod(self, x: Any, y: Any) -> Any:
        return sum(vs._inner_prod(x[k], y[k]) for k, vs in self.shape.items())

    def _covector(self, x: Any) -> Any:
        return self._map(lambda vs, v: vs._covector(v), x)


def _items(value: Any) -> Iterator[tuple[Any, Any]]:
    yield from value.items() if isinstance(value, dict) else enumerate(value)


def _of_array(value: Any) -> VSpace:
    complex_ = value.dtype.kind == "c"
    return ComplexArrayVSpace(value) if complex_ else ArrayVSpace(value)


_REAL: tuple[type, ...] = (
    float, int, bool, np.float64, np.float32, np.float16, np.longdouble,
)  # fmt: skip
_COMPLEX: tuple[type, ...] = (complex, np.complex64, np.complex128, np.clongdouble)
VSpace.mappings.update(dict.fromkeys(_REAL, ArrayVSpace))
VSpace.mappings.update(dict.fromkeys(_COMPLEX, ComplexArrayVSpace))
VSpace.mappings.update({np.ndarray: _of_array, TracedArray: _of_array})
VSpace.mappings.update({list: ContainerVSpace, tuple: ContainerVSpace, dict: ContainerVSpace})


def vspace(value: Any) -> VSpace:
    """The space a value is in; TypeError where there is none."""
    made = VSpace.mappings.get(type(value))
    if made is None and isinstance(value, tuple):  # a named tuple
        made = ContainerVSpace
    if made is None and isinstance(value, np.generic):
        made = _of_array
    if made is None:
        raise TypeError(
            f"Can't find vector space for value {value} of type {type(value)}. "
            f"Valid types are {list(VSpace.mappings)}"
        )
    return made(value)
