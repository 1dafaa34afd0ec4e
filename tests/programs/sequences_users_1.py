"""Programs as torch users write them: parametrizations, distributions, averages, configurations."""

from __future__ import annotations

from typing import Any

from tests.programs.sequence import AFTER, CALL, Sequence

AGAIN = ("", "", "", "", "")

# name: setup that defines f, steps, and where they are others, call and what is done after it
ROWS: dict[str, tuple[Any, ...]] = {
    "weight-norm": ("""\
m = nn.utils.parametrizations.weight_norm(nn.Linear(3, 3).double())
f = m
""", ("", "", "m.parametrizations.weight.original0.data.mul_(2)", "nn.utils.parametrize.remove_parametrizations(m, 'weight')", "")),
    "spectral-norm": ("""\
m = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3).double())
def f(x): return m(x).pow(2).sum()
""", ("", "", "m.eval()", "m.train()", "")),
    "orthogonal": ("""\
m = nn.utils.parametrizations.orthogonal(nn.Linear(3, 3).double())
def f(x): return m(x).pow(2).sum()
""", AGAIN),
    "parametrize-cached": ("""\
class Sym(nn.Module):
    n = 0
    def forward(self, X):
        Sym.n += 1; return X.triu() + X.triu(1).T
m = nn.Linear(3, 3).double()
nn.utils.parametrize.register_parametrization(m, 'weight', Sym())
def f(x):
    with nn.utils.parametrize.cached(): return (m(x) + m(x * 2)).sum()
""", AGAIN),
    "prune": ("""\
from torch.nn.utils import prune
m = nn.Linear(3, 3).double()
prune.l1_unstructured(m, 'weight', amount=2)
f = m
""", ("", "", "prune.random_unstructured(m, 'weight', amount=1)", "prune.remove(m, 'weight')", "")),
    "old-weight-norm": ("""\
with warnings.catch_warnings():
    warnings.simplefilter('ignore')
    m = nn.utils.weight_norm(nn.Linear(3, 3).double())
f = m
""", ("", "", "m.weight_g.data.mul_(3)", "", "")),
    "ensemble": ("""\
from torch.func import stack_module_state, functional_call, vmap
ms = [nn.Linear(3, 2).double() for _ in range(3)]
params, buffers = stack_module_state(ms)
_base = copy.deepcopy(ms[0]).to('meta')
def one(p, b, x): return functional_call(_base, (p, b), (x,))
def f(x): return vmap(one, in_dims=(0, 0, None))(params, buffers, x).sum()
""", ("", "", "params['weight'].data.mul_(2)", "", "")),
    "functional-call": ("""\
from torch.func import functional_call
net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).double()
p = {k: v.detach().clone().requires_grad_() for k, v in net.named_parameters()}
def f(x): return functional_call(net, p, (x.expand(4, 3) * torch.arange(1., 5.).double()[:, None],)).pow(2).sum()
""", ("", "", "p['0.weight'] = p['0.weight'].detach().mul(2).requires_grad_()", "net.eval()", "")),
    "swa": ("""\
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
net = nn.Linear(3, 3).double()
ema = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9))
def f(x):
    ema.update_parameters(net)
    return (net(x) - ema(x)).pow(2).sum() + net(x).sum()
""", ("", "net.weight.data.mul_(2)", "", "net.bias.data.add_(1)", "")),
    "lr-in-closure": ("""\
net = nn.Linear(3, 3).double()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 10)
def f(x): return net(x).sum() * sched.get_last_lr()[0]
""", ("", "opt.step(); sched.step()", "opt.step(); sched.step()", "sched.step()", "opt.param_groups[0]['lr'] = 7.; sched._last_lr = [3.]")),
    "function-subclass": ("""\
class T(torch.Tensor):
    log = []
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.log.append(getattr(func, '__name__', '?'))
        return super().__torch_function__(func, types, args, kwargs or {})
w = torch.ones(3).double().as_subclass(T)
def f(x): return (x * w).sum()
""", AGAIN),
    "plain-subclass": ("""\
class Q(torch.Tensor):
    scale = 2.
    def scaled(self): return self * self.scale
def f(x): return x.as_subclass(Q).scaled().sum().as_subclass(torch.Tensor)
""", ("", "", "Q.scale = 3.", "", "")),
    "normal-rsample": ("""\
from torch.distributions import Normal, kl_divergence
loc = nn.Parameter(torch.zeros(3).double()); ls = nn.Parameter(torch.zeros(3).double())
torch.manual_seed(3)
def f(x):
    d = Normal(loc, ls.exp()); z = d.rsample()
    return (z * x).sum() + kl_divergence(d, Normal(0., 1.)).sum() - d.log_prob(x).sum()
""", ("", "", "ls.data.add_(0.5)", "torch.manual_seed(1)", "")),
    "mvn": ("""\
from torch.distributions import MultivariateNormal
scale = nn.Parameter(torch.eye(3).double())
d = MultivariateNormal(torch.zeros(3).double(), scale_tril=scale)
def f(x): return d.log_prob(x) + d.covariance_matrix.sum() + d.entropy()
""", ("", "", "scale.data.mul_(2)", "", "")),
    "mixture": ("""\
from torch.distributions import MixtureSameFamily, Categorical, Independent, Normal
logits = nn.Parameter(torch.zeros(2).double()); mu = nn.Parameter(torch.randn(2, 3).double())
def f(x):
    d = MixtureSameFamily(Categorical(logits=logits), Independent(Normal(mu, torch.ones(2, 3).double()), 1))
    return d.log_prob(x)
""", ("", "", "mu.data.mul_(2)", "torch.distributions.Distribution.set_default_validate_args(False)", "")),
    "transformed": ("""\
from torch.distributions import *
from torch.distributions import transforms as TT
a = nn.Parameter(torch.tensor(0.3).double())
def f(x):
    t = TT.ComposeTransform([TT.ExpTransform(), TT.AffineTransform(a, 2.)])
    return TransformedDistribution(Normal(torch.zeros(3).double(), 1.), t).log_prob(x + 3).sum()
""", ("", "", "a.data.add_(0.1)", "", "")),
    "lazy-property": ("""\
from torch.distributions.utils import lazy_property
class D:
    def __init__(self, w): self.w = w
    @lazy_property
    def sq(self): return self.w * self.w
w = nn.Parameter(torch.ones(3).double())
d = D(w)
def f(x): return (d.sq * x).sum()
""", ("", "", "d = D(w)", "d.sq = torch.zeros(3).double()", ""), CALL, "out.backward(retain_graph=True)"),
    "dataclass-config": ("""\
@dataclasses.dataclass(frozen=True)
class C:
    k: float = 2.
    act: str = 'tanh'
cfg = C()
def f(x): return (getattr(torch, cfg.act)(x) * cfg.k).sum()
""", ("", "cfg = dataclasses.replace(cfg, k=3.)", "cfg = dataclasses.replace(cfg, act='sin')", "object.__setattr__(cfg, 'k', 9.)", "cfg = C()")),
    "slots-dataclass": ("""\
@dataclasses.dataclass(slots=True)
class C:
    k: float = 2.
    n: int = 0
c = C()
def f(x):
    c.n += 1; return (x * c.k * c.n).sum()
""", ("", "", "c.k = 5.", "c = C(1., 10)", "")),
    "enum": ("""\
class Act(enum.Enum):
    A = 'tanh'
    B = 'sin'
    def __call__(self, x): return getattr(torch, self.value)(x)
class Fl(enum.IntFlag):
    X = 1
    Y = 2
a = Act.A; fl = Fl.X
def f(x): return (a(x) * (2 if fl & Fl.Y else 1)).sum()
""", ("", "a = Act.B", "fl |= Fl.Y", "fl = Fl.Y", "a = Act('tanh')")),
    "contextvar": ("""\
cv = contextvars.ContextVar('cv', default=1.)
tok = []
def f(x):
    t = cv.set(cv.get() * 2)
    try: return (x * cv.get()).sum()
    finally: cv.reset(t)
""", ("", "", "tok.append(cv.set(4.))", "cv.reset(tok.pop())", "")),
    "contextvar-kept": ("""\
cv = contextvars.ContextVar('cv', default=1.)
def f(x):
    cv.set(cv.get() + 1); return (x * cv.get()).sum()
""", ("", "", "now = cv.get()", "cv.set(10.)", "now = cv.get()")),
    "module-dict-order": ("""\
m = nn.ModuleDict({'a': nn.Linear(3, 3), 'b': nn.Tanh()}).double()
def f(x):
    for k, l in m.items(): x = l(x)
    return x.sum()
""", ("", "", "_a = m.pop('a'); m['a'] = _a", "m['c'] = nn.Sigmoid()", "del m['b']")),
    "parameter-list": ("""\
ps = nn.ParameterList([torch.ones(3).double() * i for i in range(1, 3)])
def f(x): return sum((p * x).sum() for p in ps)
""", ("", "", "ps.append(nn.Parameter(torch.ones(3).double() * 5))", "ps[0] = nn.Parameter(torch.zeros(3).double())", "")),
    "parameter-dict": ("""\
ps = nn.ParameterDict({'a': torch.ones(3).double()})
def f(x): return sum((p * x).sum() * len(k) for k, p in ps.items())
""", ("", "", "ps['bb'] = nn.Parameter(torch.ones(3).double())", "ps.pop('a')", "")),
    "cached-property": ("""\
class M(nn.Module):
    def __init__(self):
        super().__init__(); self.l = nn.Linear(3, 3).double(); self.k = 2.
    @functools.cached_property
    def table(self): return torch.arange(3.).double() * self.k
    def forward(self, x): return (self.l(x) * self.table).sum()
f = M()
""", ("", "f.k = 3.", "del f.table", "", "f.table = torch.ones(3).double()")),
    "processor": ("""\
class P0:
    def __call__(self, attn, x, scale=1.0): return attn.q(x) * scale
class P1:
    n = 0
    def __call__(self, attn, x, scale=1.0):
        self.n += 1; return torch.tanh(attn.q(x)) * scale + self.n
class Attn(nn.Module):
    def __init__(self):
        super().__init__(); self.q = nn.Linear(3, 3).double(); self.processor = P0()
    def set_processor(self, p): self.processor = p
    def forward(self, x, **kw):
        import inspect
        ok = set(inspect.signature(self.processor.__call__).parameters)
        return self.processor(self, x, **{k: v for k, v in kw.items() if k in ok}).sum()
f = Attn()
""", ("", "", "f.set_processor(P1())", "", "f.processor.n = 7"), "args = (t(3),); out = g(*args, scale=2., junk=3)"),
    "res-block": ("""\
class R(nn.Module):
    def __init__(s):
        super().__init__(); s.n = nn.GroupNorm(1, 2); s.c = nn.Conv2d(2, 2, 3, padding=1); s.e = nn.Linear(3, 2); s.up = nn.Upsample(scale_factor=2.)
    def forward(s, x, temb):
        h = s.c(F.silu(s.n(x))) + s.e(temb)[:, :, None, None]
        return s.up(h).mean() + F.interpolate(h, scale_factor=1.5, mode='bilinear').sum()
f = R().double()
""", ("", "", "f.up.scale_factor = 3.", "f.n.eps = 0.5", ""), "args = (t(1, 2, 4, 4), t(1, 3)); out = g(*args)"),
    "maml": ("""\
net = nn.Linear(3, 3).double()
lr = 0.1
def f(x):
    w, b = net.weight, net.bias
    for _ in range(2):
        gw, gb = torch.autograd.grad(F.linear(x, w, b).pow(2).sum(), (w, b), create_graph=True)
        w, b = w - lr * gw, b - lr * gb
    return F.linear(x, w, b).pow(2).sum()
""", ("", "", "lr = 0.2", "", "lr = 0.3")),
    "getattr-delegate": ("""\
class Wrap(nn.Module):
    def __init__(s, m): super().__init__(); s.m = m
    def __getattr__(s, n):
        try: return super().__getattr__(n)
        except AttributeError: return getattr(s.m, n)
    def forward(s, x): return F.linear(x, s.weight, s.bias).sum() * s.k
inner = nn.Linear(3, 3).double(); inner.k = 2.
f = Wrap(inner)
""", ("", "", "inner.k = 3.", "f.k = 5.", "inner.weight = nn.Parameter(torch.eye(3).double())")),
    "hook-kwargs": ("""\
net = nn.Linear(3, 3).double()
log = []
def h(m, a, kw, o): log.append(sorted(kw)); return o * len(kw)
class M(nn.Module):
    def __init__(s): super().__init__(); s.l = net
    def forward(s, x, *, k=1., j=2.): return s.l(x) * k * j
m = M(); hd = m.register_forward_hook(h, with_kwargs=True, always_call=True)
def f(x): return m(x, k=3.).sum()
""", ("", "", "hd.remove()", "hd = m.register_forward_hook(h, with_kwargs=True, prepend=True)", "")),
    "hook-order": ("""\
net = nn.Linear(3, 3).double()
act = nn.Tanh()
m = nn.Sequential(net, act)
act.register_forward_pre_hook(lambda mod, a: (a[0] * 2,))
act.register_forward_pre_hook(lambda mod, a: (a[0] + 1,), prepend=True)
def f(x): return m(x).sum()
""", ("", "", "act._forward_pre_hooks.move_to_end(list(act._forward_pre_hooks)[0])", "", "act._forward_pre_hooks.clear()")),
    "class-counter": ("""\
class A:
    made = 0
    def __init__(s, k): A.made += 1; s.k = k
    def __init_subclass__(cls, **kw): cls.reg = kw
class B(A, name='b'): pass
def f(x):
    b = B(2.); return (x * b.k * A.made * len(B.reg)).sum()
""", ("", "", "A.made = 10", "B.reg['z'] = 1", "")),
    "weakref-cache": ("""\
import weakref
net = nn.Linear(3, 3).double()
cache = weakref.WeakKeyDictionary(); r = weakref.ref(net)
def f(x):
    m = r()
    if m not in cache: cache[m] = len(cache) + 1.
    return m(x).sum() * cache[m]
""", ("", "", "cache[net] = 4.", "", "")),
    "mappings": ("""\
base = {'k': 2.}; over = {}
cm = collections.ChainMap(over, base); mp = types.MappingProxyType(base); ns = types.SimpleNamespace(j=1.)
cnt = collections.Counter()
def f(x):
    cnt['f'] += 1; return (x * cm['k'] * mp['k'] * ns.j * cnt['f']).sum()
""", ("", "", "over['k'] = 5.", "ns.j = 2.", "base['k'] = 1.")),
    "exit-stack": ("""\
on = True
@contextlib.contextmanager
def scale(k):
    stack.append(k)
    try: yield
    finally: stack.pop()
stack = []
def f(x):
    with contextlib.ExitStack() as st:
        if on: st.enter_context(scale(2.))
        st.enter_context(torch.set_grad_enabled(True)); st.callback(done.append, 1)
        return (x * (stack[-1] if stack else 1.)).sum()
done = []
""", ("", "", "on = False", "", "on = True")),
    "checkpoint-reentrant": ("""\
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Dropout(0.5), nn.Linear(3, 3)).double()
torch.manual_seed(0)
def f(x): return checkpoint_sequential(net, 2, x, use_reentrant=False).sum() + checkpoint(net, x, use_reentrant=True).sum()
""", ("", "", "net.eval()", "net[3].weight.data.mul_(2)", "")),
    "tensor-attribute": ("""\
w = nn.Parameter(torch.ones(3).double()); w.tag = 'a'
def f(x): return (x * w).sum() * (2 if w.tag == 'a' else 3)
""", ("", "", "w.tag = 'b'", "del w.tag; w.tag = 'a'", "")),
    "grad-enabled-flag": ("""\
net = nn.Linear(3, 3).double()
flag = True
@torch.no_grad()
def target(x): return net(x) * 2
def f(x):
    with torch.set_grad_enabled(flag): h = net(x)
    return (h - target(x)).pow(2).sum() + x.sum()
""", ("", "", "flag = False", "", "flag = True")),
    "fork-rng": ("""\
torch.manual_seed(1)
def f(x):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5); m = torch.rand(3).double()
    return (x * m * torch.rand(3).double()).sum()
""", ("", "", "torch.manual_seed(9)", "", "")),
    "dict-missing": ("""\
class D(dict):
    def __missing__(s, k): s[k] = len(s) + 1.; return s[k]
d = D()
key = 'a'
def f(x): return (x * d[key]).sum()
""", ("", "", "key = 'b'", "d['a'] = 9.", "key = 'a'")),
    "user-container": ("""\
class Bag(collections.UserList):
    def __bool__(s): return len(s) > 2
    def __contains__(s, v): return v in s.data
b = Bag([1., 2.])
def f(x): return x.sum() * (2 if b else 3) * sum(b) * (5 if 7. in b else 1)
""", ("", "", "b.append(3.)", "b.data[0] = 7.", "b.clear()")),
    "eq-class": ("""\
class V:
    def __init__(s, a): s.a = a
    def __eq__(s, o): return s.a == o.a
    def __hash__(s): return hash(s.a)
table = {V(1): 2., V(2): 3.}; v = V(1)
def f(x): return (x * table[v]).sum()
""", ("", "", "v = V(2)", "table[V(2)] = 8.", "v = V(1)")),
    "fractions": ("""\
from fractions import Fraction
k = Fraction(1, 3); z = 1 + 2j; big = 10**20
def f(x): return (x * float(k)).sum() * abs(z) + (big % 7)
""", ("", "", "k = Fraction(2, 3)", "z = 3j", "big += 1")),
    "signed-zero": ("""\
k = 0.0
def f(x): return (x * 0 + math.copysign(1.0, k)).sum() + x.sum()
""", ("", "k = -0.0", "k = float('nan')", "k = float('inf')", "k = 0.0")),
    "grl": ("""\
class GRL(torch.autograd.Function):
    lam = 1.0
    @staticmethod
    def forward(ctx, x): ctx.lam = GRL.lam; return x.view_as(x)
    @staticmethod
    def backward(ctx, g): return -ctx.lam * g
def f(x): return GRL.apply(x * 2).sum()
""", ("", "", "GRL.lam = 3.", "", "GRL.lam = 4.")),
    "frozen-toggle": ("""\
net = nn.Linear(3, 3).double()
def f(x): return net(x).sum() * (2 if net.weight.requires_grad else 3)
""", ("", "", "net.weight.requires_grad_(False)", "", "net.requires_grad_(True)")),
    "dropout-p": ("""\
d = nn.Dropout(0.5); torch.manual_seed(2)
def f(x): return (d(x.expand(5, 3))).sum()
""", ("", "", "d.p = 0.1", "d.eval()", "d.train(); d.p = 1.0")),
    "bn-momentum": ("""\
bn = nn.BatchNorm1d(3, momentum=None).double()
def f(x): return bn(x).pow(3).sum()
""", ("", "", "bn.momentum = 0.3", "bn.track_running_stats = False", "bn.eval()"), "args = (t(4, 3),); out = g(*args)"),
}  # fmt: skip


def _sequence(name: str, setup: str, steps: tuple[str, ...], *others: str) -> Sequence:
    call, after = (*others, *(CALL, AFTER)[len(others) :])
    return Sequence(f"users-{name}", setup + "\n", steps, call=call, after=after)


SEQUENCES = [_sequence(name, *row) for name, row in ROWS.items()]
