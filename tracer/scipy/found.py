"""What scipy's solvers report beside a solution: an OptimizeResult with traced parts.

    counts, texts = counts_of(scipy's result)     # {"nit": 7, "success": True}, {"message": "..."}
    result_of("minimize", {"x": x, **counts}, texts)

Whole numbers and truths are found anew at each call. Other numbers than the solution have no
derivative that is known, as the approximate inverse Hessian of BFGS: who reads them is told.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from gradof.tracer.core.containers import dict_of, of_dict
from gradof.tracer.core.sparse_matrices import Node
from gradof.tracer.numpy.active import active_recorder

_WHOLE = (bool, int, np.bool_, np.integer)


def counts_of(result: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The whole numbers and truths of an OptimizeResult, and its texts."""
    counts = {k: _whole(v) for k, v in result.items() if isinstance(v, _WHOLE)}
    return counts, {k: v for k, v in result.items() if isinstance(v, (str, type(None)))}


def _whole(value: Any) -> Any:
    return np.bool_(value) if isinstance(value, (bool, np.bool_)) else np.int64(value)


@functools.cache
def _class(of: str) -> type:
    from scipy.optimize import OptimizeResult

    class Found(OptimizeResult):  # type: ignore[misc]
        """A result that says which of its parts have no derivative."""

        def __missing__(self, name: str) -> Any:
            recorder = active_recorder()
            if recorder is None or name.startswith("__"):
                raise KeyError(name)
            raise recorder.unsupported(
                f"{name} of the result of {of}, which has no derivative",
                "x and fun have, and gradof.hessian gives the curvature there",
            )

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            return self[name]

        # The caller gets scipy's own class.
        gradof_node = Node(of_dict, lambda parts, of: dict_of(OptimizeResult, parts, *of[:3]))

    Found.__name__ = Found.__qualname__ = "OptimizeResult"
    return Found


def result_of(name: str, parts: dict[str, Any], texts: dict[str, Any]) -> Any:
    """The result of a function of scipy.optimize, or of the name given in full.

    `texts` are those of the last call that was traced.
    """
    of = name if "." in name else f"scipy.optimize.{name}"
    return _class(of)({**parts, **texts})
