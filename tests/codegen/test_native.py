"""Native code against whole numpy arrays: every op, every shape of loop, any number of threads."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradof import tuning
from gradof.codegen import compile_graph
from gradof.codegen.fusion.fuse import fuse
from gradof.codegen.llvm.kernel import NativeKernel, is_native
from gradof.codegen.llvm.vectors import supports
from gradof.codegen.loops.interpret import run_nest
from gradof.codegen.loops.ir import LoopNest
from gradof.codegen.loops.lower import schedule
from gradof.codegen.machine import engine
from gradof.codegen.targets.choose import in_native, kernel_maker
from gradof.codegen.tiles.kernel import TileKernel
from gradof.errors import CodegenError, ConfigError, InferenceError
from gradof.ir.attrs import to_numpy_dtype
from gradof.ir.parser import parse_graph
from gradof.ir.types import BOOL, F32, F64, I64, DType, TensorType, dtype
from gradof.ops.registry import all_ops, get_op
from gradof.passes.pipeline import CLEAN_UP, run_passes

DTYPES = [F32, F64, I64, dtype("i32"), BOOL]
EDGES = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-30, -1e-30, 1e30, 88.0, -104.0, 0.5]
ULPS = 8  # libmvec has 4, numpy a few of its own
# An op the domain of whose table is not where its edges are
FAR = {"sin": 1e4, "cos": 1e4, "tan": 1e4}


def nests(text: str) -> list[LoopNest]:
    graph = parse_graph(text)
    run_passes(graph, ("expand-composites", *CLEAN_UP))
    together = fuse(graph, lambda node: True, lambda group: True)
    return [schedule(n) for n in together.nodes() if n.kind == "FusionGroup"]


def sample(op: str, dt: DType, position: int, size: int = 61) -> Any:
    rng = np.random.default_rng(position)
    if dt == BOOL:
        return rng.random(size) < 0.5
    if not dt.is_float:
        return rng.integers(-9, 9, size).astype(to_numpy_dtype(dt))
    domain = get_op(op).domain
    low, high = domain[min(position, len(domain) - 1)]
    values = rng.uniform(low, high, size).astype(to_numpy_dtype(dt))
    edges = np.array(EDGES, values.dtype)
    places = rng.permutation(len(edges))
    values[: len(edges)] = edges[places]
    values[np.abs(values) > FAR.get(op, np.inf)] = np.nan
    return values


@np.errstate(all="ignore")
def ulps(have: Any, want: Any, beside: Sequence[Any] = ()) -> float:
    """The largest difference in ulps of the wanted number, or of the largest of those beside it."""
    same = (have == want) | (np.isnan(have) & np.isnan(want))
    if same.all():
        return 0.0
    gap = np.abs(have.astype(np.float64) - want.astype(np.float64))[~same]
    top = np.maximum.reduce([np.abs(x) for x in (want, *beside)])
    space = np.spacing(np.maximum(top, np.finfo(want.dtype).tiny)).astype(float)[~same]
    return float(np.max(gap / space))


ELSEWHERE = {"cast", "where", "clamp", "alias", "detach", "copy"}  # below, or no work
CANCELS = {"logaddexp2"}  # near 0, where two powers add up to 1
ATTRS = {"softplus": {"beta": 1.5, "threshold": 20.0}}


def attrs_of(op: str) -> str:
    """The attributes that an op is tested with, as the IR has them."""
    given = ", ".join(f"{name}={value}" for name, value in ATTRS.get(op, {}).items())
    return f"[{given}]" if given else ""


ELEMENTWISE = sorted(
    {o.name for o in all_ops() if "elementwise" in o.traits and not o.is_composite} - ELSEWHERE
)
PREDICATES = {"eq", "ne", "lt", "le", "gt", "ge"}


def is_defined(op: str, dt: DType) -> bool:
    """Whether the op takes operands of the dtype."""
    record = get_op(op)
    try:
        record.infer([_tensor(dt)] * len(record.inputs), ATTRS.get(op, dict.fromkeys(record.attrs)))
    except InferenceError:
        return False
    return True


def _tensor(dt: DType) -> Any:
    return TensorType(dt, (61,))


ROWS = [
    (op, dt) for op in ELEMENTWISE for dt in DTYPES
    if is_defined(op, dt)
    and supports(op, [dt], BOOL if op in PREDICATES else dt, ATTRS.get(op, {}))
]  # fmt: skip


@pytest.mark.parametrize(("op", "dt"), ROWS, ids=lambda v: str(v))
def test_every_op_is_numpys(op: str, dt: DType) -> None:
    record = get_op(op)
    names = [f"%x{k}" for k in range(len(record.inputs))]
    result = record.infer([_tensor(dt)] * len(names), ATTRS.get(op, {}))[0]
    params = ", ".join(f"{n} : {dt}[61]" for n in names)
    (nest,) = nests(f"graph f({params}):\n"
                    f" %y : {result} = {op}{attrs_of(op)}({', '.join(names)})\n"
                    " return (%y)")  # fmt: skip
    assert is_native(nest)
    args = [sample(op, dt, k) for k in range(len(names))]
    (have,), (want,) = NativeKernel(nest)(*args), run_nest(nest, args)
    assert have.dtype == want.dtype
    if want.dtype.kind == "f":
        assert ulps(have, want, args if op in CANCELS else ()) <= ULPS, op
        np.testing.assert_array_equal(np.isnan(have), np.isnan(want))
    else:
        np.testing.assert_array_equal(have, want)


PAIRS = [(a, b) for a in DTYPES for b in DTYPES if a != b]


@pytest.mark.parametrize(("source", "target"), PAIRS, ids=str)
def test_casts(source: DType, target: DType) -> None:
    (nest,) = nests(f"graph f(%x : {source}[40]):\n %y : {target}[40] = cast[dtype={target}](%x)\n"
                    " return (%y)")  # fmt: skip
    x = np.linspace(-7.6, 7.6, 40).astype(to_numpy_dtype(source))
    (have,), (want,) = NativeKernel(nest)(x), run_nest(nest, [x])
    np.testing.assert_array_equal(have, want)


CHAINS = {
    "selection": """graph f(%x : f32[6,7], %m : bool[6,7]):
      %a : f32[6,7] = clamp[low=-0.5, high=None](%x)
      %z : float = Constant[value=2.5]()
      %b : f32[6,7] = where(%m, %a, %z)
      %c : f32[6,7] = where(%m, %z, %b)
      return (%b, %c)""",
    "softmax": """graph f(%x : f32[6,7]):
      %0 : f32[6,1] = amax[dims=(1,), keepdims=True](%x)
      %1 : f32[6,7] = sub(%x, %0)
      %2 : f32[6,7] = exp(%1)
      %3 : f32[6,1] = sum[dims=(1,), keepdims=True](%2)
      %4 : f32[6,7] = div(%2, %3)
      %5 : f32[6,7] = mul(%4, %x)
      %6 : f32[6] = sum[dims=(1,), keepdims=False](%5)
      return (%4, %3, %6)""",
    "folds": """graph f(%x : f32[6,7], %w : f32[7]):
      %0 : f32[6,7] = mul(%x, %w)
      %1 : f32[7] = sum[dims=(0,), keepdims=False](%0)
      %2 : f32[6,1] = amin[dims=(1,), keepdims=True](%0)
      %3 : f32[6,7] = sub(%0, %2)
      %4 : f32[] = sum[dims=(0, 1), keepdims=False](%3)
      %5 : f32[1,7] = amax[dims=(0,), keepdims=True](%0)
      return (%1, %3, %4, %5)""",
    "flat sums": """graph f(%x : f64[42], %y : f64[42]):
      %0 : f64[42] = mul(%x, %y)
      %1 : f64[42] = tanh(%0)
      return (%1, %0)""",
    "three dims": """graph f(%x : f32[2,3,7], %w : f32[3,1], %s : f32[]):
      %0 : f32[2,3,7] = mul(%x, %w)
      %1 : f32[2,3,7] = add(%0, %s)
      %2 : f32[2,3] = sum[dims=(2,), keepdims=False](%1)
      %3 : f32[7] = sum[dims=(0, 1), keepdims=False](%1)
      return (%1, %2, %3)""",
    "two columns": """graph f(%x : f32[4,3,7]):
      %0 : f32[4,1,1] = sum[dims=(1, 2), keepdims=True](%x)
      %1 : f32[4,3,7] = div(%x, %0)
      return (%1)""",
}


def arrays_for(nest: LoopNest, sizes: dict[int, int], dtype_: Any = None) -> list[Any]:
    rng = np.random.default_rng(11)
    found = []
    for b in nest.inputs:
        shape = [sizes.get(n, n) for n in b.shape]
        dt = to_numpy_dtype(b.dtype)
        x = rng.standard_normal(shape)
        found.append(x > 0 if dt.kind == "b" else x.astype(dt))
    return found


def agree(nest: LoopNest, arrays: list[Any]) -> None:
    assert is_native(nest)
    have, want = NativeKernel(nest)(*arrays), run_nest(nest, arrays)
    for h, w in zip(have, want, strict=True):
        assert h.shape == w.shape and h.dtype == w.dtype and h.flags.writeable
        np.testing.assert_allclose(h, w, rtol=1e-5, atol=1e-5 * np.abs(w).max(initial=1e-3))


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("columns", [1, 7, 16, 37, 64, 4099])
def test_loops_of_every_length(name: str, columns: int) -> None:
    for nest in nests(CHAINS[name]):
        agree(nest, arrays_for(nest, {7: columns, 42: columns}))


@pytest.mark.parametrize("name", CHAINS)
def test_strides(name: str) -> None:
    for nest in nests(CHAINS[name]):
        plain = arrays_for(nest, {})
        agree(nest, [np.asfortranarray(a) for a in plain])
        agree(nest, [np.repeat(a, 2, -1)[..., ::2] if a.ndim else a for a in plain])
        agree(nest, [a[..., ::-1] if a.ndim else a for a in plain])
        agree(nest, [np.broadcast_to(a[..., :1], a.shape) if a.ndim else a for a in plain])
        agree(nest, [np.frombuffer(b"\0" + a.tobytes(), a.dtype, offset=1).reshape(a.shape)
                     for a in plain])  # fmt: skip


@pytest.mark.parametrize("name", CHAINS)
def test_any_number_of_threads_gives_the_same_bits(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "NATIVE_CHUNK", 64)
    monkeypatch.setattr(tuning, "NATIVE_THREAD", 1)
    for nest in nests(CHAINS[name]):
        arrays = arrays_for(nest, {6: 50, 4: 50, 7: 37, 42: 999})
        run = NativeKernel(nest)
        results = []
        for threads in ("1", "2", "3", "4", "4"):
            monkeypatch.setenv("GRADOF_NUM_THREADS", threads)
            results.append(run(*arrays))
        for other in results[1:]:
            for a, b in zip(results[0], other, strict=True):
                assert a.tobytes() == b.tobytes()


def test_sums_are_as_accurate_as_they_can_be_in_float32() -> None:
    (nest,) = nests("graph f(%x : f32[2,7]):\n %s : f32[2] = sum[dims=(1,), keepdims=False](%x)\n"
                    " return (%s)")  # fmt: skip
    x = np.random.default_rng(0).random((2, 1 << 20)).astype(np.float32)
    (have,) = NativeKernel(nest)(x)
    exact = x.sum(1, dtype=np.float64)
    assert np.abs(have / exact - 1).max() < 2e-6


def test_kernels_of_other_sizes_are_the_same_code(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    compile_ = engine._compile

    def counted(text: str, effort: engine.Effort) -> Any:
        made.append(text)
        return compile_(text, effort)

    monkeypatch.setattr(engine, "_compile", counted)
    kept: dict[Any, Any] = {}
    monkeypatch.setattr(engine, "_ENGINES", kept)
    engine._KEPT.append(kept)  # what runs the chunks is called as long as the process runs
    for n in (8, 9, 4096):
        (nest,) = nests(f"graph f(%x : f32[{n}]):\n %y : f32[{n}] = cosh(%x)\n return (%y)")
        NativeKernel(nest)(np.ones(n, np.float32))
    assert sum("@kernel(" in text for text in made) == 1


def test_what_is_not_native_goes_to_tiles() -> None:
    graph = parse_graph("graph f(%x : f64[99999]):\n %y : f64[99999] = j0(%x)\n"
                        " %z : f64[99999] = mul(%y, %x)\n return (%z)")  # fmt: skip
    assert [in_native(n) for n in graph.nodes()] == [False, True]
    x = np.linspace(0, 9, 99999)
    have = compile_graph(graph, backend="native")(x)[0]
    np.testing.assert_allclose(have, compile_graph(graph, backend="numpy")(x)[0], rtol=1e-13)


def test_without_llvmlite_tiles_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llvmlite", None)
    engine.status.cache_clear()
    try:
        assert engine.vector_bits() == 0 and "gradof[native]" in engine.status()[1]
        assert kernel_maker("auto") is TileKernel
        with pytest.raises(CodegenError, match="llvmlite is not installed"):
            kernel_maker("native")
    finally:
        engine.status.cache_clear()


def test_settings_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = parse_graph("graph f(%x : f32[3]):\n %y : f32[3] = exp(%x)\n return (%y)")
    monkeypatch.setenv("GRADOF_BACKEND", "cuda")
    with pytest.raises(ConfigError, match="GRADOF_BACKEND is 'cuda'"):
        compile_graph(graph)
    monkeypatch.setenv("GRADOF_NUM_THREADS", "none")
    (nest,) = nests("graph f(%x : f32[3]):\n %y : f32[3] = exp(%x)\n return (%y)")
    with pytest.raises(ConfigError, match="GRADOF_NUM_THREADS"):
        NativeKernel(nest)(np.ones(3, np.float32))


def test_importing_gradof_does_not_load_llvmlite() -> None:
    code = "import sys, gradof, numpy as np; gradof.grad(lambda x: np.sum(x * x))(np.ones(3)); " \
           "assert 'llvmlite' not in sys.modules"  # fmt: skip
    root = Path(__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": str(root)}
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root, env=env)
