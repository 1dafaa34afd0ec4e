"""The index vectors of TorchScript's autodiff tests, held to the digit, and the numbers behind."""

from __future__ import annotations

import numpy as np
import pytest

from gradof.autodiff.differentiate import differentiate
from gradof.autodiff.gradient import Gradient
from gradof.autodiff.zeros import specialize_autograd_zero
from gradof.ir.parser import parse_graph
from gradof.testing.filecheck import FileCheck
from tests.autodiff.run import Array, gradients, run_f, sum_to

# c = a * b * a + b
FIRST = """graph f(%a : f32[*], %b : f32[*]):
  %ab : f32[*] = mul(%a, %b)
  %aba : f32[*] = mul(%ab, %a)
  %c : f32[*] = add(%aba, %b)
  return (%c)
"""
# d = b * b + b;  e = (d + a) * a + b
SECOND = """graph f(%a : f32[*], %b : f32[*]):
  %bb : f32[*] = mul(%b, %b)
  %d : f32[*] = add(%bb, %b)
  %da : f32[*] = add(%d, %a)
  %daa : f32[*] = mul(%da, %a)
  %e : f32[*] = add(%daa, %b)
  return (%d, %e)
"""
SHAPES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((2, 3), (2, 3)),
    ((3,), (2, 3)),
    ((2, 3), (3,)),
    ((), (2, 3)),
    ((2, 1), (1, 3)),
    ((4, 1, 3), (2, 1)),
    ((0, 3), (3,)),
    ((), ()),
]


def first() -> Gradient:
    return differentiate(parse_graph(FIRST))


def second() -> Gradient:
    return differentiate(parse_graph(SECOND), [True, False])


def test_vectors_of_the_first_graph() -> None:
    gradient = first()
    assert gradient.f_real_outputs == 1
    assert gradient.df_input_captured_inputs == [0, 1]
    assert gradient.df_input_captured_outputs == [1, 2, 3, 4, 5, 6, 7]
    assert gradient.df_input_vjps == [0, 1]
    assert gradient.df_output_vjps == [0, 1]


def test_text_of_the_first_graph() -> None:
    gradient = first()
    FileCheck(gradient.f).count("= mul(", 2).check("= size(").check("= add(").check("return")
    FileCheck(gradient.f).count("= mul(", 2, exactly=True)
    FileCheck(gradient.f).count("= add(", 1, exactly=True)
    df = FileCheck(gradient.df).count("GradOf[name='add']", 1)
    df.check_not("GradOf[name='add']").count("GradOf[name='mul']", 2)
    df.check_not("GradOf").count("AutogradAdd", 2, exactly=True).check_not("AutogradZero")


def test_vectors_of_the_second_graph() -> None:
    gradient = second()
    assert gradient.f_real_outputs == 2
    assert gradient.df_input_vjps == [1, 2]
    assert gradient.df_output_vjps == [0]
    assert gradient.df_input_captured_inputs == [0]
    assert gradient.df_input_captured_outputs == [2, 3, 4, 5, 6]


def test_text_of_the_second_graph() -> None:
    gradient = second()
    FileCheck(gradient.df).count("GradOf[name='mul']", 1, exactly=True)
    FileCheck(gradient.df).check_not("AutogradZero")
    assert [v.hint for v in gradient.df.inputs[:4]] == ["de", "dda", "a", "da"]


def test_dtypes_need_no_flags() -> None:
    assert str(differentiate(parse_graph(FIRST), [True, True])) == str(first())


def draw(
    seed: int, a_shape: tuple[int, ...], b_shape: tuple[int, ...]
) -> tuple[np.random.Generator, list[Array]]:
    rng = np.random.default_rng(seed)
    return rng, [rng.normal(size=a_shape), rng.normal(size=b_shape)]


@pytest.mark.parametrize(("a_shape", "b_shape"), SHAPES)
def test_numbers_of_the_first_graph(a_shape: tuple[int, ...], b_shape: tuple[int, ...]) -> None:
    gradient = first()
    rng, (a, b) = draw(1, a_shape, b_shape)
    values = run_f(gradient, [a, b])
    np.testing.assert_allclose(values[0], a * b * a + b, rtol=1e-14)
    np.testing.assert_array_equal(values[1], a * b)  # the temporary
    g, v = (rng.normal(size=values[0].shape) for _ in range(2))
    got = gradients(gradient, [a, b], {0: g})
    one = np.ones_like(g)
    np.testing.assert_allclose(got[0], sum_to(2 * a * b * g, a_shape), rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(got[1], sum_to((a * a + one) * g, b_shape), rtol=1e-10, atol=1e-14)
    # The temporary's own cotangent adds the gradient of a * b.
    both = gradients(gradient, [a, b], {0: g, 1: v})
    want = got[0] + sum_to(b * v, a_shape), got[1] + sum_to(a * v, b_shape)
    np.testing.assert_allclose(both[0], want[0], rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(both[1], want[1], rtol=1e-10, atol=1e-14)
    assert (both[0].shape, both[1].shape) == (a_shape, b_shape)


@pytest.mark.parametrize(("a_shape", "b_shape"), SHAPES)
def test_numbers_of_the_second_graph(a_shape: tuple[int, ...], b_shape: tuple[int, ...]) -> None:
    gradient = second()
    rng, (a, b) = draw(2, a_shape, b_shape)
    values = run_f(gradient, [a, b])
    d = b * b + b
    np.testing.assert_allclose(values[0], d, rtol=1e-14)
    np.testing.assert_allclose(values[1], (d + a) * a + b, rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(values[2], d + a, rtol=1e-14)
    g, v = (rng.normal(size=values[1].shape) for _ in range(2))
    got = gradients(gradient, [a, b], {1: g})
    np.testing.assert_allclose(got[0], sum_to((d + 2 * a) * g, a_shape), rtol=1e-10, atol=1e-14)
    only = gradients(gradient, [a, b], {2: v})
    np.testing.assert_allclose(only[0], sum_to(v, a_shape), rtol=1e-10, atol=1e-14)
    assert set(got) == {0}  # b needs no gradient


@pytest.mark.parametrize("gradient", [first(), second()], ids=["first", "second"])
def test_without_any_cotangent_nothing_is_left(gradient: Gradient) -> None:
    special = specialize_autograd_zero(gradient.df, [False] * len(gradient.df_input_vjps))
    assert special.outputs == [] and len(special.graph.block) == 0
