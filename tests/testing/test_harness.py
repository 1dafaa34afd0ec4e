"""The harness finds what is wrong, names it, and leaves the caller's data alone."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import gradof
from gradof.errors import GradientMismatchError, InputError, LeafTypeError
from gradof.ir.opinfo import OPS
from gradof.ops.expr import Expr, F
from gradof.ops.registry import get_op
from gradof.runtime.function import Differentiated
from gradof.testing import Report, Row, check, torch_check
from gradof.testing.closeness import noise


@contextmanager
def planted(name: str, **changes: Any) -> Iterator[None]:
    """An op statement with some fields replaced, for a while."""
    good = get_op(name)
    OPS[name] = dataclasses.replace(good, **changes)
    try:
        yield
    finally:
        OPS[name] = good


def loss(x: Tensor, w: Tensor, y: Tensor) -> Tensor:
    """Three ops on three lines, so that lines tell them apart."""
    h = torch.tanh(x @ w)
    d = h - y
    return (torch.exp(d) * h).mean()


def inputs() -> tuple[Tensor, Tensor, Tensor]:
    """x, w, y; only w requires grad."""
    torch.manual_seed(0)
    return torch.randn(5, 4), torch.randn(4, 3, requires_grad=True), torch.randn(5, 3)


def line_of(fn: Callable[..., Any], text: str) -> str:
    """file:line of the line of `fn` that holds `text`."""
    lines, first = inspect.getsourcelines(fn)
    number = first + next(i for i, line in enumerate(lines) if text in line)
    return f"test_harness.py:{number}"


@pytest.mark.parametrize("order", [1, 2])
def test_right_torch_function(order: int) -> None:
    report = check(loss, inputs(), order=order)
    assert report.ok and not report.culprits
    references = {row.reference for row in report.rows}
    assert references == {"eager", "float64", "finite differences"}
    assert ("second" in str(report)) == (order == 2)


def test_right_numpy_function() -> None:
    def valley(p: Any) -> Any:
        return np.sum(100 * (p[1:] - p[:-1] ** 2) ** 2 + (1 - p[:-1]) ** 2)

    assert check(valley, (np.linspace(-1, 1, 6),), order=2).ok
    single = check(valley, (np.linspace(-1, 1, 6, dtype=np.float32),))
    assert {"gradient of args[0]", "output 0"} == {row.what for row in single.rows}
    assert {row.reference for row in single.rows if "gradient" in row.what} == {
        "float64", "finite differences",
    }  # fmt: skip
    with planted("square", vjp={"x": lambda g, x: g * (2.0 + 1e-2) * x}, reads={"x": ("g", "x")}):
        assert not check(valley, (np.linspace(-1, 1, 6),), raise_on_error=False).ok


WRONG_RULES: list[tuple[str, str, dict[str, Any], str]] = [
    ("tanh", "sign flip", {"x": lambda g, y: -(g * (1.0 - y * y))}, "torch.tanh"),
    ("tanh", "dropped factor", {"x": lambda g: g}, "torch.tanh"),
    ("exp", "dropped cotangent", {"x": lambda g, y: y}, "torch.exp"),
    ("sub", "sign flip", {"a": lambda g: -g, "b": lambda g: -g}, "h - y"),
    ("mul", "swapped operands", {"a": lambda g, a: g * a, "b": lambda g, b: g * b}, "torch.exp"),
    ("mm", "doubled", {"a": lambda g, b: g @ b.mT, "b": lambda g, a: (a * 2.0).mT @ g}, "@ w"),
]


@pytest.mark.parametrize(("name", "what", "vjp", "text"), WRONG_RULES)
def test_wrong_rule_is_found_and_named(
    name: str, what: str, vjp: dict[str, Callable[..., Expr]], text: str
) -> None:
    reads = {k: tuple(inspect.signature(rule).parameters) for k, rule in vjp.items()}
    with planted(name, vjp=vjp, reads=reads):
        report = check(loss, inputs(), raise_on_error=False)
        assert not report.ok, what
        first = report.culprits[0]
        assert first.op == name and line_of(loss, text) in first.loc
        assert "gradient" in first.where
        with pytest.raises(GradientMismatchError, match=f"wrong op: {name}") as error:
            check(loss, inputs())
        assert line_of(loss, text) in str(error.value.loc)


WRONG_LOWERINGS = [("tanh", "np.sinh", "tanh"), ("exp", "np.exp2", "exp")]


@pytest.mark.usefixtures("op_by_op")
@pytest.mark.parametrize(("name", "numpy", "text"), WRONG_LOWERINGS)
def test_wrong_lowering_is_found_and_named(name: str, numpy: str, text: str) -> None:
    with planted(name, numpy=numpy):
        report = check(loss, inputs(), raise_on_error=False)
    assert not report.ok
    assert report.culprits[0].op == name and report.culprits[0].where == "its value"
    assert line_of(loss, f"torch.{text}") in report.culprits[0].loc


def test_wrong_rule_in_numpy() -> None:
    def f(x: Any) -> Any:
        return np.sum(np.sin(x) * x)

    with planted("sin", vjp={"x": lambda g, x: g}, reads={"x": ("g", "x")}):
        report = check(f, (np.linspace(0.1, 2.0, 5),), raise_on_error=False)
    assert not report.ok and report.culprits[0].op == "sin"


def test_wrong_rule_is_named_where_an_operand_is_repeated() -> None:
    with planted("mul", vjp={"a": lambda g, b: g * b, "b": lambda g, a: -g * a},
                 reads={"a": ("g", "b"), "b": ("g", "a")}):  # fmt: skip
        x = torch.randn(3, requires_grad=True)
        report = check(lambda x: (torch.sin(x) * x * x).sum(), (x,), raise_on_error=False)
        square = check(lambda x: torch.mul(x, x), (x,), raise_on_error=False)
    assert not report.ok and report.culprits[0].op == "mul"
    assert not square.ok and square.culprits[0].op == "mul"


def test_missing_gradient_is_wrong() -> None:
    """A rule of None where eager has a gradient is no agreement."""
    with planted("exp", vjp={"x": None}, reads={}):
        x = torch.randn(3, requires_grad=True)
        report = check(lambda x: torch.exp(x).sum() + x.sum(), (x,), raise_on_error=False)
    assert not report.ok


def test_module_is_left_as_it_was() -> None:
    """Parameters, running statistics, gradients, random state and arguments."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Dropout()
    )
    before = copy.deepcopy(net.state_dict())
    x = torch.randn(4, 1, 5, 5)
    kept, random = x.clone(), torch.get_rng_state()
    report = check(lambda images: net(images), (x,))
    assert report.ok and any("random" in note for note in report.notes)
    assert torch.equal(x, kept) and not x.requires_grad
    assert torch.equal(torch.get_rng_state(), random)
    for name, value in net.state_dict().items():
        assert torch.equal(value, before[name]) and value.dtype == before[name].dtype, name
    assert all(p.grad is None for p in net.parameters())


def test_mutated_arguments_are_restored() -> None:
    def f(x: Tensor, buffer: Tensor) -> Tensor:
        buffer.add_(1.0)
        return (x * buffer).sum()

    buffer = torch.ones(3)
    assert check(f, (torch.randn(3, requires_grad=True), buffer)).ok
    assert torch.equal(buffer, torch.ones(3))


def test_decorated_function_is_compared_with_its_original() -> None:
    compiled = gradof.differentiate(loss)
    assert check(compiled, inputs()).ok
    assert compiled.cache_info().backward_runs >= 1


def test_a_function_that_takes_a_gradient_itself() -> None:
    """A force in a loss: its references need history, finite differences among them."""
    weight = torch.tensor([1.5, -0.5], requires_grad=True)

    def loss(x: Tensor) -> Tensor:
        energy = torch.tanh(x * weight).sum()
        (force,) = torch.autograd.grad(energy, x, create_graph=True)
        total: Tensor = force.square().sum() + energy
        return total

    report = check(loss, (torch.tensor([0.3, 0.7], requires_grad=True),), order=2)
    assert report.ok and "along a line" in str(report)


def test_comparison_with_itself_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proof that the runs were ours, and the reference's were not, is asked for."""
    x = torch.randn(3, requires_grad=True)
    with pytest.raises(GradientMismatchError, match="no output depends on an input"):
        check(lambda x: x.detach() * 2.0, (x,))
    with pytest.raises(GradientMismatchError, match="our own f and df did not run"):
        check(lambda x: x, (x,))
    inner = gradof.differentiate(torch.sin)
    monkeypatch.setattr(torch_check, "calling_plain", contextlib.nullcontext)
    with pytest.raises(GradientMismatchError, match="compared with ourselves"):
        check(lambda x: inner(x) * 2.0, (x,))
    monkeypatch.undo()
    monkeypatch.setattr(Differentiated, "__call__", lambda self, *args: self.fn(*args))
    with pytest.raises(GradientMismatchError, match="was not computed by our own f"):
        check(lambda x: torch.sin(x), (x,))


def test_compiled_functions_inside_run_plain_in_the_reference() -> None:
    """A wrong rule is wrong even where the function under test calls compiled code itself."""
    inner = gradof.differentiate(torch.sin)
    net = gradof.differentiate(nn.Sequential(nn.Linear(3, 2), nn.Tanh()))
    x = torch.randn(4, 3, requires_grad=True)
    assert check(lambda x: inner(x) * 2.0, (x,), order=2).ok
    assert check(net, (x,)).ok
    with planted("tanh", vjp={"x": lambda g: g}, reads={"x": ("g",)}):
        assert not check(net, (x,), raise_on_error=False).ok


# --- wrong where no op shows it by itself -------------------------------------------------------


def attention(x: Tensor) -> Tensor:
    """A reduction, a composite, and a product, each on a line of its own."""
    scores = x * 2.0
    p = torch.softmax(scores, dim=1)
    s = p.cumsum(dim=1)
    return (s @ s.T).exp()


@pytest.mark.usefixtures("op_by_op")
@pytest.mark.parametrize(
    ("name", "changes", "text"),
    [
        ("cumsum", {"numpy": "np.cumsum({x}[::-1], axis={dim}, dtype={x}.dtype)", "torch": None},
         "cumsum"),
        ("softmax", {"expand": lambda x, dim: F.exp(x)}, "softmax"),
    ],
)
def test_line_is_named_where_no_op_is_wrong_by_itself(
    name: str, changes: dict[str, Any], text: str
) -> None:
    with planted(name, **changes):
        report = check(attention, (torch.randn(3, 4, requires_grad=True),), raise_on_error=False)
    assert not report.ok
    assert line_of(attention, f".{text}") in report.culprits[0].loc
    assert report.culprits[0].op == name
    assert "held against that line's" in report.culprits[0].where


def test_wrong_lowering_to_torch_is_named() -> None:
    with planted("mm", torch="torch.mul"):  # small products are numpy's
        w, x = torch.randn(80, 80, requires_grad=True), torch.randn(80, 80)
        report = check(lambda w, x: torch.tanh(w @ x), (w, x), raise_on_error=False)
    assert not report.ok and report.culprits[0].op == "mm"


def test_lost_precision_is_named() -> None:
    def f(x: Tensor) -> Tensor:
        return torch.exp(x).sum()

    with planted("exp", numpy="{x}.astype(np.float16).__pow__(0) * np.exp({x}.astype(np.float16))"):
        report = check(f, (torch.randn(9, requires_grad=True),), raise_on_error=False)
    assert not report.ok and report.culprits[0].op == "exp"


# --- no false alarms ----------------------------------------------------------------------------


def cut(x: Tensor) -> Tensor:
    """A gradient cut on purpose, which differences cannot know."""
    return (x.detach() * x).sum()


def fused_attention(x: Tensor) -> Tensor:
    """torch's own has no second derivative."""
    return nn.functional.scaled_dot_product_attention(x, x, x)


def shifted_softmax(x: Tensor) -> Tensor:
    """Its gradient is zero: large terms cancel, and their rounding is left."""
    scores = torch.linspace(-2, 2, 30, dtype=x.dtype).reshape(5, 6)
    return torch.softmax(scores + x, -1) * torch.arange(6.0, dtype=x.dtype)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize(
    ("fn", "x", "note"),
    [
        (cut, torch.tensor([1.0, -2.0]), "on purpose"),
        (torch.relu, torch.zeros(4), None),
        (torch.log, torch.tensor([0.0, 1.0]), "not finite"),
        (torch.sqrt, torch.tensor([0.0, 1.0]), "not finite"),
        (lambda x: torch.tanh(x) * x, torch.linspace(-2, 2, 5).half(), None),
        (lambda x: (x + 1000.0) - 1000.0, torch.linspace(-2, 2, 5), None),
        (shifted_softmax, torch.linspace(-2, 2, 5, dtype=torch.float64).sin()[:, None], None),
        (fused_attention, torch.linspace(-2, 2, 48).view(2, 2, 3, 4).sin(), None),
    ],
)
def test_no_false_alarm(fn: Callable[..., Any], x: Tensor, note: str | None, order: int) -> None:
    report = check(fn, (x.requires_grad_(),), order=order)
    assert report.ok and (note in " ".join(report.notes) if note else not report.notes)
    judged = any(row.reference == "finite differences" for row in report.rows)
    assert judged == (note is None)


def test_a_tie_is_no_noise() -> None:
    """A moved input breaks it: eager's gradient changes by half of itself, not by rounding."""
    tied, broken = np.array([0.5, 0.5, 0.0]), np.array([1.0, 0.0, 0.0])
    assert noise(tied, [tied, broken], 1.0, "float64") == 0.0
    assert noise(np.array([1e-17]), [np.array([-2e-17])], 1.0, "float64") == 3e-17


@pytest.mark.parametrize("order", [1, 2])
def test_no_false_alarm_in_numpy(order: int) -> None:
    assert check(lambda x: np.abs(x).sum(), (np.zeros(3),), order=order).ok
    assert check(lambda x: np.where(x > 0, x, 0 * x).sum(), (np.linspace(-1, 1, 5),), order=order)


# --- what is compared ---------------------------------------------------------------------------


def test_integer_results_are_compared() -> None:
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        return x * 2.0, torch.argmax(x)

    x = torch.tensor([1.0, 3.0, 2.0], requires_grad=True)
    assert check(f, (x,)).ok
    with planted("argmax", numpy="np.argmin({x}, axis={dim}, keepdims={keepdims})"):
        report = check(f, (x,), raise_on_error=False)
    assert [row.what for row in report.rows if not row.ok] == ["output 1"]


def test_a_result_may_be_an_argument() -> None:
    x, w = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    report = check(lambda x, w: (x * w, w), (x, w))
    assert report.ok
    assert any(row.reference == "finite differences" for row in report.rows)


def test_every_op_on_request() -> None:
    report = check(loss, inputs(), per_op=True)
    assert {"mm", "tanh", "sub", "exp", "mul"} <= {row.op for row in report.ops}
    assert not report.culprits
    by_name = {row.op: row for row in report.ops}
    tanh = by_name["tanh"]
    assert line_of(loss, "torch.tanh") in tanh.loc and line_of(loss, "torch.tanh") in str(report)
    assert tanh.eager is not None and tanh.float64 is not None
    assert [name for name, _ in by_name["mul"].backward] == ["a", "b"]
    assert not check(loss, inputs()).ops


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype: torch.dtype) -> None:
    """The bound is far below the numbers themselves, and a wrong rule is wrong there too."""
    torch.manual_seed(0)
    x, w = (torch.randn(n, 8, dtype=dtype).requires_grad_() for n in (3, 1))

    def fn(x: Tensor, w: Tensor) -> Tensor:
        return torch.tanh(x) * w

    report = check(fn, (x, w), per_op=True)
    assert all(row.allowed < 0.1 * row.scale for row in report.rows)
    with planted("tanh", vjp={"x": lambda g: g}, reads={"x": ("g",)}):
        wrong = check(fn, (x, w), raise_on_error=False)
    assert not wrong.ok and wrong.culprits[0].op == "tanh"


def test_references_are_chosen() -> None:
    report = check(loss, inputs(), against=("float64",))
    assert {row.reference for row in report.rows} == {"float64"}
    with pytest.raises(InputError, match="cannot be compared with float64"):
        check(nn.Dropout(), (torch.randn(3),), against=("float64",))
    no_tuple: Any = torch.ones(2)
    with pytest.raises(InputError, match=r"given as Tensor\n.*check\(fn, \(x,\)\)"):
        check(torch.sin, no_tuple)
    with pytest.raises(InputError, match="unknown references"):
        check(loss, inputs(), against=("jax",))
    with pytest.raises(InputError, match="nothing to compare"):
        check(loss, inputs(), against=())


def test_a_report_without_rows_is_not_right() -> None:
    assert not Report("f").ok
    assert not Row("x", "eager", float("nan"), None, 1.0, 1.0).ok


def test_bad_arguments() -> None:
    with pytest.raises(InputError, match="order"):
        check(loss, inputs(), order=3)
    with pytest.raises(LeafTypeError, match="array"):
        check(lambda n: n, (1,))
    with pytest.raises(LeafTypeError, match="no argument can be differentiated"):
        check(lambda n: n * 2, (torch.arange(3),))
