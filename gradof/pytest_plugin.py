"""The pytest plugin: a fixture that checks gradients and writes the smallest failing program.

    def test_loss(gradof_check):
        gradof_check(loss, (x, w), order=2)

Where something is wrong, the test fails with the report, and a file that reproduces it by itself
stands in the test's `tmp_path`, or in the folder that `--gradof-failures=FOLDER` names.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--gradof-failures`."""
    parser.getgroup("gradof").addoption(
        "--gradof-failures", metavar="FOLDER", default=None,
        help="where the fixture gradof_check writes failing programs [default: tmp_path]",
    )  # fmt: skip


@pytest.fixture
def gradof_check(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Any]:
    """`gradof.testing.check`, with the smallest failing program written to a file.

    Takes what `check` takes, but `raise_on_error`, and `shrink=False` to write no program. Raises
    GradientMismatchError, whose hint names the file.
    """
    folder = request.config.getoption("--gradof-failures")

    def check(fn: Callable[..., Any], args: tuple[Any, ...], *rest: Any, **options: Any) -> Any:
        from gradof.testing.failures import check_and_write

        name = request.node.name
        return check_and_write(
            fn, args, *rest, folder=Path(folder or tmp_path), name=name, **options
        )

    return check
