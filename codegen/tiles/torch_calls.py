"""Torch's functions of the cells of a tile, on the one thread that runs the tile.

    with one_thread():                      # torch and MKL start no threads of their own
        writing("erfc")(x, out=y)           # tensors; y is written

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

from gradof import tuning
from gradof.codegen.lowering.numpy import lowering
from gradof.codegen.machine.openmp import has_threads, torch_cpu
from gradof.codegen.machine.threads import n_threads
from gradof.codegen.tiles.sums import along, total
from gradof.ir.types import F32, F64, DType
from gradof.ops.registry import Op, get_op


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


# Of these numpy has no function; torch computes them in one pass.
ONE_PASS = frozenset({"rsqrt", "sigmoid"})

# Torch computes the last cells of a range one at a time, by other functions than vectors of cells.
_OTHER_ENDS = frozenset({"sigmoid", "hypot", "logaddexp"})
_VECTORS = 128  # bytes that are computed at a time, at most

# Of these a cell is the same bits however torch's threads share the cells.
SHARED = frozenset({
    "add", "sub", "mul", "div", "addcmul", "addcdiv", "rsqrt", "max", "min", "total", "softmax",
    "softmax_grad", "layer_norm", "layer_norm_grad",
})  # fmt: skip


def may_share() -> bool:
    """Whether torch's threads are there, and as many as are asked for."""
    import torch

    return has_threads() and n_threads() == torch.get_num_threads()


def of_torch(name: str) -> Callable[..., Any]:
    """Torch's function of that name."""
    import torch

    function: Callable[..., Any] = getattr(torch, name)
    return function


@functools.lru_cache(maxsize=256)
def number(value: float) -> Any:
    """A number as a tensor, which takes the dtype of what it is computed with."""
    import torch

    return torch.tensor(value, dtype=torch.float64)


@functools.cache
def writing(kind: str) -> Callable[..., Any] | None:
    """Torch's function of an op's tensors that writes where it is told to, if it has one."""
    import torch

    if kind in _OTHER_ENDS:
        return in_vectors(of_torch(kind))
    if kind in BROADCAST or kind in SCALAR_LOOPS or kind in ONE_PASS:
        return of_torch(BROADCAST.get(kind, kind))
    text = get_op(kind).torch
    *path, name = (text or "").split(".")
    if path not in (["torch"], ["torch", "special"]) or not name.isidentifier():
        return None
    function: Callable[..., Any] = getattr(torch.special if len(path) == 2 else torch, name)
    return function


def in_vectors(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of tensors' cells that has all of them computed in vectors.

    What a cell becomes does not depend on where it is in a tile, then.
    """

    def call(*args: Any, out: Any) -> Any:
        whole = out if out.is_contiguous() else out.new_empty(out.shape)
        cells = [a.expand(out.shape).contiguous().view(-1) for a in args]
        n = out.numel()
        even = n - n % (_VECTORS // out.element_size())
        flat = whole.view(-1)
        function(*(a[:even] for a in cells), out=flat[:even])
        if even < n:
            ends = [a.new_zeros(_VECTORS // out.element_size()) for a in cells]
            for end, a in zip(ends, cells, strict=True):
                end[: n - even] = a[even:]
            flat[even:] = function(*ends)[: n - even]
        return out if whole is out else out.copy_(whole)

    return call


# And short where they reduce rows, of which numpy takes one at a time.
EXTREMES = {"max": ("amax", np.maximum), "min": ("amin", np.minimum)}


@functools.cache
def extreme(kind: str) -> Callable[[Any], Any]:
    """The largest or smallest number of each row of a tensor, as an array; nan where there is one.
    """
    import torch

    name, ufunc = EXTREMES[kind]
    function = getattr(torch, name)

    def call(a: Any) -> Any:
        if a.shape[-1] <= tuning.TORCH_ROW_FEW:
            return along(ufunc, a.numpy())
        return function(a, -1, True).numpy()

    return call


@functools.cache
def row_total() -> Callable[[Any], Any]:
    """The sum of each row of a tensor, as an array: in half the time of `sums.total`.

    How a row is added does not depend on how many there are, where its cells are adjacent.
    """
    import torch

    add = torch.sum

    def call(a: Any) -> Any:
        if a.shape[-1] <= tuning.TORCH_ROW_FEW or a.stride(-1) != 1:
            return total(a.numpy())
        return add(a, -1, True).numpy()

    return call


@functools.cache
def tile_function(record: Op) -> Callable[..., Any]:
    """The op's function in torch, of numpy arrays and attributes; it may be given `out=`."""
    function = lowering(record, "torch").function
    assert function is not None and record.torch is not None

    def call(*arrays: Any, out: Any = None, **attrs: Any) -> Any:
        found = function(*arrays, **attrs)
        if out is None:
            return found
        np.copyto(out, found)
        return out

    return call
