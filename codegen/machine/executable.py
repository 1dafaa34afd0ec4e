r"""Emitted source made callable, its text kept where tracebacks and debuggers look for it.

>>> run = Executable("f", "def f(x):\n    return (np.tanh(x),)\n", {"np": np})
>>> run.filename
'<gradof f 1b0f5c2e>'
>>> run(np.zeros(2))
(array([0., 0.]),)
"""

from __future__ import annotations

import hashlib
import linecache
import weakref
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from gradof.errors import CodegenError
from gradof.ir import forks

# The same source has the same name, so each text is kept once, while any function of it lives.
# Reentrant, because a finalizer may run inside the lock.
_LOCK = forks.rlock()
_LIVE: Counter[str] = Counter()


class Executable:
    """Emitted code: `source`, the `filename` it has in tracebacks, and the call.

    `kernels` are the functions it calls for its fusion groups.
    """

    takes_tensors = False  # torch's, as they are; see gradof.codegen.host.torch_emit
    is_silent = False  # warns of no infinities, whatever numpy is told

    consumed: tuple[int, ...] = ()  # inputs that `consume` lets go of on the way

    def __init__(
        self, name: str, source: str, namespace: dict[str, Any], kernels: Sequence[Any] = (),
        consumed: tuple[int, ...] = (),
    ) -> None:  # fmt: skip
        self.kernels = tuple(kernels)
        digest = hashlib.sha256(source.encode()).hexdigest()[:8]
        self.name = name
        self.source = source
        self.filename = f"<gradof {name} {digest}>"
        namespace.setdefault("__name__", "gradof.compiled")  # not the user's: it reads no state
        exec(compile(source, self.filename, "exec"), namespace)
        self.function = namespace[name]
        self.consumed = consumed
        self._arity = self.function.__code__.co_argcount
        if consumed:  # which come in one list
            self._arity += len(consumed) - 1
        remember_source(self.filename, source)
        weakref.finalize(self.function, _forget, self.filename).atexit = False

    @property
    def listing(self) -> str:
        """The source with that of every kernel before it."""
        return "\n\n".join([*(kernel.source for kernel in self.kernels), self.source])

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        """Run on numpy arrays, one per graph input; fresh, writable arrays come back.

        Floating-point warnings are silent: inf and nan are results. Raises CodegenError for a
        wrong number of arrays; their shapes and dtypes are the caller's to check.
        """
        if len(arrays) != self._arity:
            raise CodegenError(f"{self.name} takes {self._arity} arrays, got {len(arrays)}")
        return self._run(self.boxed(arrays))

    def consume(self, arrays: list[Any]) -> tuple[Any, ...]:
        """As a call; the list is its own, and is emptied where something is `consumed`.

        What no other object holds of that is let go as soon as nothing reads it.
        """
        if not self.consumed or len(arrays) != self._arity:
            return self(*arrays)
        given = self.boxed(arrays)
        arrays.clear()
        return self._run(given)

    def boxed(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """The arguments of the function: those to be let go are in one list, which it empties."""
        if not self.consumed:
            return arrays
        given = [array for k, array in enumerate(arrays) if k not in self.consumed]
        return [*given, [arrays[k] for k in self.consumed]]

    def _run(self, given: Sequence[Any]) -> tuple[Any, ...]:
        result: tuple[Any, ...]
        if self.is_silent:
            result = self.function(*given)
            return result
        with np.errstate(all="ignore"):
            result = self.function(*given)
        return result

    def __repr__(self) -> str:
        return f"<Executable {self.filename[1:-1]}>"


def loaded(text: str, label: str, module: str) -> dict[str, Any]:
    """What a module of emitted source defines; inspect, as triton does, finds its text."""
    filename = f"<gradof {label} {hashlib.sha256(text.encode()).hexdigest()[:8]}>"
    remember_source(filename, text)
    space: dict[str, Any] = {"__name__": f"gradof_{module}"}
    exec(compile(text, filename, "exec"), space)
    return space


def remember_source(filename: str, source: str) -> None:
    """Keep the text for tracebacks as long as some function made of it lives."""
    with _LOCK:
        _LIVE[filename] += 1
        # mtime None: linecache.checkcache leaves the entry alone
        linecache.cache[filename] = len(source), None, source.splitlines(keepends=True), filename


def _forget(filename: str) -> None:
    with _LOCK:
        _LIVE[filename] -= 1
        if not _LIVE[filename]:
            del _LIVE[filename]
            linecache.cache.pop(filename, None)
