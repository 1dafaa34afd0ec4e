"""Programs that change tensors through `.data`; see `tests.runtime.cut_programs`."""

from __future__ import annotations

import torch

from tests.runtime.cut_programs import program

Tensor = torch.Tensor


@program
def data_of_intermediate(w: Tensor) -> Tensor:
    h = w * 2
    h.data.mul_(3)
    return (h * w).sum()


@program
def data_of_intermediate2(w: Tensor) -> Tensor:
    h = w * 2
    h.data[0] = 5.0
    return (h * w).sum() + h.sum()


@program
def data_param(w: Tensor) -> Tensor:
    w.data.clamp_(-0.5, 0.5)
    return (w * w).sum()


@program
def data_param_twice(w: Tensor) -> Tensor:
    w.data.clamp_(-0.5, 0.5)
    w.data.mul_(2)
    return (w * w).sum() + w.detach().sum()


@program
def param_data_norm(w: Tensor) -> Tensor:
    w.data.div_(w.data.norm())
    return (w**3).sum()


@program
def data_mul_after_a_read_without_gradients(w: Tensor) -> Tensor:
    with torch.no_grad():
        before = (w * 2 + w.mean()).tanh()
        w.data.mul_(0.5)
        w.data.add_(0.1)
    return (w * w * before).sum()


@program
def data_mul_of_a_view_read_without_gradients(w: Tensor) -> Tensor:
    h = w * 1
    with torch.no_grad():
        view = h[1:].reshape(2, 1)
        before = view * view
    h.data.mul_(0.5)
    return (h * h).sum() * before.sum()


@program
def data_mul_after_norms_without_gradients(w: Tensor) -> Tensor:
    h = w * 1
    with torch.no_grad():
        before = torch.nn.functional.layer_norm(h, (3,)) + h.softmax(0)
    h.data.sub_(before)
    return (h * before * w).sum()


@program
def detached_view_of_no_grad_is_written(w: Tensor) -> Tensor:
    with torch.no_grad():
        table = torch.arange(6.0, dtype=w.dtype).index_select(0, torch.tensor([0, 2, 5]))
        places = table.view(1, 3).detach()
    places += w * w
    return (places * w).sum()


@program
def detached_view_is_written_and_its_base_read(w: Tensor) -> Tensor:
    with torch.no_grad():
        table = (w * 2).view(3, 1)
    places = table.detach().view(1, 3)
    places += w * w
    return (places * w).sum() + (table * w).sum()
