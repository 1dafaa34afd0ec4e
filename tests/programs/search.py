"""Look for drawn programs that are wrong, and show them made small.

    python -m tests.programs.search torch --minutes 10 --seed 7       or numpy
"""

from __future__ import annotations

import time
from collections import Counter

import click

from tests.programs import drawn_numpy, drawn_torch
from tests.programs.drawn import smallest

# "eager": some call was not compiled; "raises": the program ends with an error that is the same;
# "more": a backward that eager refuses.
FINE = ("equal", "eager", "raises", "more")


@click.command()
@click.argument("library", type=click.Choice(["torch", "numpy"]))
@click.option("--minutes", default=1.0, help="How long.")
@click.option("--seed", default=0, help="The first seed.")
def main(library: str, minutes: float, seed: int) -> None:
    """Draw programs and show what is wrong, made small."""
    of = drawn_torch if library == "torch" else drawn_numpy
    end, counts = time.monotonic() + 60 * minutes, Counter[str]()
    while time.monotonic() < end:
        drawn = of.draw(seed)
        kind, text = of.judge(drawn)
        counts[kind] += 1
        if kind not in FINE:
            small = smallest(drawn, kind, of.judge, of.BY_DEFAULT)
            print(f"seed {seed}: {kind}: {text[:300]}\n{small}\n", flush=True)
        seed += 1
    print(f"up to seed {seed - 1}:", ", ".join(f"{n} {kind}" for kind, n in counts.most_common()))


if __name__ == "__main__":
    main()
