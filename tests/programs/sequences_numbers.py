"""Numbers that differ at every call, from four places, in all that Python does with numbers."""

from __future__ import annotations

from tests.programs.sequence import Sequence

_NET = """\
log = []
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.n, self.b = 0, 2.0
    def forward(self, x{more}):
        {number}
        {use}
f = Net()
"""
# name: what defines the number v, and what the call passes besides
SOURCES = {
    "int": ("self.n += 1; v = self.n", ""),
    "float": ("self.b *= 0.75; v = self.b", ""),
    "item": ("v = x.max().item()", ""),
    "argument": ("", "np.cos(len(log) + 1.0).item()"),
}
USES = {
    "add": "return x + v",
    "subtract": "return v - x",
    "multiply": "return x * v",
    "divide": "return x / (v + 3)",
    "divided": "return v / x",
    "power": "return x ** v",
    "base": "return (abs(v) + 1) ** x",
    "floor-divide": "return x * (v // 0.5)",
    "modulo": "return x * (v % 0.7)",
    "divmod": "a, b = divmod(v, 0.7); return x * a + b",
    "negate-abs": "return x * abs(-v)",
    "round": "return x * round(v, 1)",
    "round-to-int": "return x * round(v * 3)",
    "int": "return x * int(v * 3)",
    "floor-ceil": "return x * (math.floor(v * 3) + math.ceil(v))",
    "trunc": "return x * math.trunc(v * 3)",
    "sqrt": "return x * math.sqrt(abs(v))",
    "exp-log": "return x * math.exp(-v) + math.log(abs(v) + 1)",
    "sin": "return x * math.sin(v)",
    "hypot-atan2": "return x * math.hypot(v, 1) + math.atan2(v, 2)",
    "numpy-sqrt": "return x * float(np.sqrt(abs(v)))",
    "numpy-array": "return x * torch.from_numpy(np.array([v, 1.0, 2.0]))",
    "numpy-scalar": "return x * np.float64(v)",
    "numpy-clip": "return x * float(np.clip(v, 0.6, 1.2))",
    "max-min": "return x * min(max(v, 0.5), 1.0)",
    "sorted": "return x * sorted([v, 0.7, 1.3])[1]",
    "sum": "return x * sum([v, v, 1])",
    "fsum": "return x * math.fsum([v, 0.1])",
    "branch": "return x * 2 if v > 1 else x * 3",
    "chain": "return x * 2 if 0.5 < v < 1.2 else x * 3",
    "bool": "return x * 2 if v else x * 3",
    "and-or": "return x * (v and 2.0 or 3.0)",
    "equal": "return x * 2 if v == 3 else x * v",
    "in-list": "return x * 2 if v in [1, 2] else x * 3",
    "even": "return x * 2 if v % 2 == 0 else x * 3",
    "while": "k = v\n        while k < 3: k = k + 1\n        return x * k",
    "range": "for _ in range(int(abs(v) * 2)): x = torch.tanh(x)\n        return x * 1",
    "index": "return x[int(abs(v)) % 3] * 2",
    "slice": "return x[: int(abs(v) * 2) % 3 + 1] * 2",
    "size": "return x.sum() * torch.ones(int(abs(v)) + 1)",
    "list-key": "return x * [1.0, 2.0, 3.0][int(abs(v)) % 3]",
    "dict-key": "return x * {0: 1.0, 1: 2.0}.get(int(v), 5.0)",
    "set": "return x * len({v, 1, 2})",
    "string": "log.append(f'{v:.3f}'); return x * len(f'{v}')",
    "str-parse": "return x * float(str(v))",
    "repr": "log.append(repr(v)); return x * v",
    "json": "import json; log.append(json.dumps(dict(v=v))); return x * v",
    "hash": "return x * (hash(v) % 7)",
    "type": "log.append(type(v).__name__); return x * 2 if type(v) is float else x * 3",
    "isinstance": "return x * 2 if isinstance(v, int) else x * 3",
    "is-integer": "return x * 2 if float(v).is_integer() else x * 3",
    "as-integer-ratio": "a, b = float(v).as_integer_ratio(); return x * (a / b)",
    "hex": "log.append(float(v).hex()); return x * v",
    "struct": "import struct; log.append(struct.pack('d', v)); return x * v",
    "copy": "return x * copy.copy(v) + copy.deepcopy(v)",
    "complex": "return x * abs(complex(v, 1))",
    "fraction": "from fractions import Fraction; return x * float(Fraction(v) / 3)",
    "decimal": "from decimal import Decimal; return x * float(Decimal(v) / 4)",
    "statistics": "import statistics; log.append(v); return x * statistics.mean(log)",
    "history": "log.append(v); return x * (log[-1] - log[0] + 1)",
    "history-tensor": "log.append(v); return x * torch.tensor(log).double().mean()",
    "history-numpy": "log.append(v); return x * float(np.mean(log))",
    "history-best": "log.append(v); return x * (1 + log.index(max(log)))",
    "tensor": "return x * torch.tensor(v)",
    "tensor-list": "return x * torch.tensor([v, 1.0, 2.0]).double()",
    "as-tensor": "return x * torch.as_tensor(v)",
    "full": "return x * torch.full((3,), v)",
    "full-like": "return x * torch.full_like(x, v)",
    "fill": "return x * torch.empty(3).double().fill_(v)",
    "arange": "return x * torch.arange(3).double() * v",
    "linspace": "return x * torch.linspace(0, v, 3).double()",
    "clamp": "return x.clamp(max=v)",
    "clamp-both": "return x.clamp(min=0.3, max=abs(v))",
    "where": "return torch.where(x > 0.7, x, v)",
    "compare": "return x * (x > v)",
    "alpha": "return torch.add(x, x * 2, alpha=v)",
    "lerp": "return torch.lerp(x, x * 2, v)",
    "leaky": "return F.leaky_relu(x - 0.6, v)",
    "elu": "return F.elu(x - 0.6, abs(v))",
    "softplus": "return F.softplus(x, beta=abs(v) + 0.1)",
    "dropout": "return F.dropout(x, abs(v) % 1)",
    "roll": "return x.roll(int(v * 3)) * torch.arange(3)",
    "masked-fill": "return x.masked_fill(x > 0.7, v)",
    "index-put": "y = x * 1; y[0] = v; return y * x",
    "addcmul": "return torch.addcmul(x, x, x, value=v)",
    "smooth-l1": "return F.smooth_l1_loss(x, x * 2, beta=abs(v) + 0.1)",
    "norm-p": "return x.norm(p=abs(v) + 1)",
    "layer-norm-eps": "return F.layer_norm(x, (3,), eps=abs(v) + 0.1)",
    "label-smoothing": "return F.cross_entropy(x[None], torch.tensor([1]), label_smoothing=abs(v) % 1)",
    "distribution": "return torch.distributions.Normal(0.0, abs(v) + 1.0).log_prob(x)",
    "cumulative": "self.total = getattr(self, 'total', 0.0) + v; return x * self.total",
    "running-mean": "self.k = getattr(self, 'k', 0) + 1; self.m = getattr(self, 'm', 0.0); self.m += (v - self.m) / self.k; return x * self.m",
    "previous": "p = getattr(self, 'p', 1.0); self.p = v; return x * (v - p)",
    "swap": "self.u, self.w = getattr(self, 'w', 1.0), v; return x * self.u",
    "stored-in-tuple": "self.pair = (v, v * 2); return x * self.pair[1]",
    "stored-in-dict": "self.d = {**getattr(self, 'd', {}), 'k': v}; return x * self.d['k']",
    "returned": "return x * 2, v, [v, {'k': v * 2}]",
    "shift": "return x * (1 << (int(abs(v) * 2) % 5))",
    "bits": "return x * (int(abs(v) * 4) & 3)",
    "big": "return x * float(2 ** 70 * int(abs(v) * 4) % 1000003)",
    "bit-length": "return x * int(abs(v) * 8).bit_length()",
    "overflow": "return x * (v * 1e308 * 10)",
    "nan": "return x * (v if v != v else 1.0)",
    "zero-division": "return x * (1 / (int(v) - 3))",
    "default-argument": "h = lambda y, k=v: y * k; return h(x)",
    "closure": "h = lambda y: y * v; return h(x)",
    "partial": "return functools.partial(torch.mul, other=v)(x)",
    "nested": "def h(y, d): return y if d == 0 else h(y * v, d - 1)\n        return h(x, 2)",
    "map-filter": "return x * sum(map(lambda k: k * v, filter(None, [0, 1, 2])))",
    "zip": "return x * sum(a * b for a, b in zip([v, 1], [2, v]))",
    "format-percent": "log.append('%.2f' % v); return x * v",
    "no-grad-use": "with torch.no_grad(): k = x * v\n        return x * k",
    "detached": "y = (x * v).detach(); return x * y",
    "second-order": "(d,) = torch.autograd.grad((x ** 2 * v).sum(), x, create_graph=True); return d * x",
}  # fmt: skip


# Numbers become tensors of float32 there, whose logarithms and quotients torch rounds otherwise.
ROUNDED = {"size": 1e-6, "distribution": 1e-6}


def _sequence(source: str, use: str) -> Sequence:
    number, passed = SOURCES[source]
    more = ", v" if passed else ""
    setup = _NET.format(more=more, number=number or "pass", use=USES[use])
    if passed:
        steps = tuple(f"v = {v}" for v in ("1.25", "0.5", "0.5", "-0.75", "2", "0.3"))
        return Sequence(f"number-{source}-{use}", setup, steps, call="args = (t(3), v); out = g(*args)",
                        rounding=ROUNDED.get(use, 0.0))
    return Sequence(f"number-{source}-{use}", setup, ("", "", "", "", "f.n, f.b = 7, 1.5", ""),
                    rounding=ROUNDED.get(use, 0.0))  # fmt: skip


SEQUENCES = [_sequence(source, use) for source in SOURCES for use in USES]
