"""scipy.stats: tests of ranks, from scipy's own code.

Ranks are steps, and so is what is made of them alone: its gradient is zero.
"""

from __future__ import annotations

import importlib
import threading
from typing import Any

import numpy as np

from gradof.tracer.numpy.functions import as_array
from gradof.tracer.scipy.twins import stand_in, through, twin_of_private

through(*(f"scipy.stats.{name}" for name in """
    mannwhitneyu kruskal friedmanchisquare ranksums
""".split()))

_OF = "scipy.stats._mannwhitneyu"
stand_in(_OF, "_rankdata")(twin_of_private("scipy.stats._stats_py", "_rankdata"))


class _Stats:
    """What that module calls `stats`: the package, without a test of ten thousand orders."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module("scipy.stats"), name)

    def permutation_test(self, *args: Any, **kwargs: Any) -> Any:
        """Raises TypeError, for which the call is refused."""
        raise TypeError("an argument whose test scipy finds by permutations")


_stats: Any = _Stats()
stand_in(_OF, "stats")(_stats)


class _RankSums:
    """The exact distribution of Mann and Whitney's statistic, whose tables scipy keeps."""

    def __init__(self) -> None:
        self.sizes = (0, 0)

    def set_shapes(self, n1: int, n2: int) -> None:
        """The sizes of both samples."""
        self.sizes = (n1, n2)

    def sf(self, k: Any) -> Any:
        """P(statistic >= k), from the nearer end, as scipy has it."""
        n1, n2 = self.sizes
        scipys = importlib.import_module(_OF)._MWU(n1, n2)
        masses = np.asarray(scipys.build_u_freqs_array(n1 * n2 // 2))
        sums, k = np.cumsum(masses), as_array(k)
        left = n1 * n2 - k
        near = np.minimum(k, left)
        return np.where(k < left, 1.0 - np.take(sums, near) + np.take(masses, near),
                        np.take(sums, near))  # fmt: skip


class _State(threading.local):
    """What scipy keeps between calls."""

    def __init__(self) -> None:
        self.s = _RankSums()


_state: Any = _State()
stand_in(_OF, "_mwu_state")(_state)
