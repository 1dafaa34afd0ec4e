"""A failed check as a file that fails by itself: what the command line and the plugin write."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gradof.errors import GradientMismatchError
from gradof.testing import check
from gradof.testing.report import Report
from gradof.testing.shrinking import shrink


def file_name(name: str) -> str:
    """`gradof_NAME_failure.py`, with nothing in it that a file or module name cannot have."""
    return f"gradof_{re.sub(r'[^A-Za-z0-9_]+', '_', name).strip('_')}_failure.py"


def write_failure(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], report: Report,
    path: Path, *, order: int = 1, seed: int = 0,
) -> Path | None:  # fmt: skip
    """Write the smallest part of `fn` that is wrong by itself; its path, or None without one."""
    found = shrink(fn, args, kwargs, order=order, seed=seed, report=report)
    if found is None:
        return None
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(found.source())
    return path


def check_and_write(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any] | None = None, *,
    folder: Path, name: str, shrink: bool = True, **options: Any,
) -> Report:  # fmt: skip
    """`check`, and on failure `write_failure`; GradientMismatchError names the file."""
    report = check(fn, args, kwargs, raise_on_error=False, **options)
    if report.ok:
        return report
    path = None
    if shrink:
        path = write_failure(
            fn, args, kwargs or {}, report, folder / file_name(name),
            order=options.get("order", 1), seed=options.get("seed", 0),
        )  # fmt: skip
    where = f"python {path}" if path else "no smaller part of it is wrong by itself"
    first = report.culprits[0] if report.culprits else None
    raise GradientMismatchError(str(report), loc=first.loc if first else None, hint=where)
