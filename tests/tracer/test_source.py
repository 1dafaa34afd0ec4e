"""The user's line and the variable an instruction stores to."""

import sys
import timeit
from typing import Any

from gradof.tracer.state.source import Site, shorten, traceback_loc, user_site


class Probe:
    """Every operator and call answers with the site it was called from."""

    def __add__(self, other: Any) -> Site:
        return user_site(sys._getframe(1))

    def __call__(self, *args: Any) -> Site:
        return user_site(sys._getframe(1))


def test_hint_is_the_name_stored_to() -> None:
    probe = Probe()
    y = probe(1)
    total = probe + 1
    nested = (lambda: [probe(2)])()[0]
    assert (y.hint, total.hint, nested.hint) == ("y", "total", None)
    assert y.loc is not None and total.loc is not None
    assert total.loc.line == y.loc.line + 1
    assert y.loc.file == shorten(__file__)
    assert y.key != total.key


def test_only_the_outer_call_of_a_line_is_named() -> None:
    probe = Probe()
    inner: list[Site] = []
    outer = probe(inner.append(probe(1)))  # type: ignore[func-returns-value]
    assert outer.hint == "outer" and inner[0].hint is None


def test_names_of_cells_and_globals() -> None:
    probe = Probe()
    cell = probe(1)
    assert (lambda: cell)().hint == "cell"
    scope: dict[str, Any] = {"probe": probe, "__name__": "user_code"}
    exec("name = probe(1)\ndef f():\n  global g\n  g = probe + 1\nf()", scope)
    assert scope["name"].hint == "name" and scope["g"].hint == "g"


def test_many_locals_do_not_hide_the_name() -> None:
    lines = [f"v{i} = 0" for i in range(300)] + ["last = probe(1)", "return last"]
    scope: dict[str, Any] = {"probe": Probe(), "__name__": "user_code"}
    exec("def f():\n" + "\n".join("  " + line for line in lines), scope)
    assert scope["f"]().hint == "last"


def test_library_frames_are_skipped() -> None:
    scope: dict[str, Any] = {"probe": Probe(), "__name__": "torch.nn.modules.linear"}
    exec("def forward():\n  h = probe(1)\n  return h", scope)
    y = scope["forward"]()
    assert y.hint == "y" and y.loc.file == shorten(__file__)


def test_traceback_loc_is_the_innermost_user_line() -> None:
    try:
        int("no")
    except ValueError as error:
        loc = traceback_loc(error.__traceback__)
    assert loc is not None and loc.file == shorten(__file__)


def test_it_is_cheap() -> None:
    probe = Probe()
    probe(1)
    assert min(timeit.repeat(lambda: probe(1), number=1000, repeat=5)) / 1000 < 20e-6
