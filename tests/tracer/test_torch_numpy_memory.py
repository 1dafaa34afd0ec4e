"""Tensors that a torch function makes of numpy arrays: constants, while the arrays stay the same.

What changes the array's memory, or hands it to the caller, runs eagerly.
"""

from __future__ import annotations

import dataclasses
import functools
import tempfile
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest
import torch
import torch.utils._pytree as pytree

import gradof
from gradof.errors import EagerWarning, RetraceWarning

Tensor = torch.Tensor
GENERATOR: np.random.Generator = np.random.default_rng(0)


class State:
    """Arrays that the functions below read."""

    def __init__(self) -> None:
        self.table = np.arange(9.0).reshape(3, 3)
        self.kept: list[Any] = [np.full(3, 2.0)]
        self.buffer = bytearray(np.ones(3).tobytes())
        self.frame = pd.DataFrame({"a": [1.0, 2.0, 3.0]})
        with tempfile.NamedTemporaryFile() as file:
            np.ones(3).tofile(file)
            self.mapped = np.memmap(file.name, np.float64, "r+")

    @property
    def doubled(self) -> Any:
        return self.table * 2


Function = Callable[[State, Tensor], Any]
READS: dict[str, Function] = {
    "from_numpy": lambda s, x: (x.sin() * torch.from_numpy(s.table)).sum(),
    "tensor": lambda s, x: (x.sin() * torch.tensor(s.table)).sum(),
    "as_tensor": lambda s, x: (x.sin() * torch.as_tensor(s.table, dtype=torch.float64)).sum(),
    "asarray": lambda s, x: (x.sin() * torch.asarray(s.table)).sum(),
    "row": lambda s, x: (x.sin() * torch.from_numpy(s.table[1])).sum(),
    "transposed": lambda s, x: (x.sin() @ torch.from_numpy(s.table.T)).sum(),
    "list": lambda s, x: (x.sin() * torch.stack([torch.tensor(a) for a in s.kept * 3])).sum(),
    "new_tensor": lambda s, x: (x.sin() * x.new_tensor(s.table)).sum(),
    "copy written": lambda s, x: (x.sin() * torch.tensor(s.table).mul_(2)).sum(),
    "made of it": lambda s, x: (x.sin().sum(), torch.from_numpy(s.table) * 2)[0],
    "mapped": lambda s, x: (x.sin() * torch.from_numpy(s.mapped)).sum(),
    "frame": lambda s, x: (x.sin() * torch.tensor(s.frame["a"].to_numpy())).sum(),
}


def _written_after(s: State, x: Tensor) -> Any:
    made = np.ones(3)
    shared = torch.from_numpy(made)
    made[0] = s.table[1, 1]
    return (x.sin() * shared).sum()


@functools.lru_cache
def _cached(n: int) -> Any:
    return np.arange(float(n))


@functools.lru_cache
def _cached_pair(n: int) -> Any:
    return n, np.arange(float(n))


def _of_table(table: Any, x: Tensor) -> Any:
    return (x.sin() * torch.from_numpy(table)).sum()


# Arrays that are made inside, of others whose elements are guarded.
MADE: dict[str, Function] = {
    "of numpy's": lambda s, x: (x.sin() * torch.from_numpy(np.sqrt(s.table) + np.eye(3))).sum(),
    "property": lambda s, x: (x.sin() * torch.as_tensor(s.doubled)).sum(),
    "places": lambda s, x: x.sin()[torch.from_numpy(np.nonzero(s.table[:, 0])[0])].sum(),
    "copied": lambda s, x: (x.sin() * torch.tensor(data=s.table.copy())).sum(),
    "stacked": lambda s, x: (x.sin() * torch.tensor(np.stack(s.kept))).sum(),
    "list of made": lambda s, x: (x.sin() * torch.tensor([s.table[0], s.table[1] * 2])[1]).sum(),
}
# Others may be other ones at the next call.
UNKNOWN: dict[str, Function] = {
    "bytes": lambda s, x: (x.sin() * torch.frombuffer(s.buffer, dtype=torch.float64)).sum(),
    "written after": _written_after,
    "cached": lambda s, x: (x.sin() * torch.from_numpy(_cached(3))).sum(),
    "of a cached tuple": lambda s, x: (x.sin() * torch.from_numpy(_cached_pair(3)[1])).sum(),
}


def _setitem(s: State, x: Tensor) -> Any:
    shared = torch.from_numpy(s.table)
    shared[0, 1] = 7.0
    return (x.sin() * shared).sum()


def _of_a_view(s: State, x: Tensor) -> Any:
    shared = torch.from_numpy(s.table)
    shared.view(-1)[2:].add_(1.0)
    return (x.sin() * shared).sum()


def _of_a_result(s: State, x: Tensor) -> Any:
    shared = torch.from_numpy(s.table)
    torch.add(shared, 1.0, out=shared)
    return (x.sin() * shared).sum()


@dataclasses.dataclass
class Found:
    """A result with a tensor in it."""

    loss: Any
    part: Any


def _found(s: State, x: Tensor) -> Any:
    return Found(x.sin().sum(), torch.from_numpy(s.table)[0])


def _array_written(s: State, x: Tensor) -> Any:
    shared = torch.from_numpy(s.table)
    s.table *= 2.0
    return (x.sin() * shared).sum()


def _stored(s: State, x: Tensor) -> Any:
    s.kept.append(torch.from_numpy(s.table))
    return x.sin().sum()


SHARED: dict[str, Function] = {
    "in place": lambda s, x: (x.sin() * torch.from_numpy(s.table).mul_(2)).sum(),
    "setitem": _setitem, "view": _of_a_view, "out": _of_a_result, "stored": _stored,
    "result": lambda s, x: (x.sin().sum(), torch.from_numpy(s.table))[0:2],
    "part of it": lambda s, x: {"loss": x.sin().sum(), "row": torch.as_tensor(s.table)[1]},
    "of an object": _found,
    "detached": lambda s, x: (x.sin() * torch.as_tensor(s.table).detach().add_(1.0)).sum(),
}  # fmt: skip
DRAWS: dict[str, Function] = {
    "global": lambda s, x: (x.sin() * torch.from_numpy(np.random.randn(3))).sum(),
    "generator": lambda s, x: (x.sin() * torch.tensor(GENERATOR.standard_normal(3))).sum(),
}


def _change(s: State, call: int) -> None:
    """What is done to the arrays between two calls."""
    if call == 2:
        s.table[1, 1] += 0.5
        s.kept[0][1] = 9.0
        s.buffer[:] = np.full(3, 4.0).tobytes()
        s.frame.loc[0, "a"] = 5.0
        s.mapped[0] = 7.0
        _cached(3)[0] = _cached_pair(3)[1][0] = 5.0
    if call == 4:
        s.table = s.table + 1.0
        s.kept[0] = np.full(3, 7.0)


def _runs(fn: Function, compiled: bool) -> tuple[list[Any], Any]:
    """Values, gradients and the state after each of six calls."""
    global GENERATOR
    GENERATOR = np.random.default_rng(0)
    np.random.seed(0)
    _cached.cache_clear()
    _cached_pair.cache_clear()
    state = State()
    call: Any = lambda x: fn(state, x)  # noqa: E731
    if compiled:
        call = gradof.differentiate(call)
    found = []
    for i in range(6):
        _change(state, i)
        x = torch.arange(9.0, dtype=torch.float64).reshape(3, 3).requires_grad_()
        out = call(x)
        parts = [out.loss, out.part] if isinstance(out, Found) else pytree.tree_leaves(out)
        (slope,) = torch.autograd.grad(parts[0], x)
        found += [*(p.detach().clone() for p in parts), slope, torch.tensor(state.table)]
        for shared in (*parts[1:], *state.kept[1:]):
            shared.add_(1.0)  # as the caller may: the array changes, too
    return found, call


def _same(fn: Function) -> Any:
    want, _ = _runs(fn, compiled=False)
    have, compiled = _runs(fn, compiled=True)
    for h, w in zip(have, want, strict=True):
        torch.testing.assert_close(h, w)
    return compiled.cache_info()


@pytest.mark.filterwarnings("ignore:Creating a tensor from a list")
@pytest.mark.parametrize("name", [*READS, *MADE])
def test_what_is_read_is_a_constant_until_it_changes(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RetraceWarning)
        info = _same({**READS, **MADE}[name])
    assert info.eager_runs == 0 and info.misses <= 3 and info.backward_runs == 6


@pytest.mark.parametrize("name", SHARED)
def test_what_is_shared_with_the_caller_runs_eagerly(name: str) -> None:
    with pytest.warns(EagerWarning, match="shares its memory with a numpy array"):
        assert _same(SHARED[name]).eager_runs == 6


@pytest.mark.parametrize("name", UNKNOWN)
def test_an_array_that_may_be_another_one_runs_eagerly(name: str) -> None:
    with pytest.warns(EagerWarning, match="that is made inside|is no argument"):
        assert _same(UNKNOWN[name]).eager_runs == 6


def _by_default(x: Tensor, table: Any = np.ones(3)) -> Any:  # noqa: B008
    return _of_table(table, x)


def test_an_array_of_a_partial_or_a_default_is_a_constant_until_it_changes() -> None:
    table = np.ones(3)
    for fn in functools.partial(_of_table, table), _by_default:
        compiled = gradof.differentiate(fn, strict=True)
        for i in range(3):
            x = torch.ones(3, dtype=torch.float64, requires_grad=True)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RetraceWarning)
                torch.testing.assert_close(compiled(x), fn(x))
            (table if fn is not _by_default else _by_default.__defaults__[0])[i] += 1.0  # type: ignore[index]
        assert compiled.cache_info().misses == 3


def test_large_arrays_run_eagerly() -> None:
    large = np.ones((3, 100_000))
    compiled = gradof.differentiate(lambda x: (x.sin() * torch.from_numpy(large)[:, 0]).sum())
    x = torch.ones(3, dtype=torch.float64, requires_grad=True)
    with pytest.warns(EagerWarning, match="2,400,000 bytes of arrays"):
        first = compiled(x)
    large[0] = 2.0
    torch.testing.assert_close(compiled(x) - first, x[0].sin())
    assert compiled.cache_info().eager_runs == 2


def test_an_array_that_is_written_to_runs_eagerly() -> None:
    with pytest.warns(EagerWarning):
        assert _same(_array_written).eager_runs == 6


@pytest.mark.parametrize("name", DRAWS)
def test_what_numpy_draws_is_no_constant(name: str) -> None:
    with pytest.warns(EagerWarning, match="made inside|random numbers are drawn"):
        assert _same(DRAWS[name]).eager_runs == 6


def test_a_file_is_no_constant(tmp_path: Any) -> None:
    path = str(tmp_path / "numbers")
    compiled = gradof.differentiate(lambda x: (x * torch.from_numpy(np.fromfile(path))).sum())
    for scale in (1.0, 2.0):
        np.full(3, scale).tofile(path)
        x = torch.ones(3, dtype=torch.float64, requires_grad=True)
        if scale == 1.0:
            with pytest.warns(EagerWarning, match=r"np\.fromfile is called"):
                value = compiled(x)
        else:
            value = compiled(x)
        assert value.item() == 3 * scale


def test_what_torch_makes_of_lists_is_no_array_of_numpys() -> None:
    def fn(x: Tensor) -> Any:
        made, empty = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([])
        written = torch.tensor([[1.0], [2.0]]).mul_(3.0)
        return (x * made).sum() + written.sum(), made, empty, written[0]

    compiled = gradof.differentiate(fn, strict=True)
    for _ in range(3):
        x = torch.ones(3, requires_grad=True)
        for have, want in zip(compiled(x), fn(x), strict=True):
            torch.testing.assert_close(have, want)
    assert compiled.cache_info().misses == 1


TABLE = np.arange(3.0)


def _halved(x: Tensor) -> Any:
    y = x * torch.from_numpy(TABLE)
    while (y * y).sum().item() > 1.0:
        y = y * 0.5
    return y.sum()


def test_beside_a_loop_that_a_value_ends() -> None:
    compiled = gradof.differentiate(_halved, strict=True)
    for scale in (1.0, 2.0, 5.0, 9.0, 20.0, 70.0):
        x = torch.full((3,), scale, dtype=torch.float64, requires_grad=True)
        have, want = (torch.autograd.grad(f(x), x)[0] for f in (compiled, _halved))
        torch.testing.assert_close(have, want)
    assert compiled.cache_info().misses == 1
