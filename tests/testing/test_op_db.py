"""docs/coverage.md against the programs: every op of torch's table, by torch's own samples.

What stands in the page is what is found here, op by op and order by order, and none of it is wrong.
Up to 60 samples a precision are tried by `make long`, a few by `make test`: of these an op may have
a better state than the page gives it, never a worse. Other versions of torch have other tables:
there the page is not compared, but nothing may be wrong.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from gradof.testing.coverage import cover_named, op_names
from gradof.testing.coverage_page import RANK, REASONS, status
from gradof.testing.torch_samples import entries, samples

PAGE = (Path(__file__).parents[2] / "docs" / "coverage.md").read_text()
SAME_TORCH = f"torch {torch.__version__.partition('+')[0]}," in PAGE


def rows_of_the_page() -> dict[str, list[str]]:
    table = PAGE.partition("## Every op of torch\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\S+) \| \d+ \| (\w+) \| (\w+) \| (\w+) \|", table, re.MULTILINE)
    return {name: list(states) for name, *states in rows}


WRITTEN = rows_of_the_page()


@pytest.mark.cases(36)
@pytest.mark.parametrize("name", op_names())
def test_some_samples(name: str) -> None:
    states = _states(name, 1)
    if SAME_TORCH and name not in REASONS:
        both = zip(states, WRITTEN[name], strict=True)
        assert all(RANK.index(here) >= RANK.index(page) for here, page in both)


@pytest.mark.long
@pytest.mark.parametrize("name", op_names())
def test_every_sample(name: str) -> None:
    states = _states(name, 60)
    if SAME_TORCH:
        assert states == WRITTEN[name]


def _states(name: str, limit: int) -> list[str]:
    """What is found by up to `limit` samples a precision, by order; fails for a wrong number."""
    rows = [cover_named(name, dtype, limit) for dtype in ("f32", "f64")]
    problems = [text for row in rows for _, text in (*row.errors, *row.wrong)]
    if name in REASONS:
        assert problems or limit < 60, f"{name} works: take it out of REASONS"
        assert not any(row.wrong for row in rows)
    else:
        assert not problems, "\n".join(problems[:5])
        assert sum(row.compared[0] for row in rows), "nothing was compared"
    return [status(rows, order) for order in range(3)]


# one of eight ops
@pytest.mark.parametrize(
    ("start", "limit"),
    [(2, 1), *(pytest.param(*each, marks=pytest.mark.long) for each in ((5, 1), (0, 4)))],
)
def test_half_precision(start: int, limit: int) -> None:
    for name in op_names()[start :: 8 if limit == 1 else 1]:
        for dtype in ("bf16", "f16"):
            row = cover_named(name, dtype, limit)
            problems = [text for _, text in (*row.errors, *row.wrong)]
            assert not problems or name in REASONS, problems[:5]


def test_the_page_lists_every_op_and_counts_them() -> None:
    if SAME_TORCH:
        assert list(WRITTEN) == op_names()
    for order, title in enumerate(("value", "first gradient", "second gradient")):
        found = re.search(rf"^\| {title} \|((?: \d+ \|)+)$", PAGE, re.MULTILINE)
        assert found is not None
        numbers = [int(n) for n in found[1].replace("|", " ").split()]
        states = [s[order] for s in WRITTEN.values()]
        assert numbers == [states.count(s) for s in ("native", "opaque", "none", "wrong", "error")]
        assert set(states) <= set(RANK)


def test_samples_are_calls_of_the_op() -> None:
    entry = next(e for e in entries() if e.formatted_name == "nn_functional_softplus")
    for sample in samples(entry, "f64"):
        (result,) = sample.run(sample.fresh())
        assert result.dtype == torch.float64 and result.requires_grad
