"""What a numpy function does, as calls of numpy: the program that `gradof.testing.shrink` cuts.

    whole = record(valley, (p,), {})
    print(whole.body())
        def program(x0):
            v0 = x0[slice(None, -1, None)]  # model.py:4
            v1 = np.power(v0, 2)  # model.py:4
            return (v1,)

Arguments are `Recorded` arrays, which see every ufunc, numpy function, index and assignment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gradof.runtime.arrays import is_array
from gradof.runtime.thread import calling_plain
from gradof.testing.shrinking import Call, Program
from gradof.tracer.core.pytree import flatten
from gradof.tracer.state.source import user_loc


def record(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Program:
    """The calls of one run, with the values they had."""
    log = _Log()
    leaves, tree = flatten((args, kwargs))
    inputs = [log.bind(np.array(x), "x") if is_array(x) else x for x in leaves]
    grads = {name for name, value in log.values.items() if value.dtype.kind in "fc"}
    positional, named = tree.unflatten(inputs)
    with calling_plain(), np.errstate(all="ignore"):
        results = flatten(fn(*positional, **named))[0]
    made = frozenset(log.names[id(r)] for r in results if id(r) in log.names)
    grads |= {name for name, value in log.values.items() if np.asarray(value).dtype.kind in "fc"}
    name = getattr(fn, "__qualname__", type(fn).__name__)
    return Program(name, "numpy", tuple(log.calls), log.values, frozenset(grads), made)


class _Log:
    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.values: dict[str, Any] = {}
        self.names: dict[int, str] = {}
        self.alive: list[Any] = []  # so that ids stay unique

    def bind(self, value: Any, prefix: str) -> Any:
        """The value as an array that records what is done to it, under a new name."""
        array = np.asarray(value)
        recorded = array.view(Recorded)
        recorded.log = self
        name = f"{prefix}{len(self.values)}"
        self.values[name] = array.copy()
        self.names[id(recorded)] = name
        self.alive.append(recorded)
        return recorded

    def call(
        self, text: str | None, operands: tuple[Any, ...], named: dict[str, Any], result: Any
    ) -> Any:
        """Note a call whose source is `text(operands)`; `text` has a place for its arguments."""
        several = isinstance(result, (tuple, list))
        results = [
            self.bind(r, "v") if is_array(r) else r for r in (result if several else [result])
        ]
        writes = tuple(self.names.get(id(r), f"unused{len(self.calls)}_{k}")
                       for k, r in enumerate(results))  # fmt: skip
        for name, value in zip(writes, results, strict=True):
            self.values.setdefault(name, value)
        leaves = flatten((operands, named))[0]
        reads = tuple(dict.fromkeys(self.names[id(x)] for x in leaves if id(x) in self.names))

        def source(sizes: Mapping[int, int]) -> str:
            assert text is not None
            shown = [self.source(x, sizes) for x in operands]
            shown += [f"{k}={self.source(v, sizes)}" for k, v in named.items()]
            return text.replace("...", ", ".join(shown)) if "..." in text else text.format(*shown)

        loc = str(user_loc() or "")
        self.calls.append(Call(source if text else None, reads, writes, loc, unpack=several))
        return type(result)(results) if several else results[0]

    def source(self, value: Any, sizes: Mapping[int, int]) -> str:
        if id(value) in self.names:
            return self.names[id(value)]
        if isinstance(value, (tuple, list)):
            inner = ", ".join(self.source(v, sizes) for v in value)
            if isinstance(value, list):
                return f"[{inner}]"
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        if isinstance(value, slice):
            parts = (self.source(v, sizes) for v in (value.start, value.stop, value.step))
            return f"slice({', '.join(parts)})"
        if isinstance(value, int) and not isinstance(value, bool):
            return str(sizes.get(value, value))
        if isinstance(value, np.ndarray):
            from gradof.testing.literals import array_source

            return array_source(value, "numpy", False)
        if isinstance(value, np.generic):
            return f"np.{value.dtype.name}({value.item()!r})"
        if isinstance(value, (type, np.dtype)):
            return f"np.dtype({np.dtype(value).str!r})"
        return repr(value)


class Recorded(np.ndarray):
    """An array that notes what is called with it."""

    log: _Log

    def __array_finalize__(self, source: Any) -> None:
        """A view belongs to the same log, and has no name until it is bound."""
        log = getattr(source, "log", None)
        if log is not None:
            self.log = log

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """A ufunc, or its reduce and the like."""
        out = kwargs.pop("out", None)
        result = getattr(ufunc, method)(*map(_plain, inputs), **_plain(kwargs))
        text = f"np.{ufunc.__name__}{'' if method == '__call__' else '.' + method}(...)"
        found = self.log.call(text, inputs, kwargs, result)
        return found if out is None else self._assign(out, found)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """A function of numpy."""
        result = func(*_plain(args), **_plain(kwargs))
        module = func.__module__.replace("numpy", "np", 1)
        return self.log.call(f"{module}.{func.__name__}(...)", args, kwargs, result)

    def __getitem__(self, index: Any) -> Any:
        """Indexing."""
        return self.log.call("{0}[{1}]", (self, index), {}, _plain(self)[_plain(index)])

    def __setitem__(self, index: Any, value: Any) -> None:
        """An assignment gives the array another name: what reads the old one is unchanged."""
        changed = _plain(self).copy()
        changed[_plain(index)] = _plain(value)
        text = "(lambda a, i, v: (a.__setitem__(i, v), a)[1])({0}.copy(), {1}, {2})"
        result = self.log.call(text, (self, index, value), {}, changed)
        self._assign((self,), result)

    def _assign(self, out: tuple[Any, ...], result: Any) -> Any:
        (target,) = out
        np.copyto(_plain(target), _plain(result))
        self.log.names[id(target)] = self.log.names[id(result)]
        return target


def _plain(value: Any) -> Any:
    if isinstance(value, Recorded):
        return value.view(np.ndarray)
    if isinstance(value, (tuple, list)):
        return type(value)(map(_plain, value))
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return value
