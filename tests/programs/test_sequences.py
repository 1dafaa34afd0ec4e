"""Every sequence of calls is as in eager: values, gradients, objects, errors (see `sequence.py`).

An outcome is equal, an error where eager has none, or silently wrong. The last two fail, but for
those in `known.KNOWN`, which fail when they are mended. Most of the combinations of kinds and
places of state run in `make programs` alone.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import pytest

from tests.programs import (
    sequences_hooks,
    sequences_library,
    sequences_numbers,
    sequences_state,
    sequences_tensors,
    sequences_users_1,
    sequences_users_2,
    sequences_users_3,
    sequences_writes,
)
from tests.programs.known import EAGER, KNOWN, MORE
from tests.programs.sequence import Sequence, compare

FAMILIES = {
    "state": sequences_state.SEQUENCES,
    "writes": sequences_writes.SEQUENCES,
    "tensors": sequences_tensors.SEQUENCES,
    "hooks": sequences_hooks.SEQUENCES,
    "library": sequences_library.SEQUENCES,
    "numbers": sequences_numbers.SEQUENCES,
    "users": [
        *sequences_users_1.SEQUENCES, *sequences_users_2.SEQUENCES, *sequences_users_3.SEQUENCES
    ],
}  # fmt: skip
SEQUENCES = [sequence for family in FAMILIES.values() for sequence in family]
# one in so many runs in `make test`
SAMPLED = {"state": 8, "writes": 3, "tensors": 4, "hooks": 3, "library": 3, "numbers": 12,
           "users": 14}  # fmt: skip


def _in_sample(sequence: Sequence, family: str) -> bool:
    return zlib.crc32(sequence.name.encode()) % SAMPLED[family] == 0


def _params() -> list[object]:
    params: list[object] = []
    for family, sequences in FAMILIES.items():
        for sequence in sequences:
            marks = []
            if sequence.name in KNOWN:
                marks.append(pytest.mark.xfail(strict=True, reason=KNOWN[sequence.name]))
            if not _in_sample(sequence, family):
                marks.append(pytest.mark.programs)
            params.append(pytest.param(sequence, marks=marks, id=sequence.name))
    return params


@pytest.mark.cases(36)
@pytest.mark.parametrize("sequence", _params())
def test_sequence(sequence: Sequence, record_property: Callable[[str, object], None]) -> None:
    outcome = compare(sequence)
    compiled = outcome.compiled
    eagerly = compiled.eager_warnings > 0
    record_property("sequence", [outcome.kind, *(["with eager calls"] if eagerly else [])])
    expected = "more" if sequence.name in MORE else "equal"
    assert outcome.kind == expected, f"{outcome.kind}: {outcome.text}"
    assert compiled.eager_warnings <= 1, "one function warns once"
    assert not eagerly or sequence.name in EAGER, "runs eagerly"
    if not eagerly and outcome.has_gradient:
        assert compiled.backward_runs > 0, "our backward did not run"


def test_there_are_many_sequences_and_the_tables_name_them() -> None:
    names = [sequence.name for sequence in SEQUENCES]
    assert len(set(names)) == len(names) >= 1550
    assert set(KNOWN) <= set(names)
    assert set(EAGER) | set(MORE) <= set(names)
    sampled = [s for family, rows in FAMILIES.items() for s in rows if _in_sample(s, family)]
    assert len(sampled) >= 200
