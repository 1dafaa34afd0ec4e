"""FileCheck: order, lines, counts, absences, and what its errors say."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gradof.errors import TextCheckError
from gradof.ir.parser import parse_graph
from gradof.testing.filecheck import FileCheck

TEXT = """\
graph f(%x, %y):
  %a = mul(%x, %y)
  %b = mul(%a, %x)
  %c = add(%b, %y)
  return (%c)
"""


def test_what_is_there_passes_in_order() -> None:
    checker = FileCheck(TEXT).count("= mul(", 2).check("= add(").check_same("%y")
    assert checker.text[checker.position :] == ")\n  return (%c)\n"
    FileCheck(TEXT).check("graph f").check_next("= mul(").check_next("= mul(").check_next("= add(")
    FileCheck(TEXT).count("= mul(", 2, exactly=True)
    FileCheck(TEXT).check("%b = mul").check_not("= mul(")
    FileCheck(TEXT).check_not("= add(", before="%b").check("= mul(").check("= add(")
    FileCheck(TEXT).count("absent", 0, exactly=True).check_not("absent")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda c: c.check("= add(").check("= mul("), "'= mul\\(' not found"),
        (lambda c: c.check("= sub("), "'= sub\\(' not found"),
        (lambda c: c.check("return (%c)").check("return (%c)"), "'return"),
        (lambda c: c.check("%a = mul").check_same("%b"), "not found in the rest of the line"),
        (lambda c: c.check("graph f").check_next("= add("), "not found in the next line"),
        (lambda c: c.check("return").check_next("%"), "not found in the next line"),
        (lambda c: c.count("= mul(", 3), "found 2 times, not 3"),
        (lambda c: c.count("= mul(", 1, exactly=True), "'= mul\\(' found, in line 3"),
        (lambda c: c.check_not("= add("), "'= add\\(' found, in line 4"),
        (lambda c: c.check("graph").check_not("%b = mul", before="return"), "in line 3"),
        (lambda c: c.check_not("= sub(", before="= div("), "'= div\\(' not found, up to which"),
        (lambda c: c.check(""), "an empty text occurs everywhere"),
        (lambda c: c.check_not(""), "an empty text occurs everywhere"),
    ],
)
def test_what_is_not_there_fails(wrong: Callable[[FileCheck], FileCheck], message: str) -> None:
    with pytest.raises(TextCheckError, match=message):
        wrong(FileCheck(TEXT))


def test_the_error_shows_the_text_and_where_the_search_began() -> None:
    with pytest.raises(AssertionError) as caught:
        FileCheck(TEXT).check("%b = mul").check("%a = mul")
    shown = str(caught.value)
    assert "'%a = mul' not found\nsearched from line 3:" in shown
    assert ">   3   %b = mul(%a, %x)" in shown and "    2   %a = mul(%x, %y)" in shown


def test_a_match_is_not_matched_again() -> None:
    FileCheck("aaaa").count("aa", 2, exactly=True)
    with pytest.raises(TextCheckError):
        FileCheck("aaa").count("aa", 2)


def test_a_graph_is_printed_first() -> None:
    graph = parse_graph("graph f(%x : f32[3]): %y : f32[3] = tanh(%x) return (%y)")
    FileCheck(graph).check("graph f(%x : f32[3])").check_next("tanh(%x)").check_next("return")
