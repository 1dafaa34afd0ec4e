"""Any number of batch dims: whatever goes through products of matrices, to the second order."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

from gradof.codegen.host.emit import emit
from gradof.ir.parser import parse_graph
from tests.runtime.compare import check

LINALG = torch.linalg


def _with(x: torch.Tensor, shift: float = 4.0) -> torch.Tensor:
    return x + shift * torch.eye(x.shape[-1], dtype=x.dtype)


def _spd(x: torch.Tensor) -> torch.Tensor:
    return _with(x @ x.mT)


PROGRAMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "inv": lambda x: LINALG.inv(_with(x)),
    "inv of a product": lambda x: LINALG.inv(_spd(x)),
    "cholesky": lambda x: LINALG.cholesky(_spd(x)),
    "cholesky_solve": lambda x: torch.cholesky_solve(x, LINALG.cholesky(_spd(x))),
    "cholesky_inverse": lambda x: torch.cholesky_inverse(LINALG.cholesky(_spd(x))),
    "solve": lambda x: LINALG.solve(_with(x), x @ x),
    "solve_triangular": lambda x: LINALG.solve_triangular(_with(x.tril()), x @ x, upper=False),
    "eigvalsh": lambda x: LINALG.eigvalsh(x @ x.mT),
    "svdvals": lambda x: LINALG.svdvals(x @ x),
    "qr": lambda x: LINALG.qr(_with(x) @ x)[1],
    "pinv": lambda x: LINALG.pinv(_spd(x)),
    "lu": lambda x: LINALG.lu_factor(_with(x) @ x)[0],
    "slogdet": lambda x: LINALG.slogdet(_spd(x))[1],
    "matrix_exp": lambda x: LINALG.matrix_exp(x @ x),
    "matrix_power": lambda x: LINALG.matrix_power(x, 3),
    "nuclear norm": lambda x: LINALG.norm(x @ x, ord="nuc", dim=(-2, -1)),
    "products": lambda x: x @ x.mT @ x,
    "one matrix for all": lambda x: x @ x[(0,) * (x.dim() - 2)] @ x[:1],
    "vectors": lambda x: x @ x[..., 0, :].sum(tuple(range(x.dim() - 2))),
    "einsum": lambda x: torch.einsum("...ij,...kj->...ik", x, LINALG.inv(_with(x))),
    "linear": lambda x: functional.linear(LINALG.inv(_with(x)), x[(0,) * (x.dim() - 2)]),
    "attention": lambda x: torch.softmax(x @ x.mT, -1) @ LINALG.inv(_with(x)),
}
BATCHES = [(2,), (2, 3), (2, 1, 3), (1, 1, 1, 2)]


@pytest.mark.parametrize("batch", BATCHES, ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_to_the_second_order(name: str, batch: tuple[int, ...]) -> None:
    x = torch.randn(*batch, 4, 4, dtype=torch.float64) * 0.5
    check(PROGRAMS[name], x.requires_grad_(), order=2)


def test_two_functions_of_one_op_have_two_names() -> None:
    # stacks of matrices and stacks of stacks are computed by two of torch's functions
    graph = parse_graph(
        "graph f(%a : f32[2,80,80], %b : f32[2,3,80,80]):\n"
        "  %c : f32[2,80,80] = bmm(%a, %a)\n  %d : f32[2,3,80,80] = bmm(%b, %b)\n"
        "  %e : f32[2,80,80] = bmm(%c, %a)\n  return (%c, %d, %e)"
    )
    executable = emit(graph, "torch")
    assert executable.source.count("= bmm(") == 2 and executable.source.count("= bmm_1(") == 1
    a, b = torch.randn(2, 80, 80), torch.randn(2, 3, 80, 80)
    c, d, e = executable(a.numpy(), b.numpy())
    for got, want in ((c, a @ a), (d, b @ b), (e, a @ a @ a)):
        torch.testing.assert_close(torch.from_numpy(got), want)
