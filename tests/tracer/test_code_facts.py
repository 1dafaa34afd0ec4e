"""Whether code asks for attributes by names that are computed (`tracer.state.code_facts`)."""

from __future__ import annotations

import pytest

from gradof.tracer.state.code_facts import facts_of

CONSTANT = (
    "getattr(b, 'x')", "getattr(b, 'x', None)", "getattr(b, 'x', {})", "getattr(b, 'x', (n, m))",
    "getattr(b.c[0].d(n, m), 'x')", "getattr(b, 'x', f(n, 'y'))", "setattr(b, 'x', n + 1)",
    "getattr(getattr(b, 'x'), 'y')", "hasattr(b, 'x') and getattr(b, 'y')", "getattr(b, 'x')(n)",
    "f(getattr(b, 'x'), getattr(b, 'y'))", "object.__setattr__(b, 'x', n)",
)  # fmt: skip
COMPUTED = (
    "getattr(b, n)", "getattr(b, n, 'x')", "getattr(b, 'x' + n)", "getattr(b, 'x' + str(n))",
    "getattr(b, 'x' + f(n, m))", "getattr(b, 'x' + f(n, m, n))", "getattr(b, n, f(n, 'y'))",
    "getattr(b, f'x{n}')", "getattr(b, 'x' if n else m, 'y')", "getattr(getattr(b, n), 'y')",
    "map(getattr, n, m)", "getattr(*n)", "getattr(b, names['x'])", "getattr(b, 'x'.lower())",
)  # fmt: skip


@pytest.mark.parametrize("source", [*CONSTANT, *COMPUTED])
def test_names_that_are_computed(source: str) -> None:
    space: dict[str, object] = {}
    exec(f"def g(b, n, m): return {source}", space)
    function = space["g"]
    assert facts_of(function.__code__).dynamic == (source in COMPUTED)  # type: ignore[attr-defined]
