"""Steps that are alike as one function: the same bits as written out, compiled once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gradof import tuning
from gradof.codegen.machine.engine import vector_bits
from gradof.codegen.whole.emit import emit_whole
from gradof.codegen.whole.function import WholeExecutable
from gradof.ir.core import Graph
from gradof.ir.parser import parse_graph

pytestmark = pytest.mark.skipif(not vector_bits(), reason="no native code here")

# products, broadcasts, reductions, numbers in registers, checks of indices, and views
LAYER = """  %a{k} : f32[9,20] = mm(%x{k}, %w{k})
  %t{k} : f32[9,20] = tanh(%a{k})
  %m{k} : f32[9,1] = amax[dims=(1,), keepdims=True](%t{k})
  %d{k} : f32[9,20] = sub(%t{k}, %m{k})
  %e{k} : f32[9,20] = exp(%d{k})
  %s{k} : f32[9,1] = sum[dims=(1,), keepdims=True](%e{k})
  %p{k} : f32[9,20] = div(%e{k}, %s{k})
  %n{k} : f32[] = sum[dims=(0, 1), keepdims=False](%p{k})
  %q{k} : f32[9,20] = mul(%p{k}, %n{k})
  %c{k} : i64[9] = in_range[size=9, wraps=False, error='index'](%i{k})
  %r{k} : f32[9,20] = index_select[dim=0](%q{k}, %c{k})
  %v{k} : f32[20,9] = permute[dims=(1, 0)](%r{k})
  %y{k} : f32[20,9] = exp(%v{k})
  %z{k} : f32[9,20] = permute[dims=(1, 0)](%y{k})
  %x{l} : f32[9,20] = add(%z{k}, %x{k})
"""


def layers(count: int) -> Graph:
    params = ", ".join(f"%w{k} : f32[20,20], %i{k} : i64[9]" for k in range(count))
    body = "".join(LAYER.format(k=k, l=k + 1) for k in range(count))
    return parse_graph(
        f"graph f(%x0 : f32[9,20], {params}):\n{body}  return (%x{count}, %n{count - 1})\n"
    )


def executable(graph: Graph) -> WholeExecutable:
    def never() -> Any:
        raise AssertionError("op by op")

    return WholeExecutable(graph, "f", never)


def arrays(count: int) -> list[Any]:
    rng = np.random.default_rng(0)
    found: list[Any] = [rng.standard_normal((9, 20), np.float32)]
    for _ in range(count):
        found += [rng.standard_normal((20, 20), np.float32), rng.integers(0, 9, 9)]
    return found


def test_the_code_does_not_grow_with_layers(monkeypatch: Any) -> None:
    """Of 40 layers there is one line for each call of a step; written out there are hundreds."""

    def loops(count: int) -> tuple[int, int]:
        text = emit_whole(layers(count), vector_bits()).text
        return text.count(" = phi "), text.count("\n")

    assert loops(40)[0] < loops(4)[0] * 5
    per_layer = (loops(40)[1] - loops(10)[1]) / 30
    monkeypatch.setattr(tuning, "ALIKE_LINES", 1 << 30)
    assert (loops(40)[1] - loops(10)[1]) / 30 > 2 * per_layer


def longest_function(text: str) -> int:
    """Lines of the longest one."""
    return max(part.count("\n") for part in text.split("\ndefine "))


def test_no_function_grows_with_layers() -> None:
    """One block of all calls of a deep network takes LLVM longer than its parts."""
    params = ", ".join(f"%w{k} : f32[20,20]" for k in range(200))
    body = "".join(
        f"  %a{k} : f32[9,20] = mm(%x{k}, %w{k})\n"
        f"  %t{k} : f32[9,20] = tanh(%a{k})\n"
        f"  %m{k} : f32[9,1] = amax[dims=(1,), keepdims=True](%t{k})\n"
        f"  %x{k + 1} : f32[9,20] = sub(%t{k}, %m{k})\n" for k in range(200)
    )  # fmt: skip
    graph = parse_graph(f"graph f(%x0 : f32[9,20], {params}):\n{body}  return (%x200)\n")
    text = emit_whole(graph, vector_bits()).text
    assert "call void @part5(" in text
    assert longest_function(text) < 5 * tuning.ALIKE_CALLS
    given = [np.random.default_rng(0).standard_normal(n, np.float32) for n in [(9, 20)]]
    given += [np.eye(20, dtype=np.float32)] * 200
    (mine,) = executable(graph).function(*given)
    expected = given[0]
    for _ in range(200):
        expected = np.tanh(expected)
        expected = expected - expected.max(1, keepdims=True)
    np.testing.assert_allclose(mine, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("count", [2, 5])
@pytest.mark.parametrize("least", [1, 8])
@pytest.mark.parametrize("together", [1, 3, 64])
def test_the_same_bits_as_written_out(
    count: int, least: int, together: int, monkeypatch: Any
) -> None:
    graph, given = layers(count), arrays(count)
    monkeypatch.setattr(tuning, "ALIKE_LINES", least)
    monkeypatch.setattr(tuning, "ALIKE_CALLS", together)
    run = executable(graph)
    assert "call void @alike0(" in run.source
    monkeypatch.setattr(tuning, "ALIKE_LINES", 1 << 30)
    other = executable(graph)
    assert "@alike" not in other.source
    for mine, expected in zip(run.function(*given), other.function(*given), strict=True):
        assert np.isfinite(mine).all() and np.array_equal(mine, expected)


def test_an_index_out_of_range_is_still_found() -> None:
    graph, given = layers(3), arrays(3)
    given[4][2] = 9
    with pytest.raises(AssertionError, match="op by op"):
        executable(graph).function(*given)


def test_copies_into_results_are_alike() -> None:
    """Results that are views of what was computed: one loop for all, written out nowhere."""
    lines = "".join(
        f"  %a{k} : f32[8,64] = exp(%x{k})\n"
        f"  %s{k} : f32[1,64] = sum[dims=(0,), keepdims=True](%a{k})\n"
        f"  %y{k} : f32[64] = reshape[shape=(64,)](%s{k})\n" for k in range(6)
    )  # fmt: skip
    params = ", ".join(f"%x{k} : f32[8,64]" for k in range(6))
    results = ", ".join(f"%y{k}" for k in range(6))
    run = executable(parse_graph(f"graph f({params}):\n{lines}  return ({results})\n"))
    assert "loop" not in run.source[run.source.index("@whole("):]
    given = [np.full((8, 64), k / 8, np.float32) for k in range(6)]
    for mine, x in zip(run.function(*given), given, strict=True):
        np.testing.assert_allclose(mine, np.exp(x.astype(np.float64)).sum(0), rtol=1e-5)
