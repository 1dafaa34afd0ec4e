"""Torch's functions of the cells of a tile, on the one thread that runs the tile.

    with one_thread():                      # torch and MKL start no threads of their own
        erfc = tile_function(get_op("erfc"))
        erfc(x, out=y)                      # numpy arrays; y is written

Torch shares a call of more than some thousand cells with its OpenMP threads, and MKL, which
computes some of its functions, does so again. Tiles are on all cores already, and in a process that
was forked those threads are gone and would be waited for for ever. How many there may be is a
setting of OpenMP's and one of MKL's, each of the calling thread alone, which `one_thread` puts
back. torch.set_num_threads would change what all threads do.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from gradof.codegen.cpu.lowering import as_tensor, lowering
from gradof.codegen.cpu.openmp import torch_cpu
from gradof.codegen.cpu.tile_sums import along
from gradof.ir.types import F32, F64, DType
from gradof.ops.registry import Op


class _Settings(NamedTuple):
    """The functions of OpenMP and MKL that torch is linked with."""

    get_openmp: Callable[[], int]
    set_openmp: Callable[[int], None]
    set_mkl: Callable[[int], int] | None  # returns what was set before; None without MKL


@functools.cache
def _settings() -> _Settings | None:
    import torch

    loaded = torch_cpu()
    if loaded is None:
        return None
    keeps_lock = ctypes.PyDLL(loaded._name, handle=loaded._handle)  # they only read and write
    names = ["omp_get_max_threads", "omp_set_num_threads"]
    names += ["MKL_Set_Num_Threads_Local"] if torch._C.has_mkl else []
    if not all(hasattr(keeps_lock, name) for name in names):
        return None
    functions = [getattr(keeps_lock, name) for name in names]
    return _Settings(functions[0], functions[1], functions[2] if len(functions) > 2 else None)


def has_one_thread() -> bool:
    """Whether torch can be told to stay on a thread."""
    return _settings() is not None


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Torch's functions start no threads, as far as this thread calls them."""
    import torch

    settings = _settings()
    assert settings is not None, "tiles have torch's functions only where has_one_thread()"
    torch.get_num_threads()  # a new thread has torch's own setting first
    before = settings.get_openmp()
    mkl = 0 if settings.set_mkl is None else settings.set_mkl(1)
    settings.set_openmp(1)
    try:
        yield
    finally:
        settings.set_openmp(before)
        if settings.set_mkl is not None:
            settings.set_mkl(mkl)


# Numpy's loops are short where an operand is broadcast: they take up to six times as long.
BROADCAST = {"add": "add", "sub": "sub", "mul": "mul", "div": "true_divide"}

# Of these numpy computes one number at a time, for 4 to 20 times as long. It does so for fmod and
# remainder, too, but is right there where a quotient is out of the range of floats.
SCALAR_LOOPS: dict[str, frozenset[DType]] = {
    "sin": frozenset({F64}), "cos": frozenset({F64}),
    "hypot": frozenset({F32, F64}), "logaddexp": frozenset({F32, F64}),
}  # fmt: skip


@functools.cache
def writing(kind: str) -> Callable[..., Any]:
    """Torch's function of a kind in BROADCAST or SCALAR_LOOPS: of numpy arrays, into `out`."""
    import torch

    function = getattr(torch, BROADCAST.get(kind, kind))

    def call(*arrays: Any, out: Any) -> Any:
        function(*map(as_tensor, arrays), out=as_tensor(out))
        return out

    return call


# And short where they reduce rows, of which numpy takes one at a time.
EXTREMES = {"max": ("amax", np.maximum), "min": ("amin", np.minimum)}
_FEW = 8  # columns for which torch's loops are short, too


@functools.cache
def extreme(kind: str) -> Callable[[Any], Any]:
    """The largest or smallest number of each row, by torch; nan where there is one."""
    import torch

    name, ufunc = EXTREMES[kind]
    function = getattr(torch, name)

    def call(a: Any) -> Any:
        if a.shape[-1] <= _FEW:
            return along(ufunc, a)
        return function(as_tensor(a), -1, True).numpy()

    return call


@functools.cache
def tile_function(record: Op) -> Callable[..., Any]:
    """The op's function in torch, of numpy arrays and attributes; it may be given `out=`."""
    function = lowering(record, "torch").function
    assert function is not None and record.torch is not None
    direct = _with_out(record.torch)

    def call(*arrays: Any, out: Any = None, **attrs: Any) -> Any:
        if out is None:
            return function(*arrays, **attrs)
        if direct is None or attrs:
            np.copyto(out, function(*arrays, **attrs))
        else:
            direct(*map(as_tensor, arrays), out=as_tensor(out))
        return out

    return call


def _with_out(text: str) -> Callable[..., Any] | None:
    """What a torch lowering names, where that may be told where to write."""
    import torch

    *path, name = text.split(".")
    if path not in (["torch"], ["torch", "special"]) or not name.isidentifier():
        return None
    namespace = torch.special if len(path) == 2 else torch
    function: Callable[..., Any] = getattr(namespace, name)
    return function
