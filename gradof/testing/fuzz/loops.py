"""Random loops over small arrays, as a block of a program: what simulators and filters look like.

    add_loop(draw)
        c0 = x0 * 1.0
        rows = []
        for i in range(11):
            t0 = np.tanh(c0 * x1[i + 1]) + 0.3
            c0[1:] = t0[:-1] * 0.5
            rows.append(t0)
        v0, v1 = c0, np.stack(rows)

Arrays have up to some dozens of elements, so that the graph is one native function
(`gradof.codegen.whole`); stretches that repeat become a Loop (`gradof.passes.roll_loops`). A loop
is a Python `for` or `while`, or one of `gradof.scan`, `fori_loop` and `while_loop`. Names that are
no inputs or results of the program have no `x` or `v` in front.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gradof.testing.fuzz.forms import Form

if TYPE_CHECKING:
    from gradof.testing.fuzz.draw import Draw

SHAPES: Sequence[tuple[tuple[int, ...], float]] = (
    ((3,), 5), ((2,), 2), ((9,), 3), ((16,), 2), ((2, 3), 4), ((4, 4), 3), ((3, 5), 3), ((), 2),
    ((2, 3, 4), 1), ((1,), 1), ((12, 2), 1),
)  # fmt: skip
# {a} and {b} are arrays of the shape of what is carried, {s} is a number, {P} the library.
CELLS = (
    "{a} + {b}", "{a} - {b}", "{a} * {b}", "{a} * {n}", "{P}.tanh({a})", "{P}.sin({a})",
    "{P}.exp(-{P}.abs({a}))", "({a}) / (1.0 + ({b}) ** 2)", "{P}.maximum({a}, {b})", "({a}) ** 2",
    "{P}.where({a} > {b}, {a}, {n} * ({b}))", "{P}.where({a} > 0, {a}, 0.1 * ({b}))", "-({a})",
    "{P}.sqrt({P}.abs({a}) + 0.3)", "{P}.log({P}.abs({a}) + 0.4)", "({a}) * {s}", "{s} - ({a})",
    "{P}.clip({a}, -0.6, 0.8)", "{P}.abs({a})", "{n} / (({a}) ** 2 + 0.7)", "{P}.sign({a}) * ({b})",
    "({a}).reshape(-1).reshape(({b}).shape)",
)  # fmt: skip
VECTORS = (  # of one dim or more
    "{P}.roll({a}, {of:1|-1|2}, {d})", "({a}) - ({a}).mean({d}, {K}=True)", "{P}.cumsum({a}, {d})",
    "{P}.flip({a}, ({d},))", "({a}) * ({b}).sum({d}, {K}=True)", "({a}) @ {w}", "({a}) @ {w}",
    "({a}) - {P}.amax({a}, {d}, {K}=True)", "{cat}([({a})[..., 1:], ({b})[..., :1]], -1)",
    "{cat}([({a})[:1] * 0.5, ({b})[1:]], 0)", "{P}.exp({a}) / {P}.exp({a}).sum({d}, {K}=True)",
    "{P}.zeros_like({a}) + ({b})[..., :1]", "({a}) * ({b})[:1]", "({a})[..., [{places}]]",
    "{P}.sort({a}, {d}){values}", "({a}).var({d}, {K}=True) + ({b})",
)  # fmt: skip
MATRICES = ("{u} @ ({a})", "({a}).T[:1, :1] + ({b})", "({a}) @ ({b}).T @ ({a}) * 0.1")  # of two
NUMBERS = (
    "({a}).sum() * 0.1", "({a}).mean()", "({a}).max()", "(({a}) * ({b})).sum() * 0.2", "{n}",
    "{P}.sin({s})", "{s} * 0.5 + ({a}).mean()", "({a}).reshape(-1)[{of:0|-1}]",
    "{P}.sqrt((({a}) ** 2).sum() + 0.1)", "{P}.log({P}.exp({a}).sum())",
)  # fmt: skip
ROWS = (
    "{q}[i]", "{q}[i]", "{q}[i]", "{q}[i + 1]", "{q}[i + 2]", "{q}[N - i]", "{q}[-1 - i]",
    "{q}[i // 2]", "{q}[(3 * i) % N]", "{q}[i:i + 3].sum(0)", "{q}[i:i + 2].mean(0)", "{q}[i % 4]",
    "{q}[N]", "{q}[{of:0|1|-1}]", "{m}[..., i]", "{m}[..., i + 1]", "{m}[..., N - i]",
    "{m}[..., i:i + 2].sum(-1)",
)  # fmt: skip
BOUNDED = (
    "{P}.tanh({a})", "0.5 * {c} + 0.3 * {P}.tanh({a})", "{P}.sin({a})",
    "{c} + 0.05 * {P}.tanh({a})", "({a}) / (1.0 + {P}.abs({a}))", "{P}.clip({a}, -1.0, 1.0)",
)  # fmt: skip
IN_PLACE = (
    "{c} += 0.1 * {P}.tanh({a})", "{c} *= 0.9", "{c}[1:] = {P}.tanh({a})[1:]",
    "{c}[..., :-1] += 0.1 * {P}.tanh({a})[..., 1:]", "{c}[0] = {c}[-1] * 0.5",
    "{c}[{c} > 0.5] = 0.1",
    "{c}[..., i % {last}] = 0.3", "{c}[..., ::2] *= 0.7", "{c}[{of:0|-1}] += {P}.tanh({s})",
    "{c}[:] = {P}.tanh({a})",
)  # fmt: skip
TABLE = (
    "table[i] = {a}", "table[i + 1] = {P}.tanh({a})",
    "table[i + 1] = 0.5 * table[i] + 0.3 * {P}.sin({a})",
    "table[i + 2] = {P}.tanh(table[i + 1] + table[i] * {n})", "table[i] += {P}.tanh({a})",
    "table[i + 1, ..., 0] = {P}.tanh({s})", "table[i, ..., 1:] = {P}.tanh({a})[..., 1:]",
    "table[:, ..., -1] *= 0.9", "table[i:i + 2] += 0.1 * {P}.tanh({a})",
    "table[N - i] = {P}.tanh({a})",
)  # fmt: skip
RANGES = (
    ("range(N)", 8), ("range(1, N)", 2), ("range(N - 1, -1, -1)", 2), ("range(0, 2 * N, 2)", 1),
)  # fmt: skip
STEPS = ((9, 4), (10, 3), (13, 1), (5, 1), (1, 0.3))  # fewer than 8 are not rolled


def add_loop(draw: Draw) -> bool:
    """Draw a loop and keep it if it is fit."""
    from gradof.testing.fuzz.draw import Unfit

    known = len(draw.inputs)
    try:
        loop = _Loop(draw)
        kind = draw.pick([("for", 60), ("scan", 10), ("fori", 7), ("while", 7), ("table", 8)])
        body, results = getattr(loop, f"as_{kind}")()
    except Unfit:
        draw.discard(known)
        return False
    results = draw.rng.sample(results, min(len(results), draw.rng.randint(1, 3)))
    writes = draw.names(len(results))
    text = "\n".join([*body, f"{', '.join(writes)} = {', '.join(results)}"])
    if draw.run(Form(text, outputs=len(writes), block=True, name=f"loop {kind}"), text, writes):
        return True
    draw.discard(known)
    return False


class _Loop:
    """One loop: what its statements can read, of which they make more."""

    def __init__(self, draw: Draw) -> None:
        self.draw, self.rng = draw, draw.rng
        self.torch = draw.world.library == "torch"
        self.shape: tuple[int, ...] = draw.pick(SHAPES)
        self.steps = draw.pick(STEPS)
        self.dtype = draw.main
        if "16" in self.dtype and self.rng.random() < 0.7:  # which native functions do not take
            self.dtype = "torch.float64"
        self.carried = [f"c{k}" for k in range(self.rng.choice((1, 1, 2, 3)))]
        self.arrays: list[str] = list(self.carried)
        self.numbers = ["s"]
        self.rows: tuple[str, ...] = ()  # forms of what moves with the step
        self.q = self.m = ""
        self.made: list[str] = []

    # --- text -----------------------------------------------------------------------------------

    def input(self, *shape: int) -> str:
        """A new input of floats."""
        return self.draw.fresh(shape, "f", self.dtype)

    def fill(self, form: str, depth: int = 0, c: str = "") -> str:
        """A form with its places filled."""
        p = "torch" if self.torch else "np"
        text = form.replace("{P}", p).replace("{c}", c).replace("{q}", self.q)
        text = text.replace("{m}", self.m).replace("{K}", "keepdim" if self.torch else "keepdims")
        text = text.replace("{cat}", f"{p}.cat" if self.torch else f"{p}.concatenate")
        text = text.replace("{values}", ".values" if self.torch else "")
        text = text.replace("{last}", str(self.shape[-1] if self.shape else 1))
        while "{of:" in text:
            before, rest = text.split("{of:", 1)
            choices, after = rest.split("}", 1)
            text = before + self.rng.choice(choices.split("|")) + after
        dim = str(self.rng.randrange(-1, max(1, len(self.shape))))
        a, b = self.array(depth), self.array(depth)
        places: dict[str, Callable[[], str]] = {
            "{a}": lambda: a, "{b}": lambda: b, "{d}": lambda: dim,
            "{s}": lambda: self.number(depth), "{n}": self.plain, "{w}": self.weight,
            "{u}": lambda: self.input(self.shape[0], self.shape[0]), "{places}": self.places,
        }  # fmt: skip
        for place, make in places.items():
            if place in text:
                text = text.replace(place, make())
        return text

    def plain(self) -> str:
        """A number."""
        number = repr(round(self.rng.uniform(-1.5, 1.5), 2))
        if not self.rows:
            return number
        return self.rng.choice((number, number, number, "0.1 * i", "(i + 1)"))

    def weight(self) -> str:
        """A square matrix by which rows are multiplied."""
        return self.input(self.shape[-1], self.shape[-1])

    def places(self) -> str:
        """Places along the last dim, as many as there are."""
        n = self.shape[-1]
        return ", ".join(str(self.rng.randrange(n)) for _ in range(n))

    def number(self, depth: int) -> str:
        """An expression of one number."""
        if depth <= 0 or self.rng.random() < 0.4:
            return self.rng.choice(self.numbers)
        return f"({self.fill(self.rng.choice(NUMBERS), depth - 1)})"

    def array(self, depth: int) -> str:
        """An expression of an array of the loop's shape."""
        rng = self.rng
        if depth <= 0 or rng.random() < 0.25:
            if self.rows and rng.random() < 0.3:
                return self.fill(rng.choice(self.rows))
            if rng.random() < 0.1:
                return self.input(*self.shape)
            return rng.choice(self.arrays)
        forms: Sequence[str] = CELLS
        if self.shape and rng.random() < 0.35:
            forms = VECTORS if len(self.shape) != 2 or rng.random() < 0.8 else MATRICES
        return self.fill(rng.choice(forms), depth - 1)

    # --- statements -----------------------------------------------------------------------------

    def statements(
        self, count: int, forms: Sequence[tuple[str, float]], inner: str = ""
    ) -> list[str]:
        """Lines of a body; every carried value is assigned somewhere."""
        lines: list[str] = []
        for _ in range(count):
            lines += getattr(self, f"_{self.draw.pick(forms)}")()
        for c in self.carried:
            if not inner and self.rng.random() < 0.9:
                lines += self._carry(c)
        return lines

    def _let(self) -> list[str]:
        name = f"t{len(self.made)}"
        line = f"{name} = {self.array(2)}"
        self.made.append(name)
        self.arrays.append(name)
        return [line]

    def _carry(self, c: str = "") -> list[str]:
        c = c or self.rng.choice(self.carried)
        return [f"{c} = {self.fill(self.rng.choice(BOUNDED), 2, c)}"]

    def _swap(self) -> list[str]:
        a, b = self.rng.choice(self.carried), self.rng.choice(self.carried)
        return [f"{a}, {b} = {self.fill('{P}.tanh({a})', 2)}, {a}"]

    def _number(self) -> list[str]:
        return [f"s = 0.6 * s + 0.2 * {self.fill('{P}.sin({s})', 2)}"]

    def _in_place(self) -> list[str]:
        return [self.fill(self.rng.choice(IN_PLACE), 1, self.rng.choice(self.carried))]

    def _table(self) -> list[str]:
        return [self.fill(self.rng.choice(TABLE), 1)]

    def _append(self) -> list[str]:
        return [f"rows.append({self.array(1)})"]

    def _history(self) -> list[str]:
        c, back = self.rng.choice(self.carried), self.rng.choice((1, 2, 3, 5))
        return [f"old.append({c})", f"{c} = {c} + 0.1 * {self.fill('{P}.tanh')}(old[-{back}])"]

    def _if(self) -> list[str]:
        test = self.rng.choice(("i % 2 == 0", "i > 3", "i % 3", "i == 5", "i", "i < N - 2"))
        return [f"if {test}:", *_indented(self._carry())]

    def _branch(self) -> list[str]:
        return [f"if {self.rng.choice(self.numbers)} > {self.plain()}:", *_indented(self._carry())]

    def _cond(self) -> list[str]:
        c = self.rng.choice(self.carried)
        sides = [self.fill(self.rng.choice(BOUNDED[:3]), 1, "y") for _ in range(2)]
        return [f"{c} = gradof.cond(s > 0.1, lambda y: {sides[0]}, lambda y: {sides[1]}, {c})"]

    def _inner(self) -> list[str]:
        count = self.rng.choice((3, 9, 12))
        kept = list(self.arrays)
        lines = self.statements(self.rng.randint(1, 2), (("let", 3), ("number", 1)), "j")
        lines += self._carry()
        self.arrays = kept
        return [f"for j in range({count}):", *_indented(lines)]

    # --- loops ----------------------------------------------------------------------------------

    def begin(self) -> list[str]:
        """What is carried into the first step."""
        lines = []
        for c in self.carried:
            by = self.rng.choice(("1.0", "0.5", "2"))
            lines.append(f"{c} = {self.input(*self.shape)} * {by}")
        lines.append(self.fill(f"s = {self.carried[0]}.sum() * 0.1"))
        return lines

    def as_for(self) -> tuple[list[str], list[str]]:
        """A Python `for`, over numbers or rows."""
        lines = [f"N = {self.steps}", *self.begin()]
        length = 2 * self.steps + 4
        self.q, self.m = self.input(length, *self.shape), self.input(*self.shape, length)
        self.rows = ROWS
        forms = [("let", 6), ("number", 2), ("in_place", 1 if self.torch else 2), ("append", 2),
                 ("swap", 1), ("history", 0.6), ("if", 0.8), ("branch", 0.3), ("inner", 1.2),
                 ("cond", 0.3), ("table", 1 if self.torch else 2)]  # fmt: skip
        head = f"for i in {self.draw.pick(RANGES)}:"
        if self.rng.random() < 0.25:
            head = f"for i, r in enumerate({self.q}[:N]):"
            self.arrays.append("r")
        body = self.statements(self.rng.randint(1, 5), forms)
        if self.rng.random() < 0.06:
            body.append(f"if s > {self.plain()}:\n    break" if self.rng.random() < 0.5
                        else "if i > 8:\n    break")  # fmt: skip
        text = "\n".join(body)
        results = [*self.carried, "s", *self.made[-1:]]
        if "old." in text:
            lines.append(f"old = [{', '.join(['c0'] * 5)}]")
        if "rows." in text:
            lines.append("rows = []")
            results.append(self.fill("{P}.stack(rows)"))
        if "table" in text:
            made = self.rng.choice(("table = {P}.zeros_like({q})", "table = {q} * 1"))
            lines.append(self.fill(made))
            results.append("table")
        return [*lines, head, *_indented(text.split("\n"))], results

    def as_while(self) -> tuple[list[str], list[str]]:
        """`gradof.while_loop`, or a Python `while`."""
        lines = self.begin()
        names = ", ".join((*self.carried, "s"))
        forms = (("let", 4), ("number", 2))
        body = self.statements(self.rng.randint(0, 2), forms)
        if self.rng.random() < 0.3:
            body = [*body, "k = k + 1"]
            return [*lines, "k = 0", f"while k < {self.steps}:", *_indented(body)], [
                *self.carried, "s"]  # fmt: skip
        loop = ["def body(state):", *_indented([f"{names}, k = state", *body,
                                               f"return {names}, k + 1.0"])]  # fmt: skip
        test = f"state[-1] < {self.steps}.0"
        begin = f"({names}, {'torch.zeros(())' if self.torch else '0.0'})"
        call = f"{names}, k = gradof.while_loop(lambda state: {test}, body, {begin})"
        return [*lines, *loop, call], [*self.carried, "s"]

    def as_scan(self) -> tuple[list[str], list[str]]:
        """`gradof.scan`."""
        lines = self.begin()
        seen = [self.input(self.steps, *self.shape) for _ in range(self.rng.choice((1, 1, 2)))]
        rows = [f"r{k}" for k in range(len(seen))]
        self.arrays += rows
        names = ", ".join((*self.carried, "s"))
        forms = (("let", 5), ("number", 2), ("swap", 1), ("cond", 0.4))
        body = self.statements(self.rng.randint(1, 4), forms)
        given = self.array(0)
        last = f"return ({names}), {self.rng.choice((given, f'({given}, s)'))}"
        step = ["def step(carry, row):", *_indented(
            [f"{names} = carry", f"{', '.join(rows)}, = row", *body, last])]  # fmt: skip
        back = self.rng.choice(("", ", reverse=True"))
        call = f"({names}), ys = gradof.scan(step, ({names}), ({', '.join(seen)},){back})"
        stacked = "ys[0]" if last.endswith(", s)") else "ys"
        return [*lines, *step, call], [*self.carried, "s", stacked]

    def as_fori(self) -> tuple[list[str], list[str]]:
        """`gradof.fori_loop`."""
        lines = self.begin()
        self.q = self.input(self.steps + 4, *self.shape)
        names = ", ".join((*self.carried, "s"))
        self.rows = ("{q}[i]", "{q}[i + 1]", "{q}[i % 3]", "{q}[0]")
        body = self.statements(self.rng.randint(1, 3), (("let", 4), ("number", 2), ("swap", 1)))
        step = ["def step(i, state):", *_indented([f"{names} = state", *body, f"return {names}"])]
        first = self.rng.choice((0, 0, 2))
        call = f"{names} = gradof.fori_loop({first}, {self.steps}, step, ({names}))"
        return [*lines, *step, call], [*self.carried, "s"]

    def as_table(self) -> tuple[list[str], list[str]]:
        """A table that is filled cell by cell, from its neighbours."""
        n, k = self.rng.choice(((9, 9), (10, 4), (4, 11), (9, 12)))
        far = self.input(n, k)
        p = "torch" if self.torch else "np"
        self.arrays, self.numbers, self.shape = ["a", "b", "c"], ["a", "b", "c"], ()
        lines = [f"t = {p}.zeros(({n + 1}, {k + 1}), dtype={self.dtype})"]
        lines += self.rng.choice((["t[0] = 0.5"], ["t[1:, 0] = 0.3", "t[0, 1:] = 2.0"], []))
        cell = self.fill("{P}.tanh({a})", 3)
        reads = ["a, b, c = t[i - 1, j], t[i, j - 1], t[i - 1, j - 1]",
                 f"t[i, j] = {far}[i - 1, j - 1] * 0.3 + {cell}"]  # fmt: skip
        inner = [f"for j in range(1, {k + 1}):", *_indented(reads)]
        return [*lines, f"for i in range(1, {n + 1}):", *_indented(inner)], [
            "t", f"t[{n}, {k}]"]  # fmt: skip


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for text in lines for line in text.split("\n")]
