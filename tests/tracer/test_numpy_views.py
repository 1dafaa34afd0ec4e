"""Which of numpy's functions give views, and which copies: seen by what is written later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gradof import differentiate

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "ravel": np.ravel, "reshape": lambda y: y.reshape(4, 2), "T": lambda y: y.T,
    "mT": lambda y: y.mT, "swapaxes": lambda y: np.swapaxes(y, 0, 1),
    "moveaxis": lambda y: np.moveaxis(y, 0, 1), "rollaxis": lambda y: np.rollaxis(y, 1),
    "squeeze": lambda y: np.squeeze(y[None]), "expand_dims": lambda y: np.expand_dims(y, 0),
    "flip": np.flip, "fliplr": np.fliplr, "rot90": np.rot90,
    "broadcast_to": lambda y: np.broadcast_to(y, (2, 2, 4)), "diag": np.diag,
    "broadcast_arrays": lambda y: np.broadcast_arrays(y, np.ones((3, 2, 4)))[0],
    "diagonal": np.diagonal, "linalg.diagonal": np.linalg.diagonal,
    "atleast_1d": np.atleast_1d, "atleast_3d": np.atleast_3d, "real": np.real,
    "split": lambda y: np.split(y, 2, 1)[0], "array_split": lambda y: np.array_split(y, 3, 1)[0],
    "hsplit": lambda y: np.hsplit(y, 2)[1], "vsplit": lambda y: np.vsplit(y, 2)[0],
    "dsplit": lambda y: np.dsplit(y[None], 2)[0], "asarray": np.asarray,
    "asanyarray": np.asanyarray, "ascontiguousarray": np.ascontiguousarray,
    "asfortranarray": lambda y: np.asfortranarray(y.T), "array": lambda y: np.array(y, copy=None),
    "astype": lambda y: y.astype(float, copy=False), "view": lambda y: y.view(),
    "flat": lambda y: y.flat[:], "flat twice": lambda y: y.flat[1:][::2],
    "matrix_transpose": np.matrix_transpose, "unstack": lambda y: np.unstack(y)[0],
    "newaxis": lambda y: y[:, None], "ellipsis": lambda y: y[..., 1],
    "steps": lambda y: y[::-1, ::2], "roll": lambda y: np.roll(y, 1),
    "meshgrid": lambda y: np.meshgrid(y[0], y[1], copy=False)[0],
    "ix_": lambda y: y[np.ix_([0, 1], [1, 2])], "resize": lambda y: np.resize(y, (2, 4)),
    "real_if_close": np.real_if_close, "row": lambda y: next(iter(y)),
    "where": lambda y: np.where(True, y, 0), "tril": np.tril, "copy": np.copy,
    "take": lambda y: y.take([0, 1]),
    "ravel F": lambda y: y.T.ravel("F"), "reshape F": lambda y: y.reshape((4, 2), order="F"),
    "windows": lambda y: np.lib.stride_tricks.sliding_window_view(y, (2, 2)),
}  # fmt: skip
WRITES: dict[str, Callable[[Any], Any]] = {
    "item": lambda y: y.__setitem__((0, 1), 7.0), "out": lambda y: np.multiply(y, 2.0, out=y),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_written_later_is_seen_as_in_numpy(name: str) -> None:
    function = FUNCTIONS[name]
    for write in WRITES.values():

        def of_a_result(x: Any, write: Any = write) -> Any:
            y = x * 1.0
            found = function(y)
            write(y)
            return found * 1.0

        def of_an_argument(x: Any, write: Any = write) -> Any:
            found = function(x)
            write(x)
            return found * 1.0

        for program in (of_a_result, of_an_argument):
            x, plain = (np.arange(8.0).reshape(2, 4) + 1 for _ in range(2))
            np.testing.assert_array_equal(differentiate(program)(x), program(plain))
            np.testing.assert_array_equal(x, plain)
