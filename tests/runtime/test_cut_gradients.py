"""In-place changes after `detach()`, through `.data` and under `no_grad`: gradients are eager's.

torch decides by object what has a gradient, a graph by value. Programs that part the two are
compared with eager in value, gradients of two orders and what became of the arguments, by
`differentiate` and by `grad`, whose arguments require no grad. A program that a trace cannot hold
is refused with a TraceError, never wrong.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tests.runtime.cut_programs_data  # noqa: F401  (which adds its programs)
from gradof import differentiate, grad, hvp, jacobian, value_and_grad, vjp
from gradof.errors import EagerWarning, OpaqueOpWarning, TraceError
from tests.runtime.compare import assert_compiled, close
from tests.runtime.cut_programs import PROGRAMS

Tensor = torch.Tensor
Program = Callable[..., Tensor]
W = torch.tensor([0.3, -1.2, 0.7], dtype=torch.float64)


def outcome(fn: Program, *inputs: Tensor) -> list[Tensor | None]:
    """Value, gradients, gradients of their squares, and the arguments after the call."""
    leaves = [x.clone().requires_grad_() for x in inputs]
    value = fn(*leaves)
    if isinstance(fn, type(differentiate(abs))):
        assert_compiled([value])
    found: list[Tensor | None] = [value.detach()]
    grads = torch.autograd.grad(value, leaves, create_graph=True, allow_unused=True)
    found += [None if g is None else g.detach() for g in grads]
    squares = [(g * g).sum() for g in grads if g is not None and g.requires_grad]
    if squares:
        found += torch.autograd.grad(torch.stack(squares).sum(), leaves, allow_unused=True)
    else:
        found += [None] * len(leaves)
    return [*found, *(x.detach() for x in leaves)]


def same(got: list[Tensor | None], want: list[Tensor | None]) -> None:
    """Compare outcomes; a second gradient that is None in one may be zeros in the other."""
    assert len(got) == len(want)
    for i, (g, w) in enumerate(zip(got, want, strict=True)):
        g = torch.zeros_like(w) if g is None and w is not None else g
        w = torch.zeros_like(g) if w is None and g is not None else w
        close(g, w, f"part {i}")


@pytest.fixture(autouse=True)
def in_double() -> Any:
    """Programs make tensors of the default dtype."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@pytest.mark.parametrize("name", PROGRAMS)
def test_of_a_compiled_function(name: str) -> None:
    compiled = differentiate(PROGRAMS[name], strict=True)
    want = outcome(PROGRAMS[name], W)
    for _ in range(2):
        same(outcome(compiled, W), want)
    info = compiled.cache_info()
    assert info.misses == 1 and info.backward_runs > 0


@pytest.mark.parametrize("name", sorted(PROGRAMS.keys() - {"inner_steps"}))
def test_of_arguments_that_require_no_grad(name: str) -> None:
    want = outcome(PROGRAMS[name], W)
    taken = value_and_grad(differentiate(PROGRAMS[name], strict=True))
    for _ in range(2):
        x = W.clone()
        value, slope = taken(x)
        assert not value.requires_grad and not slope.requires_grad and not x.requires_grad
        same([value, slope, x], [want[0], want[1], want[-1]])


def stepped(w: Tensor, u: Tensor) -> Tensor:
    state = (w * u).detach()
    state[0] = w[1] * u[0]
    return state * w * w


def test_of_the_other_transforms() -> None:
    u = W.flip(0) + 2
    leaf = W.clone().requires_grad_()
    want = stepped(leaf, u)
    rows = torch.stack([torch.autograd.grad(y, leaf, retain_graph=True)[0] for y in want])
    close(jacobian(stepped)(W, u), rows)
    value, pullback = vjp(stepped, W, u)
    close(value, want.detach())
    close(pullback(u)[0], u @ rows)
    (slope,) = torch.autograd.grad(stepped(leaf, u).sum(), leaf, create_graph=True)
    (second,) = torch.autograd.grad(slope, leaf, u)
    close(hvp(lambda w: stepped(w, u).sum(), (W,), (u,))[0], second)
    close(grad(lambda w, u: stepped(w, u).sum(), argnums=0)(W, u), slope.detach())


def test_a_parameter_of_a_module_is_changed_under_no_grad() -> None:
    class Clipped(torch.nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            self.weight.data.clamp_(-0.2, 0.2)
            with torch.no_grad():
                self.bias.mul_(0.5)
            return super().forward(x)

    def run(compile_it: bool) -> list[Tensor]:
        torch.manual_seed(3)
        module: Any = Clipped(3, 2)
        called = differentiate(module, strict=True) if compile_it else module
        found = []
        for _ in range(3):
            loss = (called(W) ** 2).sum()
            grads = torch.autograd.grad(loss, list(module.parameters()))
            found += [loss.detach(), *grads, *(p.detach().clone() for p in module.parameters())]
        return found

    for got, want in zip(run(True), run(False), strict=True):
        close(got, want)


def old_view(w: Tensor) -> Tensor:
    h = w * 1
    v = h[1:]
    d = h.detach()
    d.mul_(2)
    return (v * v).sum()  # here


def saved_is_changed(w: Tensor) -> Tensor:
    h = w * 1
    y = h * h
    h.data.mul_(2)  # eager's gradient of y has the new elements
    return y.sum()


@pytest.mark.parametrize("fn", [old_view, saved_is_changed])
def test_what_a_trace_cannot_hold_is_refused(fn: Program) -> None:
    with pytest.raises(TraceError, match="behind autograd's back") as caught:
        differentiate(fn, strict=True)(W.clone().requires_grad_())
    assert "test_cut_gradients.py" in str(caught.value.loc)
    with pytest.raises(TraceError, match="behind autograd's back"):
        grad(differentiate(fn, strict=True))(W.clone())


# --- random programs ------------------------------------------------------------------------------

FOUR = torch.tensor([0.3, -1.2, 0.7, 1.1]), torch.tensor([1.3, 0.2, -0.7, 0.9])


def random_program(seed: int) -> str:
    """A function of two vectors of four, over views and detached tensors that it changes."""
    pick = random.Random(seed)
    lines, names, whole = ["def f(w, u):", "    t0 = w * 2.0"], ["t0"], {"t0", "w", "u"}
    if pick.random() < 0.5:
        lines.append("    t1 = torch.ones(4)")
        names.append("t1")
        whole.add("t1")
    if pick.random() < 0.3:
        names.append("w")

    def operand(like: str) -> str:
        parts = [n for n in names if n not in whole] + ["u[1:3]"]
        source = pick.choice(sorted(whole) if like in whole else parts)
        return source + pick.choice(["", " * 0.5"])

    for _ in range(pick.randint(3, 9)):
        a, new, kind = pick.choice(names), f"t{len(names) + 2}", pick.random()
        if kind < 0.42:
            view = f"{a}[1:3]" if a in whole else f"{a}.view(2)"
            made = [f"{a}.detach()", f"{a}.detach()", f"{a}.data", view, view, f"{a} * u[:1]"]
            line = pick.choice(made)
            lines.append(f"    {new} = {line}")
            names.append(new)
            if a in whole and line != view:
                whole.add(new)
            continue
        write = pick.choice([
            f"{a}.mul_({operand(a)})", f"{a}.add_({operand(a)})", f"{a}.copy_({operand(a)})",
            f"{a}[0] = u[{pick.randint(0, 3)}]", f"{a}[1:2] = 3.0", f"{a}.zero_()",
            f"{a}[:1].mul_({pick.choice(names)}[:1])",
        ])  # fmt: skip
        how = pick.random()
        if how < 0.1:
            write = f"{a}.data{write[len(a):]}"
        lines.append(f"    with torch.no_grad(): {write}" if how > 0.65 else f"    {write}")
    pick.shuffle(names)
    terms = [f"({n} * {'u' if n in whole else 'u[1:3]'} * {i + 1}.0).sum()"
             for i, n in enumerate(names[: pick.randint(1, len(names))])]  # fmt: skip
    return "\n".join([*lines, f"    return {' + '.join(terms)} + 0 * (u.sum() + w.sum())"])


def function_of(source: str) -> Program:
    """The function that a source defines."""
    names: dict[str, Any] = {"torch": torch}
    exec(source, names)
    made: Program = names["f"]
    return made


@pytest.mark.cases(2)
@pytest.mark.parametrize("start", range(0, 100, 20))
def test_random_programs_are_right_or_refused(start: int) -> None:
    right = 0
    for seed in range(start, start + 20):
        source = random_program(seed)
        fn, inputs = function_of(source), [x.double() for x in FOUR]
        try:
            want = outcome(fn, *inputs)
        except RuntimeError:
            continue  # eager refuses it, some at the backward
        compiled = differentiate(fn, strict=True)
        given = [x.clone() for x in inputs]
        try:
            same(outcome(compiled, *inputs), want)
            slopes = grad(compiled, argnums=(0, 1))(*given)
        except TraceError as error:
            assert "behind autograd's back" in str(error), source
            continue
        same([*slopes, *given], [*want[1:3], *want[-2:]])
        right += 1
    assert right >= 5, "most are compiled"


@pytest.mark.filterwarnings("ignore::gradof.errors.EagerWarning")
def test_a_result_of_leaves_that_the_function_makes() -> None:
    """Eager's requires grad, though no argument gets any."""
    def of_view(w: Tensor) -> Tensor:
        with torch.no_grad():
            view = w.reshape(3, 1)
        return view.exp()

    for fn in (of_view, lambda w: w.detach().requires_grad_().exp()):
        w = W.clone().requires_grad_()
        result = differentiate(fn)(w)
        result.sum().backward()
        assert w.grad is None
        with pytest.raises(TraceError, match="by a leaf that the function has made"):
            differentiate(fn, strict=True)(w)


MADE: list[Callable[[Tensor], Tensor]] = [
    lambda w: torch.ones(2, 1, requires_grad=True),
    lambda w: torch.zeros_like(w, requires_grad=w.requires_grad),
    lambda w: w.new_full((3,), 2.0, requires_grad=True).exp(),
    lambda w: torch.tensor([1.0, 2.0], requires_grad=True),
    lambda w: torch.rand(3, requires_grad=True),
]


@pytest.mark.parametrize("make", MADE)
def test_a_leaf_that_a_factory_makes_requires_grad(make: Callable[[Tensor], Tensor]) -> None:
    """A constant with a gradient of its own, as the logits of a router that routes nothing."""
    def fn(w: Tensor) -> tuple[Tensor, Tensor]:
        return w * 2, make(w)

    w = W.clone().requires_grad_()
    with pytest.warns(EagerWarning, match="by a leaf that the function has made"):
        doubled, leaf = differentiate(fn)(w)
    assert doubled.requires_grad and leaf.requires_grad

    def inner(w: Tensor) -> Tensor:
        leaf = make(w)
        (slope,) = torch.autograd.grad((leaf.sum() * w).sin().sum(), leaf, create_graph=True)
        return slope.sum() * w

    torch.manual_seed(0)
    found = torch.autograd.grad(differentiate(inner, strict=True)(w).sum(), w)
    torch.manual_seed(0)
    torch.testing.assert_close(found, torch.autograd.grad(inner(w).sum(), w))


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return -g


def test_a_function_that_returns_a_view_of_what_was_written() -> None:
    reverse: Any = Reversed.apply

    def fn(w: Tensor) -> Tensor:
        h = torch.nn.functional.relu(w * 2, inplace=True)
        found: Tensor = (reverse(h).unsqueeze(0).exp() * h).sum()
        return found

    with pytest.raises(TraceError, match="a view of memory that was changed in place"):
        differentiate(fn, strict=True)(W.clone().requires_grad_())
    x, y = (W.clone().requires_grad_() for _ in range(2))
    with pytest.warns(EagerWarning, match="Reversed"):
        torch.autograd.backward(differentiate(fn)(x))
    torch.autograd.backward(fn(y))
    assert x.grad is not None and y.grad is not None
    close(x.grad, y.grad)


def test_views_under_no_grad_of_what_was_written_are_refused() -> None:
    """A view of such a view would be taken of the memory again, with its gradient."""
    def fn(w: Tensor) -> Tensor:
        h = (w * 2).relu_()
        with torch.no_grad():
            view = h[1:]
        found: Tensor = (view.unsqueeze(0) * w[1:]).sum()
        return found

    with pytest.raises(TraceError, match="changed behind autograd's back"):
        differentiate(fn, strict=True)(W.clone().requires_grad_())
    x, y = (W.clone().requires_grad_() for _ in range(2))
    with pytest.warns(EagerWarning):
        torch.autograd.backward(differentiate(fn)(x))
    torch.autograd.backward(fn(y))
    assert x.grad is not None and y.grad is not None
    close(x.grad, y.grad)


def bits_as_integers(w: Tensor) -> Tensor:
    h = w * 2
    bits = h.view(torch.int64)
    bits &= ~0xFFFF
    return (h * h).sum() + (h[1:] * w[1:]).sum()


def bits_as_halves(w: Tensor) -> Tensor:
    h = w * 3
    h.view(dtype=torch.float16)[..., 3::4].neg_()
    return (h * h * w).sum() + h.exp().sum()


@pytest.mark.parametrize("fn", [bits_as_integers, bits_as_halves])
def test_bits_changed_as_another_dtype_leave_the_gradient(fn: Program) -> None:
    """Torch's own kernels see the bits: a node of the graph is opaque."""
    compiled = differentiate(fn)
    with pytest.warns(OpaqueOpWarning):
        same(outcome(compiled, W), outcome(fn, W))
    same(outcome(compiled, W + 1), outcome(fn, W + 1))
