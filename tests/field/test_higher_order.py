"""Further reports of section A: gradients inside compiled code, forward mode, exported gradients.

Expected numbers are eager's, a closed formula's or finite differences'.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from torch import nn
from torch.autograd import forward_ad

import gradof
from gradof import differentiate
from gradof.cli.main import main
from gradof.errors import LeafTypeError
from tests.runtime.compare import assert_compiled, check

Tensor = torch.Tensor
F64 = torch.float64
_duals: Any = forward_ad
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # torch's own


def _leaf(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=F64, generator=generator).requires_grad_()


def test_pytorch_91469_both_orders_are_taken_inside() -> None:
    """A fifth power, its gradient and the gradient of that, within one compiled function."""

    def fn(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * x * x * x * x * 1 * 1.0
        (gx,) = torch.autograd.grad(y, x, create_graph=True)
        (ggx,) = torch.autograd.grad(gx, x, create_graph=True)
        return gx, ggx

    x = torch.tensor(1.5, dtype=F64, requires_grad=True)
    first, second = check(fn, x, order=2)(x)
    torch.testing.assert_close(first.detach(), 5 * x.detach() ** 4)
    torch.testing.assert_close(second.detach(), 20 * x.detach() ** 3)


def test_torchmd_net_307_a_compiled_square_differentiated_twice_from_outside() -> None:
    class Square(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * x

    x = _leaf(10)
    y = differentiate(Square())(x)
    (dy,) = torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True, retain_graph=True)
    assert_compiled([y, dy])
    (ddy,) = torch.autograd.grad(dy, x, torch.ones_like(dy))
    assert torch.equal(dy, 2 * x) and torch.equal(ddy, torch.full_like(x, 2))


class _Equivariant(nn.Module):
    """An energy of scalars and vectors: products of dot and cross, as in tensor-product models."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(3, 4)

    def forward(self, r: Tensor) -> Tensor:
        a, b, c = r[1:] - r[:-1], r[2:] - r[:-2], r[3:] - r[:-3]
        dots = torch.stack(((a[:-2] * b[:-1]).sum(-1), (b[:-1] * c).sum(-1), a[:-2].norm(dim=-1)))
        volume = (torch.linalg.cross(a[:-2], b[:-1]) * c).sum(-1)
        scalars: Tensor = torch.nn.functional.silu(self.mix(dots.T))
        energy: Tensor = (scalars.sum(-1) + volume.square()).sum()
        return energy


def test_cuequivariance_77_the_backward_is_compiled_not_eagers() -> None:
    """Forces turn with the atoms, no node of eager's stands behind them, and df ran once each."""
    torch.manual_seed(0)
    energy = differentiate(_Equivariant().to(F64))
    r = _leaf(6, 3)
    turn, _ = torch.linalg.qr(torch.randn(3, 3, dtype=F64))
    turn = turn * torch.linalg.det(turn)
    forces = []
    for atoms in (r, (r.detach() @ turn.T).requires_grad_()):
        value = energy(atoms)
        (g,) = torch.autograd.grad(value, atoms, create_graph=True)
        assert_compiled([value, g])
        forces.append(-g.detach())
    torch.testing.assert_close(forces[0] @ turn.T, forces[1], rtol=1e-10, atol=1e-12)
    assert energy.cache_info().backward_runs == 2


def test_cuequivariance_268_the_jacobian_of_the_gradient() -> None:
    """The transform a commenter asks for: a Jacobian of a gradient, here both compiled."""
    torch.manual_seed(0)
    model = _Equivariant().to(F64)

    def energy(r: Tensor) -> Tensor:
        value: Tensor = model(r)
        return value

    r = _leaf(5, 3)
    got = gradof.jacobian(gradof.grad(energy))(r)
    want = torch.autograd.functional.hessian(energy, r)  # type: ignore[no-untyped-call]
    torch.testing.assert_close(got.detach(), want, rtol=1e-9, atol=1e-10)


# --- forward mode ---------------------------------------------------------------------------------


def _of_an_argument(x: Tensor, dual: Tensor) -> Any:
    return differentiate(torch.sin, strict=True)(dual)


def _after_a_plain_call(x: Tensor, dual: Tensor) -> Any:
    fn = differentiate(torch.sin, strict=True)
    fn(x)
    return fn(dual)


def _of_a_closure(x: Tensor, dual: Tensor) -> Any:
    return differentiate(lambda t: t * dual, strict=True)(x)


def _of_a_cotangent(x: Tensor, dual: Tensor) -> Any:
    leaf = x.clone().requires_grad_()
    return torch.autograd.grad(differentiate(torch.sin)(leaf), leaf, dual)[0]


@pytest.mark.parametrize(
    "use", [_of_an_argument, _after_a_plain_call, _of_a_closure, _of_a_cotangent]
)
def test_pytorch_187284_a_tangent_is_never_dropped_in_silence(use: Callable[..., Any]) -> None:
    """Compiled code has no forward mode of torch's own; it says so, and names what there is."""
    x = torch.rand(3, dtype=F64)
    with _duals.dual_level():
        with pytest.raises(LeafTypeError, match="tangent would be lost") as caught:
            use(x, _duals.make_dual(x, torch.ones_like(x)))
        assert "gradof.jvp" in str(caught.value)
        assert torch.equal(differentiate(torch.sin)(x), x.sin()), "without a tangent it runs"


@pytest.mark.parametrize("name", ["jvp", "grad", "vmap"])
def test_pytorch_187284_transforms_around_compiled_code_are_refused(name: str) -> None:
    fn = differentiate(lambda x: x.sin().sum(), strict=True)
    x = torch.rand(2, 3, dtype=F64)
    fn(x)
    func: Any = torch.func
    calls: dict[str, Callable[[], Any]] = {
        "jvp": lambda: func.jvp(fn, (x,), (torch.ones_like(x),)),
        "grad": lambda: func.grad(fn)(x),
        "vmap": lambda: func.vmap(fn)(x),
    }
    with pytest.raises(LeafTypeError, match=r"gradof\.(jvp|grad)"):
        calls[name]()


def test_pytorch_192985_a_rule_is_not_dropped_under_forward_mode() -> None:
    """A rule of reverse mode has no tangent; eager's own derivative of the body is not it."""

    @gradof.custom_vjp
    def straight(x: Tensor) -> Tensor:
        return torch.round(x)

    straight.defvjp(lambda x: (torch.round(x), None), lambda _, g: (g,))
    x, t = torch.rand(3, dtype=F64), torch.tensor([1.0, 2.0, 3.0], dtype=F64)
    with _duals.dual_level(), pytest.raises(LeafTypeError, match="custom_vjp"):
        straight(_duals.make_dual(x, t))
    _, tangent = gradof.jvp(straight, (x,), (t,))
    torch.testing.assert_close(tangent, t)


def test_pytorch_139756_forward_mode_of_a_network_and_of_itself() -> None:
    """Once and nested, against torch.func around the uncompiled network."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 2)).to(F64)
    x, t, s = (_leaf(4, 3, seed=n).detach() for n in range(3))
    func: Any = torch.func
    for mine, theirs in zip(gradof.jvp(differentiate(net), (x,), (t,)), func.jvp(net, (x,), (t,)),
                            strict=True):  # fmt: skip
        torch.testing.assert_close(mine, theirs.detach(), rtol=1e-10, atol=1e-12)
    _, twice = gradof.jvp(lambda y: gradof.jvp(net, (y,), (t,))[1], (x,), (s,))
    _, wanted = func.jvp(lambda y: func.jvp(net, (y,), (t,))[1], (x,), (s,))
    torch.testing.assert_close(twice, wanted.detach(), rtol=1e-10, atol=1e-12)


# --- outside of the process, and numpy ------------------------------------------------------------

ATTENTION = """
import torch

def attention(q, k, v):
    return torch.softmax(q @ k.transpose(-1, -2) / 2.0, -1) @ v
"""


def test_pytorch_113552_the_backward_is_a_file_of_numpy(tmp_path: Path) -> None:
    """`gradof export` writes forward and backward; both give eager's numbers."""
    (tmp_path / "target.py").write_text(ATTENTION)
    out = tmp_path / "out.py"
    shapes = {"q": (2, 3, 4), "k": (2, 5, 4), "v": (2, 5, 6)}
    specs = [part for name, s in shapes.items()
             for part in ("--arg", f"{name}=f64[{','.join(map(str, s))}]")]  # fmt: skip
    done = CliRunner().invoke(
        main, ["export", f"{tmp_path / 'target.py'}:attention", "-o", str(out), *specs]
    )
    assert done.exit_code == 0, done.output
    assert "import gradof" not in out.read_text() and "import torch" not in out.read_text()
    spec = importlib.util.spec_from_file_location("exported_attention", out)
    assert spec is not None and spec.loader is not None
    exported = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(exported)
    q, k, v = leaves = [_leaf(*s, seed=n) for n, s in enumerate(shapes.values())]
    value = torch.softmax(q @ k.transpose(-1, -2) / 2.0, -1) @ v
    seed = torch.randn_like(value)
    wanted = torch.autograd.grad(value, leaves, seed)
    (got,), grads = exported.value_and_gradients(
        [leaf.detach().numpy() for leaf in leaves], [seed.numpy()]
    )
    np.testing.assert_allclose(got, value.detach().numpy(), rtol=1e-12, atol=1e-14)
    for mine, theirs in zip(grads, wanted, strict=True):
        np.testing.assert_allclose(mine, theirs.numpy(), rtol=1e-11, atol=1e-13)


def _lennard_jones(r: Any) -> Any:
    """The energy of a cluster, as one writes it: two loops over atoms."""
    energy = 0.0
    for i in range(len(r)):
        for j in range(i):
            d2 = np.sum((r[i] - r[j]) ** 2)
            inverse = 1.0 / d2**3
            energy = energy + 4.0 * (inverse * inverse - inverse)
    return energy


def test_enzyme_71_forces_and_their_derivative_of_a_decorated_loop() -> None:
    """Optimised gradients of a Python function of numpy arrays, and a Hessian's product."""
    r = np.array([[0.0, 0, 0], [1.2, 0, 0.1], [0.1, 1.3, 0], [0.2, 0.1, 1.25]])
    t = np.random.default_rng(0).standard_normal(r.shape)
    force = gradof.grad(_lennard_jones)
    slope = (_lennard_jones(r + 1e-6 * t) - _lennard_jones(r - 1e-6 * t)) / 2e-6
    np.testing.assert_allclose(np.sum(force(r) * t), slope, rtol=1e-7)
    np.testing.assert_allclose(force(r).sum(0), 0.0, atol=1e-12, err_msg="forces balance")
    (product,) = gradof.hvp(_lennard_jones, (r,), (t,))
    np.testing.assert_allclose(product, (force(r + 1e-6 * t) - force(r - 1e-6 * t)) / 2e-6,
                               rtol=1e-6, atol=1e-6)  # fmt: skip


def test_hips_47_elements_assigned_in_two_loops() -> None:
    """The loop that Numba is wanted for: one element of a filter after the other."""

    def smooth(signal: Any, taps: Any) -> Any:
        out = np.zeros(len(signal) - len(taps) + 1)
        for i in range(len(out)):
            for k in range(len(taps)):
                out[i] += signal[i + k] * taps[k]
        return np.sum(np.tanh(out))

    signal, taps = np.linspace(-1.0, 1.0, 9), np.array([0.2, 0.5, 0.3])
    fn = gradof.grad(smooth, argnums=(0, 1))
    slopes = 1.0 / np.cosh(np.correlate(signal, taps, "valid")) ** 2
    np.testing.assert_allclose(fn(signal, taps)[0], np.convolve(slopes, taps), rtol=1e-12)
    np.testing.assert_allclose(fn(signal, taps)[1], np.correlate(signal, slopes, "valid"),
                               rtol=1e-12, atol=1e-15)  # fmt: skip
    assert fn.base.cache_info().misses == 1
