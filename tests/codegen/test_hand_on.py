"""Calls handed on natively: to the function while all questions are answered as ever, else not."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from gradof.codegen.machine.engine import vector_bits
from gradof.codegen.machine.hand_on import Handing, Question, hand_on

pytestmark = pytest.mark.skipif(not vector_bits(), reason="there is no native code")


def _function(*args: Any) -> Any:
    return "fn", args


def _other(args: Any, kwargs: Any) -> Any:
    return "other", args, kwargs


def _again(args: Any, kwargs: Any) -> Any:
    return "again", args, kwargs


def _made(
    questions: Sequence[Question] = (), function: Any = _function, every: int = 1 << 40
) -> tuple[Any, Any]:
    counted = ctypes.c_int64()
    call = hand_on(Handing(function, 2, list(questions), _other, _again, every, counted))
    assert call is not None
    return call, counted


def test_what_is_answered_as_ever_goes_to_the_function() -> None:
    flag = [True]
    call, counted = _made([
        Question(lambda: flag[0], (), True), Question(lambda x: x, (flag,), flag),
        Question(lambda a, b: a is not b, None, True),
    ])  # fmt: skip
    assert call((1, 2), {}) == ("fn", (1, 2))
    flag[0] = False
    assert call((1, 2), {}) == ("other", (1, 2), {})
    flag[0] = True
    assert call((flag, flag), {}) == ("other", (flag, flag), {})
    assert counted.value == 1


@pytest.mark.parametrize(("args", "kwargs"), [((1,), {}), ((1, 2, 3), {}), ((1, 2), {"a": 1})])
def test_other_calls_go_elsewhere(args: Any, kwargs: Any) -> None:
    call, counted = _made()
    assert call(args, kwargs) == ("other", args, kwargs)
    assert counted.value == 0


def test_every_so_many_calls_another_runs() -> None:
    call, counted = _made(every=3)
    assert [call((1, 2), {})[0] for _ in range(6)] == 2 * ["fn", "fn", "again"]
    assert counted.value == 4


def test_errors_go_on() -> None:
    def fails(*_: Any) -> Any:
        raise KeyError("here")

    for call, _ in (_made([Question(fails, (), True)]), _made(function=fails)):
        with pytest.raises(KeyError, match="here"):
            call((1, 2), {})


def test_no_reference_is_lost_or_kept() -> None:
    answer, fixed, given = object(), object(), object()
    call, _ = _made(
        [Question(lambda x: answer, (fixed,), answer), Question(lambda a, b: a, None, given)]
    )
    args = (given, given)
    counts = [sys.getrefcount(x) for x in (answer, fixed, given, args)]
    for _ in range(100):
        assert call(args, {}) == ("fn", args)
        call((given, answer, given), {})
        call((answer, given), {})
    assert [sys.getrefcount(x) for x in (answer, fixed, given, args)] == counts
