"""Programs that change tensors behind autograd's back, each in a way that eager torch allows.

Every program takes a leaf of three numbers and returns one number; some change the leaf.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Tensor = torch.Tensor
PROGRAMS: dict[str, Callable[[Tensor], Tensor]] = {}


def program(fn: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Keep a program by its name."""
    PROGRAMS[fn.__name__] = fn
    return fn


@program
def ones_detach_mul(w: Tensor) -> Tensor:
    b = torch.ones(3)
    s = b.detach()
    s.mul_(w)
    return (s * w).sum()


@program
def ones_detach_mul_read_base(w: Tensor) -> Tensor:
    b = torch.ones(3)
    s = b.detach()
    s.mul_(w)
    return (s * w).sum() + (b * w).sum()


@program
def detach_setitem(w: Tensor) -> Tensor:
    s = (w * 1).detach()
    s[0] = w[1]
    return (s * w).sum()


@program
def detach_setitem_base(w: Tensor) -> Tensor:
    h = w * 1
    s = h.detach()
    s[0] = w[1]
    return (s * w).sum() + h.sum()


@program
def clone_detach_setitem(w: Tensor) -> Tensor:
    s = (w * 1).clone().detach()
    s[0] = w[1] * w[2]
    return (s * w).sum()


@program
def detach_clone(w: Tensor) -> Tensor:
    s = (w * 1).detach().clone()
    s[0] = w[1]
    s.mul_(w)
    return (s * w).sum()


@program
def no_grad_intermediate(w: Tensor) -> Tensor:
    h = w * 2
    with torch.no_grad():
        h.mul_(3)
    return (h * w).sum()


@program
def no_grad_view_write(w: Tensor) -> Tensor:
    h = w * 2
    with torch.no_grad():
        h[0] = 7.0
    return (h * w).sum()


@program
def no_grad_view_write2(w: Tensor) -> Tensor:
    h = w * 2
    v = h[1:]
    with torch.no_grad():
        v.mul_(7.0)
    return (h * w).sum() + v.sum()


@program
def no_grad_param(w: Tensor) -> Tensor:
    with torch.no_grad():
        w.sub_(0.1)
    return (w * w).sum()


@program
def no_grad_param_part(w: Tensor) -> Tensor:
    with torch.no_grad():
        w[0] = 0.1
    return (w * w).sum()


@program
def detach_write_by_graph(w: Tensor) -> Tensor:
    h = w * 2
    d = h.detach()
    d.copy_(w * w)
    return (h * w).sum() + (d * w).sum()


@program
def fill_keep(w: Tensor) -> Tensor:
    h = w * 2
    h.fill_(3.0)
    return (h * w).sum()


@program
def zero_keep(w: Tensor) -> Tensor:
    h = w * 2
    h.zero_()
    return (h * w).sum() + h.sum()


@program
def view_of_view(w: Tensor) -> Tensor:
    h = (w * 2).view(3, 1)
    v = h.view(3)[1:]
    v[0].mul_(w[0])
    return (h.view(3) * w).sum()


@program
def view_of_detached(w: Tensor) -> Tensor:
    h = w * 1
    d = h.detach()
    v = d[1:]
    v.mul_(w[1:])
    return (v * w[1:]).sum() + (d * w).sum()


@program
def view_of_detached_base(w: Tensor) -> Tensor:
    h = w * 1
    d = h.detach()
    v = d[1:]
    v.mul_(w[1:])
    return (v * w[1:]).sum() + (d * w).sum() + (h * w).sum()


@program
def both(w: Tensor) -> Tensor:
    h = w * 1
    d = h.detach()
    d.mul_(2)
    h.mul_(w)
    return (h * w).sum() + (d * w).sum()


@program
def both2(w: Tensor) -> Tensor:
    h = w * 1
    d = h.detach()
    h.mul_(w)
    d.mul_(2)
    return (h * w).sum() + (d * w).sum()


@program
def both3(w: Tensor) -> Tensor:
    b = torch.ones(3)
    s = b.detach()
    s.mul_(w)
    b.add_(1)
    return (s * w).sum()


@program
def both4(w: Tensor) -> Tensor:
    b = torch.ones(3)
    s = b.detach()
    s.mul_(w)
    t = s.detach()
    t.mul_(w)
    return (s * w).sum() + (t * w).sum() + (b * w).sum()


@program
def detached_noop(w: Tensor) -> Tensor:
    s = (w * 1).detach()
    return (s * w).sum()


@program
def detach_requires(w: Tensor) -> Tensor:
    s = (w * 1).detach().requires_grad_()
    (g,) = torch.autograd.grad((s * s * w).sum(), s, create_graph=True)
    return (g * w).sum()


@program
def buffer_ema(w: Tensor) -> Tensor:
    run = torch.zeros(3)
    with torch.no_grad():
        run.mul_(0.9).add_(w, alpha=0.1)
    return (run * w).sum()


@program
def straight(w: Tensor) -> Tensor:
    q = w.round()
    return (w + (q - w).detach()).pow(2).sum()


@program
def out_no_grad(w: Tensor) -> Tensor:
    h = torch.empty(3)
    with torch.no_grad():
        torch.mul(w, 2, out=h)
    return (h * w).sum()


@program
def inside_no_grad_then(w: Tensor) -> Tensor:
    h = torch.zeros(3)
    with torch.no_grad():
        h.copy_(w)
    h.mul_(w)
    return (h * w).sum()


@program
def chain_in_no_grad(w: Tensor) -> Tensor:
    h = w * 2
    with torch.no_grad():
        h.add_(1)
        h.mul_(2)
        h[0] = 0
    return (h * w).sum()


@program
def ret_both(w: Tensor) -> Tensor:
    h = w * 1
    d = h.detach()
    d.mul_(2)
    return h.sum()


@program
def unbind_detach(w: Tensor) -> Tensor:
    ps = (w * 1).detach().unbind(0)
    return torch.stack([q * w[i] for i, q in enumerate(ps)]).sum()


@program
def nograd_swap(w: Tensor) -> Tensor:
    h = w * 1
    with torch.no_grad():
        t = h.clone()
        h.copy_(t.flip(0))
    return (h * h).sum()


@program
def initialised(w: Tensor) -> Tensor:
    h = w * 2
    torch.nn.init.constant_(h, 3.0)
    return (h * w).sum()


@program
def initialised_leaf(w: Tensor) -> Tensor:
    torch.nn.init.constant_(w, 3.0)
    return (w * w).sum()


@program
def inner_steps(w: Tensor) -> Tensor:
    for _ in range(2):
        (g,) = torch.autograd.grad((w**3).sum(), w)
        with torch.no_grad():
            w.sub_(0.1 * g)
    return (w * w).sum()


@program
def recurrent(w: Tensor) -> Tensor:
    state = torch.zeros(3)
    total = torch.zeros(())
    for i in range(3):
        state = (state * w[i] + w).clone().detach()
        state[i] = w[i] * 2
        total = total + (state * w).sum()
    return total


@program
def view_under_no_grad(w: Tensor) -> Tensor:
    h = w * 2
    with torch.no_grad():
        first, *rest = h.reshape(3, 1)  # they require grad, as leaves
    found: Tensor = (first.exp() * w * rest[1]).sum()
    return found


class Kept(torch.autograd.Function):
    """A square of rows, which keeps a view of its argument."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        rows = x.reshape(3, 1)
        ctx.save_for_backward(rows)
        return rows.square().sum(-1)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        (rows,) = ctx.saved_tensors
        return (2 * g[:, None] * rows).reshape(3)


_kept: Any = Kept.apply


@program
def view_kept_by_a_function(w: Tensor) -> Tensor:
    found: Tensor = _kept(w * 3)
    return (found * w).sum()


class Scanned(torch.autograd.Function):
    """Sums along a row, added up in place; a view of them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        rows = x.reshape(1, 3).clone().transpose(0, 1)
        for i in (1, 2):
            rows[i].add_(rows[i - 1])
        return rows.transpose(0, 1)[0]

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        back = torch.zeros_like(g)
        back[:].add_(g.flip(0).cumsum(0).flip(0))
        return back * 3  # not the slope, to be told from it


_scanned: Any = Scanned.apply


@program
def view_of_what_a_function_writes(w: Tensor) -> Tensor:
    return torch.sum(_scanned(w * w).unsqueeze(0) @ w.exp().unsqueeze(-1))


@program
def view_of_a_detached_view_of_what_was_written(w: Tensor) -> Tensor:
    h = (w * 2).add_(1)
    s, u = h[1:].detach(), w[1:]
    total = torch.einsum("i,i->", s, u) + torch.conv1d(s.view(1, 1, 2), u.view(1, 1, 2)).sum()
    return (s.unsqueeze(0) * u).sum() + total + h.unsqueeze(0).exp().sum()
