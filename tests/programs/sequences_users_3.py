"""Programs as torch users write them: imports, orders, tied weights, methods, training tricks."""

from __future__ import annotations

from typing import Any

from tests.programs.sequence import AFTER, CALL, Sequence

AGAIN = ("", "", "", "", "")

# name: setup that defines f, steps, and where they are others, call and what is done after it
ROWS: dict[str, tuple[Any, ...]] = {
    "named-tuple-config": ("""\
import typing
class C(typing.NamedTuple):
    k: float = 2.
    n: int = 1
c = C()
def f(x): return (x * c.k * c.n).sum() * len(c._fields)
""", ("", "", "c = c._replace(k=3.)", "c = C(n=4)", "")),
    "dispatch-method": ("""\
class D:
    @functools.singledispatchmethod
    def go(s, a, x): return x
    @go.register
    def _(s, a: int, x): return x * a
    @go.register
    def _(s, a: str, x): return x * len(a)
o = D(); a = 3
def f(x): return o.go(a, x).sum()
""", ("", "", "a = 'four'", "a = 2", "a = None")),
    "instance-method": ("""\
class M:
    k = 2.
    def go(s, x): return x * s.k
o = M()
def f(x): return o.go(x).sum()
""", ("", "", "o.go = types.MethodType(lambda s, x: x * s.k * 3, o)", "del o.go", "o.__class__ = type('N', (M,), {'go': lambda s, x: x - s.k})")),
    "call-replaced": ("""\
class C:
    def __call__(s, x): return x * 2
c = C()
def f(x): return c(x).sum()
""", ("", "", "C.__call__ = lambda s, x: x * 5", "", "")),
    "operator-overload": ("""\
class V:
    def __init__(s, a): s.a = a
    def __mul__(s, o): return s.a * o
    __rmul__ = __mul__
    def __neg__(s): return V(-s.a)
v = V(2.)
def f(x): return ((-v) * x).sum()
""", ("", "", "v.a = 4.", "V.__neg__ = lambda s: V(s.a * 10)", "")),
    "compiling-flags": ("def f(x): return (x * (2 if torch.compiler.is_compiling() else 3) * (2 if torch.jit.is_scripting() else 1) * (5 if torch.jit.is_tracing() else 1)).sum()", AGAIN),
    "ddpm": ("""\
class S:
    def __init__(s, n): s.n = n; s.betas = torch.linspace(1e-4, 0.02, n).double(); s.ac = torch.cumprod(1 - s.betas, 0); s.config = dict(pred='eps')
    def add(s, x, e, t):
        s.ac = s.ac.to(x.device); a = s.ac[t] ** 0.5
        while a.dim() < x.dim(): a = a[..., None]
        return a * x + (1 - s.ac[t])[:, None] ** 0.5 * e
    def target(s, x, e, t): return e if s.config['pred'] == 'eps' else s.ac[t][:, None] ** 0.5 * e - x
sch = S(10); gen = torch.Generator().manual_seed(3); net = nn.Linear(3, 3).double()
def f(x):
    e = torch.randn(x.shape, generator=gen, dtype=x.dtype); t = torch.randint(0, sch.n, (x.shape[0],), generator=gen)
    return F.mse_loss(net(sch.add(x, e, t)), sch.target(x, e, t))
""", ("", "", "sch.config['pred'] = 'v'", "sch = S(20)", "gen.manual_seed(1)"), "args = (t(4, 3),); out = g(*args)"),
    "moco": ("""\
class M(nn.Module):
    def __init__(s):
        super().__init__(); s.q = nn.Linear(3, 2); s.k = copy.deepcopy(s.q); s.m = 0.9
        for p in s.k.parameters(): p.requires_grad = False
        s.register_buffer('queue', F.normalize(torch.randn(2, 8), dim=0)); s.register_buffer('ptr', torch.zeros(1, dtype=torch.long))
    @torch.no_grad()
    def enqueue(s, k):
        p = int(s.ptr); s.queue[:, p:p + k.shape[0]] = k.T; s.ptr[0] = (p + k.shape[0]) % 8
    def forward(s, x):
        q = F.normalize(s.q(x), dim=1)
        with torch.no_grad():
            for a, b in zip(s.q.parameters(), s.k.parameters()): b.data = b.data * s.m + a.data * (1 - s.m)
            k = F.normalize(s.k(x), dim=1)
        l = torch.cat([(q * k).sum(1, keepdim=True), q @ s.queue.clone().detach()], 1) / 0.2
        s.enqueue(k)
        return F.cross_entropy(l, torch.zeros(len(x), dtype=torch.long))
torch.manual_seed(0); f = M().double()
""", ("", "", "f.m = 0.5", "f.ptr.zero_()", ""), "args = (t(4, 3),); out = g(*args)"),
    "stochastic-depth": ("""\
blocks = nn.ModuleList([nn.Linear(3, 3) for _ in range(3)]).double(); torch.manual_seed(2); p = 0.5
def f(x):
    for b in blocks:
        if torch.rand(1).item() > p: x = x + b(x)
    return x.sum()
""", ("", "", "p = 0.", "p = 1.", "torch.manual_seed(2); p = 0.5")),
    "early-exit": ("""\
blocks = nn.ModuleList([nn.Linear(3, 3) for _ in range(3)]).double(); thr = 0.4; used = []
def f(x):
    for i, b in enumerate(blocks):
        x = b(x); c = x.softmax(-1).max()
        if c > thr: break
    used.append(i); return x.sum()
""", ("", "", "thr = 0.9", "thr = 0.", "")),
    "ohem": ("""\
frac = 0.5
def f(x): l = x.pow(2); k = max(1, int(frac * l.numel())); return l.topk(k).values.mean()
""", ("", "", "frac = 0.9", "frac = 0.1", ""), "args = (t(8),); out = g(*args)"),
    "gcn-cached": ("""\
class G(nn.Module):
    def __init__(s): super().__init__(); s.l = nn.Linear(3, 2); s.cache = None; s.cached = True
    def norm(s, ei, n):
        d = torch.zeros(n, dtype=torch.float64).index_add_(0, ei[1], torch.ones(ei.shape[1], dtype=torch.float64)).clamp(min=1)
        return (d[ei[0]] * d[ei[1]]).rsqrt()
    def forward(s, x):
        if s.cache is None or not s.cached: s.cache = s.norm(edges, len(x))
        h = s.l(x); return torch.zeros_like(h).index_add_(0, edges[1], h[edges[0]] * s.cache[:, None]).pow(2).sum()
edges = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]); f = G().double()
""", ("", "", "edges = torch.tensor([[0, 0, 2, 3], [1, 2, 3, 3]])", "f.cached = False", "f.cache = None; f.cached = True"), "args = (t(4, 3),); out = g(*args)"),
    "static-kv": ("""\
class K(nn.Module):
    def __init__(s): super().__init__(); s.register_buffer('k', torch.zeros(6, 3).double()); s.pos = 0
    def forward(s, x):
        i = torch.arange(s.pos, s.pos + len(x)) % 6; s.k = s.k.index_copy(0, i, x.detach()); s.pos += len(x)
        return (x @ s.k[: min(s.pos, 6)].T).softmax(-1).pow(2).sum()
f = K()
""", ("", "", "", "f.pos = 0", "f.k.zero_()"), "args = (t(2, 3),); out = g(*args)"),
    "xl-memory": ("""\
net = nn.Linear(3, 3).double()
mem = []
def f(x):
    h = torch.cat([*mem, x], 0) if mem else x
    o = net(h).tanh(); mem[:] = [o[-2:].detach()]; return o.sum()
""", ("", "", "", "mem.clear()", ""), "args = (t(2, 3),); out = g(*args)"),
    "gumbel": ("""\
torch.manual_seed(0); tau = 1.0; hard = False
def f(x): return (F.gumbel_softmax(x, tau=tau, hard=hard) * torch.arange(3.).double()).sum()
""", ("", "", "tau = 0.5", "hard = True", "")),
    "math-schedule": ("""\
step = 0
def f(x):
    global step
    step += 1; w = 0.5 * (1 + math.cos(math.pi * min(step, 10) / 10)); b = 1 / (1 + math.exp(-step)); return (x * w).sum() + x.pow(2).sum() * b
""", ("", "", "", "step = 20", "step = -3")),
    "np-schedule": ("""\
sched = np.linspace(0, 1, 5); step = 0
def f(x):
    global step
    w = float(sched[step]); step += 1; return (x * w).sum()
""", ("", "", "sched[2] = 9.", "step = 0", "")),
    "neural-ode": ("""\
net = nn.Linear(3, 3).double()
n = 3; h = 0.1
def rk(x):
    k1 = net(x).tanh(); k2 = net(x + h / 2 * k1).tanh(); return x + h * k2
def f(x):
    for _ in range(n): x = rk(x)
    return x.sum()
""", ("", "", "n = 5", "h = 0.3", "")),
    "suppress": ("""\
cfg = {}
def f(x):
    k = 1.
    with contextlib.suppress(KeyError): k = cfg['k']
    try: j = cfg['j']
    except KeyError: j = 2.
    else: j *= 10
    return (x * k * j).sum()
""", ("", "", "cfg['k'] = 3.", "cfg['j'] = 1.", "cfg.clear()")),
    "wraps-chain": ("""\
calls = []
def deco(k):
    def d(fn):
        @functools.wraps(fn)
        def w(*a): calls.append(fn.__name__); return fn(*a) * k
        return w
    return d
@deco(2.)
@deco(3.)
def h(x): return x
def f(x): return h(x).sum()
""", ("", "", "h = deco(5.)(h.__wrapped__)", "h = h.__wrapped__", "")),
    "global-in-class": ("""\
class Reg:
    items = {}
    @staticmethod
    def get(n, d=1.): return Reg.items.get(n, d)
    @classmethod
    def put(cls, n, v): cls.items = {**cls.items, n: v}
def f(x): return (x * Reg.get('k') * Reg.get('j', 2.)).sum()
""", ("", "", "Reg.put('k', 3.)", "Reg.put('j', 7.)", "Reg.items = {}")),
    "hasattr-late": ("""\
o = Box(a=1.)
def f(x): return (x * (o.b if hasattr(o, 'b') else o.a) * getattr(o, 'c', 1.)).sum()
""", ("", "", "o.b = 5.", "o.c = 2.", "del o.b")),
    "subclass-shadow": ("""\
class A:
    k = 2.
    def go(self, x): return x * self.k
class B(A): pass
b = B()
def f(x): return b.go(x).sum() + x.sum() * B.k
""", ("", "", "B.k = 3.", "B.go = lambda self, x: x * 100", "b.k = 7.")),
    "metaclass-attr": ("""\
class Meta(type):
    k = 2.
    @property
    def j(cls): return cls._j * 2
class C(metaclass=Meta): _j = 1.
def f(x): return (x * C.k * C.j).sum()
""", ("", "", "Meta.k = 5.", "C._j = 4.", "C.k = 1.")),
    "global-shadow-builtin": ("def f(x): return x.sum() * len([1, 2]) * max(1., 2.)", ("", "", "len = lambda v: 10.", "max = lambda *a: 3.", "del len")),
    "enum-member-state": ("""\
class E(enum.Enum):
    A = 1
    B = 2
    def __init__(self, v): self.w = v * 2.
e = E.A
def f(x): return (x * e.w * (3 if e is E.B else 1) * len(E)).sum() * {E.A: 1., E.B: 5.}[e]
""", ("", "", "e = E.B", "E.B.w = 9.", "e = E['A']")),
    "itemgetter": ("""\
get = operator.itemgetter('k', 'j'); ag = operator.attrgetter('m.n'); d = {'k': 2., 'j': 3.}; o = Box(m=Box(n=1.))
def f(x): a, b = get(d); return (x * a * b * ag(o)).sum()
""", ("", "", "d['k'] = 5.", "o.m.n = 4.", "get = operator.itemgetter('j', 'j')")),
    "memoryview": ("""\
import array
a = array.array('d', [1., 2., 3.]); mv = memoryview(a)
def f(x): return sum(x[i] * v for i, v in enumerate(mv.tolist())) * a[0]
""", ("", "", "mv[0] = 5.", "a[1] = 7.", "")),
    "chain-getattr": ("""\
cfg = Box(model=Box(layer=Box(k=2.)))
def dig(o, path):
    for p in path.split('.'): o = getattr(o, p)
    return o
path = 'model.layer.k'
def f(x): return (x * dig(cfg, path)).sum()
""", ("", "", "cfg.model.layer.k = 3.", "cfg.model.other = Box(k=9.); path = 'model.other.k'", "cfg.model = cfg.model.other; path = 'model.k'")),
    "walrus-any": ("""\
checks = [lambda x: x.shape[0] > 5, lambda x: flag]
flag = False
def f(x):
    if any((hit := c(x)) for c in checks): return x.sum() * (2 + hit)
    return x.sum()
""", ("", "", "flag = True", "checks.clear()", "")),
    "sorted-sets": ("""\
names = {'b', 'a'}; table = {'a': 1., 'b': 2., 'c': 3.}
def f(x): return sum(x[i] * table[n] for i, n in enumerate(sorted(names)))
""", ("", "", "names.add('c')", "names.discard('a')", "names ^= {'a', 'c'}")),
    "freeze-bn": ("""\
m = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).double()
def f(x): return m(x).pow(2).sum()
""", ("", "", "m[1].eval()", "m[1].weight.requires_grad_(False)", "m.train()"), "args = (t(4, 3),); out = g(*args)"),
    "tied": ("""\
e = nn.Embedding(4, 3).double(); h = nn.Linear(3, 4, bias=False).double(); h.weight = e.weight
def f(x): return h(e(torch.tensor([0, 1])) * x).pow(2).sum()
""", ("", "", "h.weight = nn.Parameter(h.weight.detach() * 2)", "e.weight = h.weight", "")),
    "meta-init": ("""\
def f(x):
    with torch.device('meta'): l = nn.Linear(3, 3)
    return x.sum() * l.weight.numel()
""", AGAIN),
    "torch-save-load": ("""\
net = nn.Linear(3, 3).double()
import io
def f(x): return net(x).sum()
""", ("", "", "_b = io.BytesIO(); torch.save(net, _b); _b.seek(0); net = torch.load(_b, weights_only=False)", "net.weight.data.mul_(2)", "")),
    "swap-tensors": ("""\
net = nn.Linear(3, 3).double()
def f(x): return net(x).sum()
""", ("", "", "_p = nn.Parameter(torch.ones(3, 3).double()); torch.utils.swap_tensors(net.weight, _p)", "net.weight.data.mul_(2)", "")),
    "zero-grad-none": ("""\
net = nn.Linear(3, 3).double()
def f(x): return net(x).pow(2).sum()
""", ("", "net.zero_grad(set_to_none=False)", "net.zero_grad()", "net.weight.grad = torch.ones(3, 3).double()", "")),
    "hook-tensor-param": ("""\
net = nn.Linear(3, 3).double()
net.weight.register_hook(lambda v: v * 2)
def f(x): return net(x).pow(2).sum()
""", ("", "", "h = net.bias.register_hook(lambda v: v.clamp(-0.1, 0.1))", "h.remove()", "")),
    "optim-hooks": ("""\
net = nn.Linear(3, 3).double()
opt = torch.optim.Adam(net.parameters(), lr=0.1); log = []
opt.register_step_post_hook(lambda *a: log.append(len(log)))
def f(x): return net(x).pow(2).sum()
""", ("", "opt.step()", "opt.step(); opt.zero_grad()", "opt.step()", "")),
    "foreach-inside": ("""\
ws = [nn.Parameter(torch.full((3,), i + 1.).double()) for i in range(2)]
def f(x):
    with torch.no_grad(): torch._foreach_mul_([w for w in ws], 0.5)
    n = torch._foreach_norm(ws); s = torch._foreach_add(ws, [x, x * 2]); return sum(n) + sum(v.sum() for v in s)
""", AGAIN),
    "clip-grads-inside": ("""\
net = nn.Linear(3, 3).double()
def f(x):
    gs = torch.autograd.grad(net(x).pow(2).sum(), list(net.parameters()), create_graph=True)
    n = nn.utils.get_total_norm(gs); return n + sum((v * min(1.0, 2.0)).sum() for v in gs)
""", AGAIN),
    "loss-dict-weights": ("""\
w = {'a': 1., 'b': 2.}; hist = {k: [] for k in w}
def f(x):
    ls = {'a': x.sum(), 'b': x.pow(2).sum()}
    for k, v in ls.items(): hist[k].append(round(v.item(), 3))
    return sum(w[k] * v for k, v in ls.items())
""", ("", "", "w['b'] = 0.", "w['a'] *= 3", "w.pop('b'); w['b'] = 1.")),
    "uncertainty": ("""\
class U(nn.Module):
    def __init__(s, n): super().__init__(); s.s = nn.ParameterList([nn.Parameter(torch.zeros(()).double()) for _ in range(n)]); s.last = None
    def forward(s, x):
        ls = [x.sum(), x.pow(2).sum()]; s.last = [l.detach() for l in ls]
        return sum(torch.exp(-p) * l + p for p, l in zip(s.s, ls))
f = U(2)
""", ("", "", "f.s[0].data.add_(1)", "seen = [float(v) for v in f.last]", "")),
    "gradnorm": ("""\
net = nn.Linear(3, 3).double()
w = torch.ones(2).double(); alpha = 1.5; l0 = None
def f(x):
    global l0, w
    ls = torch.stack([net(x).pow(2).sum(), net(x).abs().sum()])
    if l0 is None: l0 = ls.detach()
    r = ls.detach() / l0; w = w * (r / r.mean()) ** alpha; w = w / w.sum() * 2; return (w * ls).sum()
""", ("", "", "alpha = 0.5", "l0 = None", "w = torch.ones(2).double()")),
    "counting-module": ("""\
class C(nn.Module):
    calls = 0
    def __init__(s): super().__init__(); s.l = nn.Linear(3, 3); s.register_buffer('n', torch.tensor(0))
    def forward(s, x): C.calls += 1; s.n += 1; s.mine = getattr(s, 'mine', 0) + 1; return s.l(x).sum() * s.mine / s.n
f = C().double()
""", ("", "", "f.n.zero_()", "f.mine = 10", "C.calls = 0")),
    "device-property": ("""\
class M(nn.Module):
    def __init__(s): super().__init__(); s.l = nn.Linear(3, 3).double()
    @property
    def device(s): return next(s.parameters()).device
    @property
    def dtype(s): return next(s.parameters()).dtype
    def forward(s, x): return s.l(x.to(s.device, s.dtype)).sum()
f = M()
""", ("", "", "f.float()", "f.double()", "")),
    "rnn-cell-loop": ("""\
c = nn.GRUCell(3, 4).double(); h0 = nn.Parameter(torch.zeros(1, 4).double()); tf = 0.5; torch.manual_seed(0); o = nn.Linear(4, 3).double()
def f(x):
    h = h0; y = x[:1]; outs = []
    for i in range(len(x)):
        h = c(y, h); p = o(h); outs.append(p); y = x[i:i + 1] if torch.rand(()).item() < tf else p
    return torch.cat(outs).pow(2).sum()
""", ("", "", "tf = 1.", "tf = 0.", ""), "args = (t(4, 3),); out = g(*args)"),
    "interp-pos": ("""\
sizes = []
pos = nn.Parameter(torch.randn(1, 4, 2).double())
def f(x):
    p = pos
    if x.shape[1] != p.shape[1]: p = F.interpolate(p.transpose(1, 2), size=x.shape[1], mode='linear').transpose(1, 2)
    return (x + p).pow(2).sum()
""", AGAIN, "args = (t(1, [4, 6, 4, 5, 6][len(sizes)], 2),); sizes.append(1); out = g(*args)"),
    "window-attn": ("""\
ws = 2; shift = 0; q = nn.Linear(2, 6).double()
def f(x):
    if shift: x = torch.roll(x, -shift, 0)
    w = x.view(-1, ws, 2); a, b, c = q(w).chunk(3, -1); return F.scaled_dot_product_attention(a, b, c).pow(2).sum()
""", ("", "", "shift = 1", "ws = 4", ""), "args = (t(8, 2),); out = g(*args)"),
    "reduce-getattr": ("""\
cfg = Box(model=Box(layer=Box(k=2.)))
path = 'model.layer.k'
def f(x): return (x * functools.reduce(getattr, path.split('.'), cfg)).sum()
""", ("", "", "cfg.model.layer.k = 3.", "cfg.model.other = Box(k=9.); path = 'model.other.k'", "cfg.model.other.k = 7.")),
    "get-submodule": ("""\
net = nn.ModuleDict({'a': nn.Sequential(nn.Linear(3, 3), nn.Tanh())}).double(); path = 'a.0'
def f(x): return net.get_submodule(path)(x).sum() + net.get_parameter('a.0.weight').sum()
""", ("", "", "net['a'][0] = nn.Linear(3, 2).double()", "path = 'a.1'", "net['a'][1] = nn.Sigmoid()")),
    "untie": ("""\
class T(nn.Module):
    def __init__(s): super().__init__(); s.e = nn.Embedding(4, 3); s.h = nn.Linear(3, 4, bias=False); s.h.weight = s.e.weight
    def forward(s, x): return s.h(s.e(torch.tensor([0, 1])) * x).pow(2).sum()
f = T().double()
""", ("", "", "f.h.weight = nn.Parameter(f.h.weight.detach() * 2)", "f.e.weight = f.h.weight", "f.h.weight.data.mul_(2)")),
    "fused-lstm-weights": ("f = nn.LSTM(3, 2).double()", ("", "", "f.weight_hh_l0 = nn.Parameter(torch.ones(8, 2).double())", "f.flatten_parameters()", ""), "args = (t(4, 3),); out = g(*args)[0]"),
}  # fmt: skip


def _sequence(name: str, setup: str, steps: tuple[str, ...], *others: str) -> Sequence:
    call, after = (*others, *(CALL, AFTER)[len(others) :])
    return Sequence(f"users-{name}", setup + "\n", steps, call=call, after=after)


SEQUENCES = [_sequence(name, *row) for name, row in ROWS.items()]
