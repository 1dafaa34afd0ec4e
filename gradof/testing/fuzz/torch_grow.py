"""One more statement of a torch program: from which table, and which form of it."""

from __future__ import annotations

from gradof.testing.fuzz import torch_forms, torch_tables
from gradof.testing.fuzz.draw import Draw
from gradof.testing.fuzz.forms import Form

GROUPS: tuple[tuple[tuple[Form, ...], float], ...] = (
    (torch_forms.VIEWS, 14), (torch_forms.ARITHMETIC, 14), (torch_forms.SELECTING, 11),
    (torch_forms.REDUCING, 12), (torch_forms.PRODUCTS, 7), (torch_forms.LINALG, 2),
    (torch_forms.IN_PLACE, 8), (torch_forms.CONTROL, 4), (torch_forms.RANDOM, 1),
)  # fmt: skip


# Whose second derivative takes eager hours for so many numbers, some of them zero.
SLOW_IN_EAGER = frozenset({"{x:1}.cumprod({dim})", "{x:1}.logcumsumexp({dim})"})


def statement(draw: Draw) -> bool:
    """Draw one; whether it was fit."""
    source = draw.pick([("form", 60), ("op", 20), ("sample", 20 if draw.size == "small" else 6)])
    if source == "sample":
        return torch_tables.add_sample(draw)
    if source == "op":
        form = draw.rng.choice(torch_tables.elementwise())
        if form.title in torch_tables.WITHIN:
            return draw.add(torch_tables.squashed(form))
        return draw.add(form) or draw.add(torch_tables.squashed(form))
    group = draw.pick(GROUPS)
    form = draw.rng.choice(group)
    if draw.size == "large" and (group is torch_forms.LINALG or form.text in SLOW_IN_EAGER):
        return False
    return draw.add(form)
