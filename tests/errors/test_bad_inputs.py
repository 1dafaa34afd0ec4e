"""Bad inputs: each is refused with its own class, at the user's line, with a hint, and nothing run.

    @bad(DataDependentError, "needs the value")
    def numpy_branch() -> None:
        grad(lambda x: np.sum(x) if x[0] > 0 else -np.sum(x))(A)  # here

The error must be exactly of that class, its message must match, its `loc` must be the line marked
`# here` (none is expected without a mark), its hint must say something, and the caller's arrays,
tensors and random state must be what they were.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import gradof
from gradof import differentiate, grad
from gradof.errors import (
    DtypeError,
    GradofError,
)
from gradof.tracer.state.source import shorten
from tests.errors import bad_calls, bad_functions, bad_graphs
from tests.errors.rows import IMAGINARY, INDEX, ROWS, SWAPPED, A, Row, T

TABLES = (bad_calls, bad_functions, bad_graphs)  # importing them fills ROWS
OWN_LINES = {"malformed_ir": "model.ir:1:11", "undefined_value_in_ir": "model.ir:2:22",
             "unknown_op_in_ir": "m.py:3", "wrong_type_in_ir": "m.py:3",
             "composite_to_codegen": "m.py:3"}  # fmt: skip


def where(run: Callable[[], Any]) -> str | None:
    """The `file:line` the error must point to: the marked line, or a line of the row's own IR."""
    lines, first = inspect.getsourcelines(run)
    marked = [first + i for i, line in enumerate(lines) if line.rstrip().endswith("# here")]
    return f"{shorten(inspect.getfile(run))}:{marked[0]}" if marked else OWN_LINES.get(run.__name__)


@pytest.fixture
def untouched() -> Iterator[None]:
    before = [v.copy() for v in (A, INDEX, IMAGINARY, SWAPPED)]
    tensor, version = T.detach().clone(), T._version
    random, torch_random = np.random.get_state(), torch.get_rng_state()
    yield
    for array, copy in zip((A, INDEX, IMAGINARY, SWAPPED), before, strict=True):
        assert array.dtype == copy.dtype and array.tobytes() == copy.tobytes()
    assert torch.equal(T.detach(), tensor) and T._version == version
    assert T.grad is None and T.is_leaf and T.requires_grad
    assert torch.equal(torch.get_rng_state(), torch_random)
    assert str(np.random.get_state()) == str(random)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.run.__name__)
@pytest.mark.usefixtures("untouched")
def test_refused(row: Row) -> None:
    with pytest.raises(row.error, match=row.match) as caught:
        row.run()
    error = caught.value
    assert type(error) is row.error
    found = None if error.loc is None else str(error.loc)
    want = where(row.run)
    if want is not None:
        assert found == want
        assert f"\n  at {want}" in str(error)
    assert error.hint, "what should the user do?"
    assert f"\n  hint: {error.hint}" in str(error)


def test_the_table_is_as_long_as_promised() -> None:
    assert len(ROWS) >= 25 and len({row.run.__name__ for row in ROWS}) == len(ROWS)
    assert sum(where(row.run) is not None for row in ROWS) >= 12


def test_a_function_that_was_refused_works_for_good_inputs() -> None:
    fn = grad(lambda x: (x * 1.0 * x).sum())
    with pytest.raises(DtypeError):
        fn(INDEX)
    np.testing.assert_allclose(fn(A), 2 * A)
    assert fn.base.cache_info().forward_runs + fn.base.cache_info().backward_runs >= 1


def test_every_error_class_is_refused_somewhere_or_named_here() -> None:
    """A class nobody raises is a promise nobody keeps."""
    tree = [GradofError]
    for each in tree:
        tree.extend(each.__subclasses__())
    sources = "".join(
        path.read_text(encoding="utf-8")
        for path in Path(gradof.__file__).resolve().parent.rglob("*.py")
        if path.name != "errors.py"
    )
    folders = ("tracer", "autodiff", "codegen")
    root = Path(gradof.__file__).resolve().parent.parent
    sources += "".join(p.read_text() for f in folders for p in (root / f).rglob("*.py"))
    leaves = {c.__name__ for c in tree if not c.__subclasses__()}
    unused = {name for name in leaves if not re.search(rf"\b{name}\(", sources)}
    assert unused == set()


def test_what_the_function_raises_itself_passes_through() -> None:
    def fn(x: Any) -> Any:
        raise ValueError("wrong shape, says the user")

    with pytest.raises(ValueError, match="says the user") as caught:
        differentiate(fn)(T)
    assert type(caught.value) is ValueError
