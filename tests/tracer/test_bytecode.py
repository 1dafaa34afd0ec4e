"""The quick reader of bytecode against `dis`."""

from __future__ import annotations

import collections
import dataclasses
import dis
import inspect
import typing
from collections.abc import Iterator
from types import CodeType, ModuleType

import pytest

from gradof.tracer.state.bytecode import instructions

_WITHOUT = frozenset({"KW_NAMES"})  # dis of Python 3.11 does not say which
_MEANT = frozenset(
    name for op, name in enumerate(dis.opname)
    if op in {*dis.hasname, *dis.hasconst, *dis.haslocal, *dis.hasfree} and name not in _WITHOUT
)  # fmt: skip


def codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from codes(const)


@pytest.mark.parametrize("module", [collections, dataclasses, dis, inspect, typing])
def test_the_same_as_dis(module: ModuleType) -> None:
    for code in codes(compile(inspect.getsource(module), "m.py", "exec")):
        expected, found = list(dis.get_instructions(code)), instructions(code)
        assert [(i.offset, i.opname) for i in found] == [(i.offset, i.opname) for i in expected]
        for mine, theirs in zip(found, expected, strict=True):
            if mine.opname in _MEANT:
                assert mine.argval == theirs.argval
