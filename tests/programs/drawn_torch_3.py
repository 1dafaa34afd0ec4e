"""Parts of drawn programs of torch (3 of 4); see `drawn.py`."""

PARTS = r"""
--- accum
@ ws = [1, 2, 3]
h = h * list(itertools.accumulate(ws))[-1]
! ws.append(4)
! ws[0] = 5
--- sorted
@ recs = [{'k': 2, 'v': 1.5}, {'k': 1, 'v': 0.5}]
h = h * sorted(recs, key=lambda r: r['k'])[0]['v']
! recs[0]['k'] = 0
! recs[1]['v'] = 3.0
! recs.append({'k': -1, 'v': 2.0})
--- hasattr
if hasattr(self, 'extra_scale'): h = h * self.extra_scale
if not hasattr(self, 'made'): self.made = h.shape[0]
! m.extra_scale = 2.0
! m.__dict__.pop('extra_scale', None)
! m.__dict__.pop('made', None)
! type(m).extra_scale = 0.5
--- vars
@ ns = types.SimpleNamespace(a=1.0, b=2.0)
for k, v in vars(ns).items(): h = h * v
! ns.a = 3.0
! ns.c = 0.5
! ns.__dict__.pop('b', None)
--- globalsd
@ g_scale = 2.0
h = h * globals()['g_scale']
! g_scale = 3.0
! globals()['g_scale'] = 0.25
--- deepc
@ cfg0 = {'w': [1.0, 2.0]}
c = copy.deepcopy(cfg0)
c['w'].append(3.0)
h = h * sum(c['w'])
! cfg0['w'][0] = 4.0
! cfg0['w'].append(0.5)
--- opover
@ class Vec:
@     def __init__(self, v): self.v = v
@     def __mul__(self, o): return Vec(self.v * o)
@     def __add__(self, o): return Vec(self.v + o.v)
@     def __rmul__(self, o): return self * o
@ vb = Vec(torch.ones(3).double())
h = (2 * (Vec(h) + vb) * 0.5).v
! vb.v = torch.zeros(3).double()
! vb = Vec(torch.full((3,), 2.0).double())
! vb.v.mul_(3)
! Vec.__mul__ = lambda self, o: Vec(self.v * o * 2)
--- ntup
@ class NT(__import__('typing').NamedTuple):
@     a: float = 1.0
@     w: object = None
@ nt = NT(2.0, torch.ones(3).double())
h = h * nt.a + nt.w
! nt = nt._replace(a=3.0)
! nt.w.mul_(2)
! nt = NT(1.0, torch.zeros(3).double())
--- frozen
@ @dataclasses.dataclass(frozen=True)
@ class Fz:
@     a: float = 1.0
@     t: object = dataclasses.field(default_factory=lambda: torch.ones(3).double())
@ fz = Fz()
h = h * fz.a + fz.t
! fz = dataclasses.replace(fz, a=2.0)
! object.__setattr__(fz, 'a', 5.0)
! fz.t.mul_(3)
! fz = Fz(0.5)
--- flag
@ class Fl(enum.Flag):
@     A = 1
@     B = 2
@     C = 4
@ fl = Fl.A | Fl.B
h = h * 2 if Fl.B in fl else h * 3
! fl = Fl.A
! fl |= Fl.C
! fl = Fl.B
--- intenum
@ class IE(enum.IntEnum):
@     X = 0
@     Y = 1
@ ie = IE.X
h = h[:, ie:] * (ie + 1)
! ie = IE.Y
! ie = IE.X
! ie = 1
--- deq2
@ dq = collections.deque([1.0, 2.0], maxlen=3)
dq.rotate(1)
h = h * dq[0] + dq[-1]
! dq.append(3.0)
! dq.appendleft(0.5)
! dq.rotate(1)
! dq.extend([1.0, 1.0])
--- weak
@ import weakref
@ class Ob: pass
@ ob = Ob()
@ ob.k = 2.0
@ wr = weakref.ref(ob)
h = h * (wr().k if wr() is not None else 1.0)
! ob.k = 3.0
! ob = Ob(); ob.k = 4.0
! wr = weakref.ref(ob)
--- partial
@ pt = functools.partial(torch.mul, other=2.0)
h = pt(h)
! pt.keywords['other'] = 3.0
! pt = functools.partial(torch.add, other=1.0)
! pt = functools.partial(torch.clamp, min=0.5)
--- opattr
@ ig = operator.itemgetter('k')
@ ag = operator.attrgetter('v.w')
@ bx = Box(v=Box(w=2.0))
@ dk = {'k': 1.5}
h = h * ig(dk) + ag(bx)
! dk['k'] = 2.5
! bx.v.w = 0.5
! bx.v = Box(w=9.0)
! ig = operator.itemgetter('z'); dk['z'] = 7.0
--- str
@ act = 'relu'
h = getattr(F, act)(h) + h
! act = 'gelu'
! act = 'softplus'
--- fstr
@ tab = {'w_3': 2.0, 'w_4': 3.0}
h = h * tab.get(f'w_{h.shape[1]}', 1.0)
! tab['w_3'] = 0.5
! tab.pop('w_3', None)
--- recur
@ def rec(z, n): return z if n == 0 else rec(z.sin() + z, n - 1)
@ dp = 2
h = rec(h, dp)
! dp = 3
! dp = 0
--- multiin
@ class Base:
@     def go(self, z): return z * 2
@ class Mix:
@     def go(self, z): return super().go(z) + 1
@ class Both(Mix, Base): pass
@ bo = Both()
h = bo.go(h)
! Base.go = lambda self, z: z * 3
! bo.go = lambda z: z - 1
! bo.__class__ = Base
--- listop
@ ls = [torch.ones(3).double(), torch.zeros(3).double()]
h = h + torch.stack(ls).sum(0)
ls[0], ls[1] = ls[1], ls[0]
! ls.append(torch.ones(3).double())
! ls[0].add_(1)
! ls[:] = ls[:1]
! ls.insert(0, torch.full((3,), 2.0).double())
! ls.reverse()
--- tlist
@ tl = (torch.ones(3).double(), [torch.zeros(3).double()])
h = h * tl[0] + tl[1][0]
! tl[1][0] = torch.ones(3).double()
! tl[0].mul_(2)
! tl = (tl[0] * 2, tl[1])
--- swapbuf
. self.register_buffer('a', torch.ones(3))
. self.register_buffer('b', torch.zeros(3))
self.a, self.b = self.b, self.a + 1
h = h * self.a + self.b
! m.a.zero_()
! m.a, m.b = m.b, m.a
--- dictbuf
. self.bank = {'q': torch.zeros(2, 3, dtype=torch.float64), 'p': 0}
with torch.no_grad():
    self.bank['q'][self.bank['p']] = h.mean(0)
self.bank['p'] = (self.bank['p'] + 1) % 2
h = h + self.bank['q'].sum(0)
! m.bank['q'].zero_()
! m.bank['p'] = 0
! m.bank = {'q': torch.ones(2, 3).double(), 'p': 1}
--- momentum
. self.t = nn.Linear(3, 3)
. self.s = nn.Linear(3, 3)
. self.s.requires_grad_(False)
with torch.no_grad():
    for a, b in zip(self.s.parameters(), self.t.parameters()): a.mul_(0.9).add_(b, alpha=0.1)
h = self.t(h) - self.s(h).detach()
! m.s.load_state_dict(m.t.state_dict())
! m.t.weight.data.zero_()
--- vq
. self.register_buffer('code', torch.randn(4, 3))
. self.register_buffer('use', torch.zeros(4))
d = torch.cdist(h, self.code)
idx = d.argmin(1)
q = self.code[idx]
if self.training:
    with torch.no_grad():
        self.use.index_add_(0, idx, torch.ones(idx.shape[0], dtype=self.use.dtype))
        self.code.index_add_(0, idx, 0.1 * (h - q).detach())
h = h + (q - h).detach()
! m.use.zero_()
! m.eval()
--- running
. self.register_buffer('cnt', torch.zeros((), dtype=torch.long))
. self.register_buffer('mu', torch.zeros(3))
if self.training:
    self.cnt += h.shape[0]; self.mu += (h.detach() - self.mu).sum(0) / self.cnt
h = (h - self.mu) / (1 + self.cnt)
! m.cnt.zero_()
! m.eval()
! m.train()
! m.mu = torch.ones(3).double()
--- ema2
. self.alpha = 0.9
. self.avg = None
v = h.detach().mean().item()
self.avg = v if self.avg is None else self.alpha * self.avg + (1 - self.alpha) * v
h = h / (1 + abs(self.avg))
! m.avg = None
! m.alpha = 0.5
! m.avg = 3.0
--- gumbel
. self.tau = 1.0
h = F.gumbel_softmax(h, tau=self.tau, hard=False) + h
self.tau = max(0.5, self.tau * 0.9)
! m.tau = 2.0
! torch.manual_seed(1)
--- droppath
. self.rate = 0.3
if self.training and self.rate > 0:
    keep = 1 - self.rate; mask = torch.rand(h.shape[0], 1, dtype=h.dtype).add_(keep).floor_()
    h = h / keep * mask
! m.rate = 0.0
! m.rate = 0.5
! m.eval()
--- sched2
. self.step = 0
. self.total = 10
self.step += 1
h = h * (0.5 * (1 + math.cos(math.pi * min(1.0, self.step / self.total))))
! m.step = 0
! m.total = 5
! m.step = 20
--- hookin
. self.inner = nn.Linear(3, 3)
. self.acts = {}
if not self.acts: self.inner.register_forward_hook(lambda mod, a, o: self.acts.__setitem__('o', o))
h = self.inner(h)
h = h + self.acts['o'] if 'o' in self.acts else h
! m.acts.clear()
--- freeze
. self.fr = nn.Linear(3, 3)
with torch.set_grad_enabled(self.training): z = self.fr(h)
h = h + z
! m.fr.weight.requires_grad_(False)
! m.eval()
! m.train()
--- autocast
. self.scale_on = False
. self.ac = nn.Linear(3, 3)
with torch.autocast('cpu', dtype=torch.bfloat16, enabled=self.scale_on): z = self.ac(h)
h = h + z.double()
! m.scale_on = True
! m.scale_on = False
--- multiout
a, b = h.contiguous().chunk(2, 0) if h.shape[0] % 2 == 0 else (h, h)
self.parts = (a, {'b': b})
h = h + self.parts[1]['b'].mean()
! m.parts = None
--- opt
. self.w0 = nn.Parameter(torch.ones(3))
if h.requires_grad or self.w0.requires_grad:
    with torch.enable_grad():
        e = (h * self.w0).sin().sum()
        g0, = torch.autograd.grad(e, self.w0, create_graph=True, allow_unused=True)
    h = h * (self.w0 - 0.1 * g0)
! m.w0.data.mul_(0.5)
--- inner
z = h.detach().requires_grad_()
with torch.enable_grad(): e = (z ** 3).sum(); g1, = torch.autograd.grad(e, z)
h = h - 0.1 * g1
"""
