"""The coverage run: every op of torch's table and every case of numpy's, in several processes.

    run = run_torch(["f32", "f64"], jobs=2)
    run[0].status(1)                        # see OpCoverage
    Path("docs/coverage.md").write_text(page(run, numpy_rows()))

An op's place in the page is its worst over the dtypes: wrong or error, then opaque, then native.
"""

from __future__ import annotations

import multiprocessing
import os
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TYPE_CHECKING, Any

from gradof.errors import InputError

if TYPE_CHECKING:
    from gradof.testing.torch_coverage import OpCoverage

_ENTRIES: dict[str, Any] = {}  # of this process


def op_names(pattern: str = "") -> list[str]:
    """The ops of torch's table whose name contains `pattern`."""
    from gradof.testing.torch_samples import entries

    return [e.formatted_name for e in entries() if pattern in e.formatted_name]


def run_torch(
    dtypes: Sequence[str],
    names: Sequence[str] | None = None,
    jobs: int | None = None,
    progress: Callable[[OpCoverage], None] | None = None,
) -> list[OpCoverage]:
    """Every op in every dtype; rows in the order of names, then dtypes.

    `progress` is called with each row as it is done. Raises InputError for an unknown dtype.
    """
    from gradof.testing.torch_samples import DTYPES

    unknown = sorted(set(dtypes) - set(DTYPES))
    if unknown or not dtypes:
        raise InputError(f"unknown dtypes {unknown}", hint="known: " + ", ".join(DTYPES))
    names = op_names() if names is None else names
    tasks = [(name, dtype) for name in names for dtype in dtypes]
    rows: dict[tuple[str, str], OpCoverage] = {}
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"  # for the workers: small tensors, one process a core
    try:
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(jobs or os.cpu_count(), mp_context=spawn) as pool:
            futures = {pool.submit(cover_named, *task): task for task in tasks}
            for future in as_completed(futures):
                rows[futures[future]] = future.result()
                if progress is not None:
                    progress(rows[futures[future]])
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before
    return [rows[task] for task in tasks]


def cover_named(
    name: str, dtype: str, limit: int | None = None, device: str = "cpu"
) -> OpCoverage:
    """One op of torch's table, by name; see `cover`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own table warns as it is read
        from gradof.testing.torch_coverage import cover
        from gradof.testing.torch_samples import entries

        if not _ENTRIES:
            _ENTRIES.update((entry.formatted_name, entry) for entry in entries())
        return cover(_ENTRIES[name], dtype, limit, device)
