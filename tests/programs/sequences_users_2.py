"""More programs as torch users write them: layers with state, containers, hooks, names."""

from __future__ import annotations

from typing import Any

from tests.programs.sequence import AFTER, CALL, Sequence

AGAIN = ("", "", "", "", "")

# name: setup that defines f, steps, and where they are others, call and what is done after it
ROWS: dict[str, tuple[Any, ...]] = {
    "encoder": ("""\
m = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, dropout=0.2, batch_first=True), 2).double(); torch.manual_seed(4); pad = None
def f(x): return m(x, src_key_padding_mask=pad).pow(2).sum()
""", ("", "", "pad = torch.tensor([[False, False, True]])", "m.eval()", "m.layers[0].norm_first = True"), "args = (t(1, 3, 4),); out = g(*args)"),
    "lstm-state": ("""\
m = nn.LSTM(3, 4, batch_first=True).double(); st = Box(h=None)
def f(x):
    o, h = m(x, st.h); st.h = tuple(v.detach() for v in h); return o.pow(2).sum()
""", ("", "", "st.h = None", "", "st.h[0].zero_()"), "args = (t(1, 5, 3),); out = g(*args)"),
    "embedding-max-norm": ("""\
e = nn.Embedding(5, 3, max_norm=0.5, padding_idx=0).double()
def f(x): return (e(torch.tensor([0, 1, 3])) @ x).sum()
""", ("", "", "e.weight.data.mul_(4)", "e.max_norm = None", "")),
    "losses": ("""\
dist = lambda a, b: (a - b).abs().sum(-1)
l = nn.TripletMarginWithDistanceLoss(distance_function=lambda a, b: dist(a, b), margin=5.)
def f(x): return l(x[None], x[None] * 2, x[None] * 3) + F.huber_loss(x, x * 3, delta=l.margin)
""", ("", "", "dist = lambda a, b: (a - b).pow(2).sum(-1)", "l.margin = 0.5", "l.swap = True")),
    "vector-params": ("""\
net = nn.Linear(3, 3).double()
from torch.nn.utils import parameters_to_vector, vector_to_parameters
def f(x):
    v = parameters_to_vector(net.parameters()); return net(x).sum() + v.pow(2).sum()
""", ("", "", "vector_to_parameters(torch.ones(12).double(), net.parameters())", "", "")),
    "func-inside": ("""\
from torch.func import jacrev, hessian, grad
k = 2.
def f(x): return jacrev(lambda v: torch.sin(v) * k)(x).sum() + grad(lambda v: (v ** 3).sum())(x).sum()
""", ("", "", "k = 3.", "", "")),
    "raises-sometimes": ("""\
n = 0; limit = 3
def f(x):
    global n
    n += 1
    try:
        if n == limit: raise ValueError(f'at {n}')
        return (x * n).sum()
    finally: n += 1
""", ("", "", "limit = 5", "", "limit = 0")),
    "mutable-default": ("""\
def f(x, seen=[]):
    seen.append(len(seen)); return (x * sum(seen)).sum()
""", ("", "", "f.__defaults__[0].clear()", "", "f.__defaults__ = ([5.],)")),
    "setattr-count": ("""\
class S:
    def __init__(s): object.__setattr__(s, 'log', [])
    def __setattr__(s, n, v): s.log.append(n); object.__setattr__(s, n, v)
    def __getattribute__(s, n): return object.__getattribute__(s, n)
o = S(); o.k = 2.
def f(x):
    o.k = o.k + 1; setattr(o, f'v{len(o.log) % 2}', o.k); return (x * o.k).sum()
""", ("", "", "o.k = 10.", "", "")),
    "vars-update": ("""\
o = Box(a=1.)
def f(x):
    vars(o)['a'] += 1; o.__dict__.update(b=vars(o)['a'] * 2); return (x * o.b).sum()
""", ("", "", "o.a = 5.", "del o.b", "")),
    "kv-deque": ("""\
past = collections.deque(maxlen=3)
def f(x):
    past.append(x.detach()); return (torch.stack(list(past)).sum(0) * x).sum()
""", ("", "", "", "past.clear()", "")),
    "list-slices": ("""\
h = [torch.zeros(3).double() for _ in range(3)]
def f(x):
    h[:] = h[1:] + [x.detach() * 2]; return (sum(h) * x).sum()
""", ("", "", "h[0] = torch.ones(3).double()", "h.reverse()", "")),
    "dict-pop": ("""\
d = {'a': 1., 'b': 2.}
def f(x):
    v = d.pop('a', 5.); d.setdefault('c', v); d.update(b=d['b'] + v); return (x * d['b']).sum()
""", ("", "", "d['a'] = 3.", "d.clear(); d['b'] = 1.", "")),
    "set-ops": ("""\
s = set()
def f(x):
    s.add(len(s)); s.discard(2); return (x * (len(s) + 1)).sum()
""", ("", "", "s.clear()", "", "")),
    "thread-local": ("""\
import threading
loc = threading.local(); loc.k = 2.
def f(x): return (x * loc.k).sum()
""", ("", "", "loc.k = 3.", "", "")),
    "post-acc-hook": ("""\
w = nn.Parameter(torch.ones(3).double())
def step(p):
    with torch.no_grad(): p.sub_(0.1 * p.grad)
    p.grad = None
h = w.register_post_accumulate_grad_hook(step)
def f(x): return (x * w * w).sum()
""", ("", "", "", "h.remove()", "")),
    "grad-read": ("""\
w = nn.Parameter(torch.ones(3).double())
def f(x): return (x * w).sum() * (1. if w.grad is None else 2.)
""", ("", "", "w.grad = None", "", "")),
    "partialmethod": ("""\
class M:
    k = 2.
    def go(s, x, n): return (x * s.k ** n).sum()
    sq = functools.partialmethod(go, n=2)
m = M()
mc = operator.methodcaller('sq', torch.ones(3).double())
def f(x): return m.sq(x) + mc(m)
""", ("", "", "m.k = 3.", "M.sq = functools.partialmethod(M.go, n=3)", "")),
    "metaclass-call": ("""\
class Single(type):
    inst = {}
    def __call__(cls, *a):
        if cls not in cls.inst: cls.inst[cls] = super().__call__(*a)
        return cls.inst[cls]
class C(metaclass=Single):
    def __init__(s, k): s.k = k
def f(x): return (x * C(2.).k).sum()
""", ("", "", "C(0.).k = 5.", "Single.inst.clear()", "")),
    "descriptor": ("""\
class Clip:
    def __set_name__(s, o, n): s.n = '_' + n
    def __get__(s, o, c=None): return min(o.__dict__[s.n], 3.)
    def __set__(s, o, v): o.__dict__[s.n] = v
class O:
    k = Clip()
o = O(); o.k = 2.
def f(x):
    o.k = o.k * 1.5; return (x * o.k).sum()
""", ("", "", "o.k = 1.", "", "")),
    "result-kinds": ("""\
H = collections.namedtuple('H', 'a b')
k = 2.
def f(x):
    y = x * k
    return {'h': H(y, [y.sum()]), 's': f'{k:.1f}', 'n': None, 't': (torch.float32, x.shape), 'r': range(2), 'e': Ellipsis, 'sl': slice(1, 2)}
""", ("", "", "k = 3.", "", "")),
    "ema-in-forward": ("""\
class M(nn.Module):
    def __init__(s): super().__init__(); s.register_buffer('m', torch.zeros(3).double()); s.l = nn.Linear(3, 3).double(); s.steps = 0
    def forward(s, x):
        h = s.l(x)
        if s.training:
            with torch.no_grad(): s.m.lerp_(h, 0.1)
            s.steps += 1
        return (h - s.m / (1 - 0.9 ** max(s.steps, 1))).pow(2).sum()
f = M()
""", ("", "", "f.eval()", "f.train(); f.steps = 0", "f.m = torch.ones(3).double()")),
    "vq": ("""\
cb = torch.randn(4, 3).double(); count = torch.zeros(4).double()
def f(x):
    d = (x[:, None] - cb).pow(2).sum(-1); i = d.argmin(1)
    with torch.no_grad():
        count.index_add_(0, i, torch.ones(len(i)).double()); cb.index_add_(0, i, (x - cb[i]) * 0.1)
    q = cb[i]; q = x + (q - x).detach()
    return q.pow(2).sum() + d.gather(1, i[:, None]).mean()
""", ("", "", "cb.mul_(2)", "", "count.zero_()"), "args = (t(5, 3),); out = g(*args)"),
    "rope-cache": ("""\
class R(nn.Module):
    def __init__(s): super().__init__(); s.n = 0; s.cos = None
    def forward(s, x):
        if s.cos is None or x.shape[0] > s.n or s.cos.dtype != x.dtype:
            s.n = x.shape[0]; s.cos = torch.cos(torch.arange(s.n).to(x.dtype))[:, None]
        return (x * s.cos[: x.shape[0]]).sum()
f = R(); lens = [2, 5, 3, 4, 2]
""", AGAIN, "args = (t(lens.pop(), 2),); out = g(*args)"),
    "moe": ("""\
E = nn.ModuleList([nn.Linear(3, 3) for _ in range(3)]).double(); gate = nn.Linear(3, 3).double(); load = [0, 0, 0]
def f(x):
    p = gate(x).softmax(-1); w, i = p.topk(2, -1); out = torch.zeros_like(x)
    for e in range(3):
        r, c = torch.where(i == e)
        load[e] += len(r)
        if len(r): out.index_add_(0, r, E[e](x[r]) * w[r, c, None])
    return out.pow(2).sum()
""", ("", "", "gate.weight.data.mul_(-3)", "", "E.append(nn.Linear(3, 3).double())"), "args = (t(4, 3),); out = g(*args)"),
    "pack": ("""\
m = nn.GRU(2, 3, batch_first=True).double()
from torch.nn.utils.rnn import pack_padded_sequence as pk, pad_packed_sequence as up
len_ = torch.tensor([4, 2])
def f(x): return up(m(pk(x, len_, batch_first=True))[0], batch_first=True)[0].pow(2).sum()
""", ("", "", "len_ = torch.tensor([4, 4])", "", ""), "args = (t(2, 4, 2),); out = g(*args)"),
    "optim-state-read": ("""\
net = nn.Linear(3, 3).double()
opt = torch.optim.AdamW(net.parameters(), lr=0.1)
def f(x):
    l = net(x).pow(2).sum()
    for s in opt.state.values(): l = l + s['exp_avg'].sum() * 0.1 + s['step'] * 0.01
    return l
""", ("", "opt.step(); opt.zero_grad()", "opt.step(); opt.zero_grad()", "opt.step()", "")),
    "scaler": ("""\
net = nn.Linear(3, 3).double()
sc = torch.amp.GradScaler('cpu', init_scale=4.)
def f(x): return sc.scale(net(x).pow(2).sum())
""", ("", "", "sc._scale.fill_(8.) if sc._scale is not None else None", "", "sc.update(2.)")),
    "lora-merge": ("""\
class Lo(nn.Module):
    def __init__(s): super().__init__(); s.b = nn.Linear(3, 3).double(); s.A = nn.Parameter(torch.ones(1, 3).double()); s.B = nn.Parameter(torch.ones(3, 1).double()); s.merged = False; s.scale = 2.; s.active = ['d']
    def merge(s): s.b.weight.data += s.B @ s.A * s.scale; s.merged = True
    def forward(s, x):
        o = s.b(x)
        if not s.merged and 'd' in s.active: o = o + (x @ s.A.T @ s.B.T) * s.scale
        return o.sum()
f = Lo()
""", ("", "", "f.merge()", "f.merged = False; f.active.clear()", "f.active = ['d']; f.scale = 3.")),
    "buffer-rebind": ("""\
class M(nn.Module):
    def __init__(s): super().__init__(); s.register_buffer('c', torch.zeros(()).double(), persistent=False)
    def forward(s, x): s.c = s.c + x.detach().sum(); return (x * s.c).sum()
f = M()
""", ("", "", "f.c.zero_()", "f.c = torch.ones(()).double()", "")),
    "name-mangled": ("""\
class M:
    __n = 0
    def __call__(s, x): s.__n += 1; M.__dict__; return (x * s.__n).sum()
f_ = M()
def f(x): return f_(x)
""", ("", "", "f_._M__n = 10", "", "")),
    "annotations": ("""\
def h(x: 'k' = 2): return x
def f(x): return x.sum() * len(h.__annotations__) * h.__defaults__[0]
""", ("", "", "h.__defaults__ = (5,)", "h.__annotations__['r'] = int", "")),
    "kwonly-default": ("""\
def h(x, *, k=2.): return x * k
def f(x): return h(x).sum()
""", ("", "", "h.__kwdefaults__['k'] = 4.", "h.__kwdefaults__ = {'k': 6.}", "")),
    "nonlocal-chain": ("""\
def make():
    a = 1.
    def up():
        nonlocal a
        a *= 2; return a
    def get(): return a
    return up, get
up, get = make()
def f(x): up(); return (x * get()).sum()
""", ("", "", "up()", "", "")),
    "class-body-lookup": ("""\
class Cfg:
    k = 2.
    class Inner: j = 3.
    @classmethod
    def prod(cls): return cls.k * cls.Inner.j
class Sub(Cfg): pass
def f(x): return (x * Sub.prod()).sum()
""", ("", "", "Cfg.Inner.j = 5.", "Sub.k = 7.", 'class _I: j = 1.\nCfg.Inner = _I')),
    "sys-modules": ("""\
sys.modules['fake_mod'] = types.ModuleType('fake_mod'); sys.modules['fake_mod'].k = 2.
def f(x):
    import fake_mod; from fake_mod import k
    return (x * k * fake_mod.k).sum()
""", ("", "", "sys.modules['fake_mod'].k = 3.", "_m = types.ModuleType('fake_mod'); _m.k = 5.; sys.modules['fake_mod'] = _m", "")),
    "exec-global": ("""\
k = 2.
code = compile('y = x * k', 'c', 'exec')
def f(x):
    ns = {'x': x, 'k': k}; exec(code, ns); return ns['y'].sum() + eval('k * x').sum()
""", ("", "", "k = 3.", "code = compile('y = x - k', 'c', 'exec')", "")),
    "str-format": ("""\
o = Box(k=2.)
def f(x): return (x * float('{0.k:.2f}'.format(o)) * float(f'{o.k!r}') * float('%s' % o.k)).sum()
""", ("", "", "o.k = 3.", "", "o.k = 4.")),
    "sorted-key": ("""\
table = {'a': 3., 'b': 1., 'c': 2.}
def f(x): return sum(x[i] * table[k] for i, k in enumerate(sorted(table, key=table.get)))
""", ("", "", "table['a'] = 0.", "table['c'] = -1.", "")),
    "env": ("""\
os.environ['GKK'] = '2'
def f(x): return (x * float(os.getenv('GKK', '7')) * (2 if 'GKZ' in os.environ else 1)).sum()
""", ("", "", "os.environ['GKK'] = '3'", "os.environ['GKZ'] = ''", "del os.environ['GKK']; del os.environ['GKZ']")),
    "default-device": ("def f(x): return (x * torch.ones(3, dtype=torch.float64)).sum().device.type, x.sum()", ("", "", "torch.set_default_dtype(torch.float64)", "torch.set_default_dtype(torch.float32)", "")),
    "scalar-tensor-item": ("""\
temp = torch.tensor(2.).double()
hist = []
def f(x):
    hist.append(float(temp)); return (x / temp.item()).sum()
""", ("", "", "temp.mul_(2)", "temp = torch.tensor(5.).double()", "")),
    "early-stop": ("""\
best = Box(v=float('inf'), bad=0)
def f(x):
    l = x.pow(2).sum(); v = l.item()
    if v < best.v: best.v = v; best.bad = 0
    else: best.bad += 1
    return l * (1 + best.bad)
""", AGAIN),
    "running-norm": ("""\
mean, var, n = 0., 1., 0
def f(x):
    global mean, var, n
    n += 1; m = x.mean().item(); mean += (m - mean) / n
    return ((x - mean) / var ** 0.5).pow(2).sum()
""", ("", "", "var = 4.", "", "mean = 0.")),
    "relative-import": ("""\

def _mod(name, src, pkg=False):
    m = types.ModuleType(name); m.__package__ = name if pkg else name.rpartition('.')[0]
    if pkg: m.__path__ = []
    sys.modules[name] = m
    exec(src, m.__dict__)
    if '.' in name: setattr(sys.modules[name.rpartition('.')[0]], name.rpartition('.')[2], m)
    return m
_mod('gpk', '', True); _mod('gpk.conf', 'k = 2.\\ndef h(x): return x * k')
_mod('gpk.main', '''
def f(x):
    from .conf import k, h
    from . import conf
    return h(x).sum() * k * conf.k
''')
f = sys.modules['gpk.main'].f
""", ("", "", "sys.modules['gpk.conf'].k = 3.", "_mod('gpk.conf', 'k = 5.\\ndef h(x): return x - k')", "")),
    "dotted-import": ("""\

def _mod(name, src, pkg=False):
    m = types.ModuleType(name); m.__package__ = name if pkg else name.rpartition('.')[0]
    if pkg: m.__path__ = []
    sys.modules[name] = m
    exec(src, m.__dict__)
    if '.' in name: setattr(sys.modules[name.rpartition('.')[0]], name.rpartition('.')[2], m)
    return m
_mod('gpk2', '', True); _mod('gpk2.a', 'k = 2.')
def f(x):
    import gpk2.a as q
    import gpk2.a
    return (x * q.k * gpk2.a.k).sum()
""", ("", "", "sys.modules['gpk2.a'].k = 3.", "", "")),
    "fake-quant": ("""\
from torch.ao.quantization import FakeQuantize, MovingAverageMinMaxObserver
fq = FakeQuantize(observer=MovingAverageMinMaxObserver, quant_min=0, quant_max=255)
def f(x): return fq(x.float()).sum()
""", ("", "", "fq.disable_observer()", "fq.disable_fake_quant()", "fq.enable_fake_quant(); fq.enable_observer()")),
    "fx-module": ("""\
import torch.fx
class M(nn.Module):
    def __init__(s): super().__init__(); s.l = nn.Linear(3, 3)
    def forward(s, x): return s.l(x).relu().sum()
f = torch.fx.symbolic_trace(M().double())
""", ("", "", "f.l.weight.data.mul_(2)", "f.l = nn.Identity()", "")),
    "environ-copy": ("def f(x): return (x * len(dict(os.environ))).sum() + (1 if 'GADV' in os.environ.copy() else 0)", ("", "", "os.environ['GADV'] = '1'", "del os.environ['GADV']", "")),
    "environ-write": ("""\
def f(x):
    os.environ['GADW'] = str(int(os.environ.get('GADW', '0')) + 1)
    return (x * float(os.environ['GADW'])).sum()
""", ("", "", "os.environ['GADW'] = '7'", "now = os.environ['GADW']", "del os.environ['GADW']")),
    "module-dtype": ("f = nn.Linear(3, 3).double()", ("", "", "f.float()", "", "f.double()"), "args = (t(3).to(f.weight.dtype).detach().requires_grad_(),); out = g(*args)"),
    "load-assign": ("f = nn.Linear(3, 3).double()", ("", "", "f.load_state_dict({k: v * 2 for k, v in f.state_dict().items()}, assign=True)", "f.load_state_dict({k: v * 2 for k, v in f.state_dict().items()})", "")),
    "sequential-edit": ("f = nn.Sequential(nn.Linear(3, 3), nn.Tanh()).double()", ("", "f.append(nn.Sigmoid())", "f.insert(1, nn.ReLU())", "del f[0]", "f[0] = nn.Identity()")),
    "children-order": ("""\
class M(nn.Module):
    def __init__(s): super().__init__(); s.a = nn.Tanh(); s.b = nn.Linear(3, 3)
    def forward(s, x):
        for c in s.children(): x = c(x)
        return x.sum() * len(list(s.named_parameters()))
f = M().double()
""", ("", "", "_a = f.a; del f.a; f.a = _a", "f.c = nn.ReLU()", "f.p = nn.Parameter(torch.ones(1).double())")),
    "parameter-order": ("""\
class M(nn.Module):
    def __init__(s):
        super().__init__()
        for i in range(3): s.register_parameter(f'w{i}', nn.Parameter(torch.full((3,), i + 1.).double()))
    def forward(s, x): return sum((p * x).sum() * (i + 1) for i, p in enumerate(s.parameters()))
f = M()
""", ("", "", "_w = f.w0; del f.w0; f.w0 = _w", "f._parameters.move_to_end('w1') if hasattr(f._parameters, 'move_to_end') else f._parameters.update(w1=f._parameters.pop('w1'))", "")),
    "plain-dict-order": ("""\
d = {'a': 1., 'b': 2.}
def f(x): return sum((x * v).sum() * i for i, v in enumerate(d.values()))
""", ("", "", "d['a'] = d.pop('a')", "", "d.update(a=5.)")),
}  # fmt: skip


def _sequence(name: str, setup: str, steps: tuple[str, ...], *others: str) -> Sequence:
    call, after = (*others, *(CALL, AFTER)[len(others) :])
    return Sequence(f"users-{name}", setup + "\n", steps, call=call, after=after)


SEQUENCES = [_sequence(name, *row) for name, row in ROWS.items()]
