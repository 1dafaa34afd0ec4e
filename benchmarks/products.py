"""Products of matrices: who is quickest, what is chosen, and what each threshold is worth.

    python benchmarks/products.py               # float32 and float64, a few minutes
    python benchmarks/products.py f32           # one of them

Each product of a grid of sizes and layouts is computed in every way that
`codegen.lowering.products` has, in turns, and the quickest time of each way counts. The *regret* of
a choice is its time as a multiple of the quickest way's. The first table has the geometric mean and
the worst regret of the choices as they are, and of each way for everything; the second has them
again with one threshold of `gradof.tuning` at a time halved, doubled, or out of the way, the least
useful first; the third has the worst choices.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from gradof import tuning
from gradof.codegen.lowering.products import WAYS, chosen

SIZES = (4, 16, 64, 256, 1024, 4096)
MOST_CELLS = 1 << 22  # of an operand or a result
MOST_WORK = 1 << 31  # multiplications
ROUNDS = 5
SECONDS = 0.02  # of one way's rounds, for products that are quicker than a round
AWAKE = 0.15  # that OpenBLAS's threads stay awake, in which those of others wait for a core
OUT_OF_THE_WAY = {"MATMUL_FAR": 1 << 60, "MATMUL_NEAR": 0, "MATMUL_UNCOPIED": 0}
THRESHOLDS = ("MATMUL_NARROW", "MATMUL_LEAST", "MATMUL_FAR", "MATMUL_NEAR", "MATMUL_UNCOPIED",
              "BLAS_ONE_THREAD")  # fmt: skip


class Product(NamedTuple):
    """One product of the grid with the quickest time of each way, in seconds."""

    name: str
    a: Any
    b: Any
    times: dict[str, float]

    def regret(self, way: str) -> float:
        """The way's time as a multiple of the quickest's."""
        return self.times[way] / min(self.times.values())


def grid(dtype: Any) -> Iterator[tuple[str, Any, Any]]:
    """Names and operands of every product: plain, and with either operand transposed."""
    rng = np.random.default_rng(0)
    for m, k, n in itertools.product(SIZES, repeat=3):
        if max(m * k, k * n, m * n) > MOST_CELLS or m * k * n > MOST_WORK:
            continue
        for layout in ("plain", "first turned", "second turned"):
            a = rng.standard_normal((k, m) if layout == "first turned" else (m, k)).astype(dtype)
            b = rng.standard_normal((n, k) if layout == "second turned" else (k, n)).astype(dtype)
            first, second = (
                a.T if layout == "first turned" else a,
                b.T if layout == "second turned" else b,
            )
            yield f"{m} x {k} x {n}, {layout}", first, second


def measured(name: str, a: Any, b: Any) -> Product:
    """The product with the time of each way that can compute it."""
    ways = {w: run for w, run in WAYS.items() if a.dtype.char == "f" or "oneDNN" not in w}
    times = dict.fromkeys(ways, np.inf)
    for way, run in ways.items():
        if run(a, b) is None:  # a layout that our kernel leaves to others
            del times[way]
    time.sleep(AWAKE)
    counts = {way: max(1, int(SECONDS / ROUNDS / _time(ways[way], a, b, 1))) for way in times}
    for _ in range(ROUNDS):
        for way in times:
            if way != "numpy":
                times[way] = min(times[way], _time(ways[way], a, b, counts[way]))
    times["numpy"] = min(_time(np.matmul, a, b, counts["numpy"]) for _ in range(ROUNDS))
    time.sleep(AWAKE)
    return Product(name, a, b, times)


def _time(run: Callable[[Any, Any], Any], a: Any, b: Any, count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        run(a, b)
    return (time.perf_counter() - start) / count


def regrets(products: list[Product]) -> tuple[float, float]:
    """The geometric mean, and the worst regret of what is chosen."""
    found = [p.regret(chosen(p.a, p.b)) for p in products]
    return float(np.exp(np.mean(np.log(found)))), max(found)


def ways_table(products: list[Product]) -> Table:
    """Regrets of what is chosen, and of one way for everything."""
    table = Table("way", "mean regret", "worst", title="What is chosen, and each way alone")
    table.add_row("chosen", *(f"{r:.3f}" for r in regrets(products)))
    for way in products[0].times:
        found = [p.regret(way) for p in products if way in p.times]
        table.add_row(way, f"{np.exp(np.mean(np.log(found))):.3f}", f"{max(found):.1f}")
    return table


def thresholds_table(products: list[Product]) -> Table:
    """Each threshold with the mean regret as it is, halved, doubled, and out of the way."""
    now, rows = regrets(products)[0], []
    for name in THRESHOLDS:
        value = getattr(tuning, name)
        means = [
            _with(name, v, products) for v in (value // 2, value * 2, OUT_OF_THE_WAY.get(name, 0))
        ]
        rows.append((means[2], name, value, means))
    table = Table(
        "threshold", "value", "as it is", "half", "double", "without", title="Mean regrets"
    )
    for _, name, value, means in sorted(rows):
        table.add_row(name, str(value), f"{now:.4f}", *(f"{mean:.4f}" for mean in means))
    return table


def _with(name: str, value: int, products: list[Product]) -> float:
    before = getattr(tuning, name)
    setattr(tuning, name, value)
    try:
        return regrets(products)[0]
    finally:
        setattr(tuning, name, before)


def worst_table(products: list[Product]) -> Table:
    """The products whose choice costs most, with what would have been quickest."""
    table = Table("product", "chosen", "regret", "quickest", title="The worst choices")
    for p in sorted(products, key=lambda p: -p.regret(chosen(p.a, p.b)))[:12]:
        way, best = chosen(p.a, p.b), min(p.times, key=lambda w: p.times[w])
        table.add_row(p.name, way, f"{p.regret(way):.2f}", f"{best}, {p.times[best] * 1e6:.0f} us")
    return table


def main(names: list[str]) -> None:
    """Measure the dtypes named, or all."""
    console = Console()
    for name, dtype in (("f32", np.float32), ("f64", np.float64)):
        if names and name not in names:
            continue
        products = [measured(*case) for case in track(list(grid(dtype)), name, console=console)]
        console.rule(f"{name}, {len(products)} products")
        for table in (ways_table(products), thresholds_table(products), worst_table(products)):
            console.print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
