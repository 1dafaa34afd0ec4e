"""One more statement of a numpy program: from which table, and which form of it."""

from __future__ import annotations

from gradof.testing.fuzz import numpy_forms, numpy_tables
from gradof.testing.fuzz.draw import Draw
from gradof.testing.fuzz.forms import Form

GROUPS: tuple[tuple[tuple[Form, ...], float], ...] = (
    (numpy_forms.VIEWS, 13), (numpy_forms.ARITHMETIC, 15), (numpy_forms.SELECTING, 9),
    (numpy_forms.REDUCING, 12), (numpy_forms.PRODUCTS, 6), (numpy_forms.LINALG, 3),
    (numpy_forms.IN_PLACE, 7), (numpy_forms.WRITTEN, 4), (numpy_forms.CONTROL, 5),
)  # fmt: skip


def statement(draw: Draw) -> bool:
    """Draw one; whether it was fit."""
    source = draw.pick([("form", 62), ("op", 20), ("case", 18 if draw.size == "small" else 6)])
    if source == "case":
        return numpy_tables.add_case(draw)
    if source == "op":
        form = draw.rng.choice(numpy_tables.elementwise())
        return draw.add(form) or draw.add(numpy_tables.squashed(form))
    return draw.add(draw.rng.choice(draw.pick(GROUPS)))
