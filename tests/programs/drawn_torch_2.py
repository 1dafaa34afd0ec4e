"""Parts of drawn programs of torch (2 of 4); see `drawn.py`."""

PARTS = r"""
--- auxlist
@ losses = []
losses.append(h.pow(2).mean())
! losses.clear()
--- np
@ _table = np.array([1.0, 2.0, 3.0])
h = h * torch.from_numpy(_table)
! _table[0] = 5
! _table = np.ones(3)
! _table += 1
--- const
@ W = torch.ones(3, dtype=torch.float64)
h = h @ torch.diag(W)
! W.mul_(2)
! W = torch.ones(3).double() * 4
! W.requires_grad_(True)
! W = nn.Parameter(torch.ones(3).double())
--- setattr
self.seen_shape = tuple(h.shape)
self.mean = h.detach().mean()
! m.__dict__.pop('mean', None)
! m.__dict__.pop('seen_shape', None)
--- pgrad
. self.pg = nn.Parameter(torch.ones(3))
if self.pg.grad is not None: h = h + self.pg.grad
h = h * self.pg
! m.pg.grad = None
! m.pg.grad = torch.ones(3).double()
--- lazy
. self.lazy = nn.LazyLinear(3)
h = self.lazy(h)
--- sn
. self.sn = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3))
h = self.sn(h)
! m.sn.eval()
--- prune
. self.pr = nn.Linear(3, 3)
h = self.pr(h)
! nn.utils.prune.l1_unstructured(m.pr, 'weight', amount=2)
! nn.utils.prune.remove(m.pr, 'weight') if nn.utils.prune.is_pruned(m.pr) else None
! torch.manual_seed(0); nn.utils.prune.random_unstructured(m.pr, 'weight', amount=1)
--- context
@ cv = contextvars.ContextVar('cv', default=1.0)
h = h * cv.get()
! cv.set(2.0)
--- sched
. self.sched = iter(itertools.count(1))
h = h * next(self.sched)
! m.sched = itertools.cycle([1, 2])
--- cb
. self.cbs = [lambda z: z * 2]
for cb in self.cbs: h = cb(h)
! m.cbs.append(lambda z: z + 1)
! m.cbs.clear()
! m.cbs = [torch.sin]
! m.cbs.append(functools.partial(torch.mul, other=3.0))
! m.cbs.append(nn.Tanh())
--- slots
@ class Sl:
@     __slots__ = ('a', 'n')
@     def __init__(self): self.a = 1.5; self.n = 0
@ sl = Sl()
sl.n += 1
h = h * sl.a + sl.n
! sl.a = 2.0
! sl.n = 0
! sl = Sl()
! sl.a = torch.ones(3).double()
! del sl.n; sl.n = 3
--- cachedprop
. self._k = 2.0
h = h * self.kk
! m._k = 5.0
! m.__dict__.pop('kk', None)
! m.kk = 7.0
--- setter
@ class Sp:
@     def __init__(self): self._v = 1.0; self.log = []
@     @property
@     def v(self): return self._v
@     @v.setter
@     def v(self, z): self.log.append(z); self._v = z
@ sp = Sp()
sp.v = sp.v + 0.5
h = h * sp.v
! sp.v = 0.0
! sp.log.clear()
! sp._v = 4.0
--- getattr
@ class Dy:
@     def __init__(self, **k): self.__dict__['d'] = k
@     def __getattr__(self, n):
@         try: return self.__dict__['d'][n]
@         except KeyError: raise AttributeError(n)
@     def __setattr__(self, n, v): self.d[n] = v
@ dy = Dy(a=2.0)
h = h * dy.a + (dy.b if hasattr(dy, 'b') else 0)
! dy.a = 3.0
! dy.b = 1.0
! dy.d.pop('b', None)
! dy = Dy(a=0.5)
--- attrdict
@ class AD(dict):
@     __getattr__ = dict.__getitem__
@     __setattr__ = dict.__setitem__
@ ad = AD(a=2.0, sub=AD(k=1))
ad.n = ad.get('n', 0) + 1
h = h * ad.a + ad.sub.k
! ad.a = 3.0
! ad['sub'].k = 4
! ad.sub = AD(k=7)
! ad.pop('n', None)
--- classm
@ class Cm:
@     n = 0
@     @classmethod
@     def up(cls): cls.n += 1; return cls.n
@     @staticmethod
@     def two(): return 2
@ class Cs(Cm): pass
h = h * Cs.up() + Cm.two()
! Cs.n = 0
! Cm.n = 5
! Cm.two = staticmethod(lambda: 3)
--- singled
@ @functools.singledispatch
@ def sd(z): return z * 2
@ @sd.register
@ def _(z: list): return z[0] * 3
h = sd(h) + sd([h])
! sd.register(torch.Tensor, lambda z: z * 5)
--- nonlocal
@ def mk():
@     n = 0
@     def inc():
@         nonlocal n
@         n += 1
@         return n
@     return inc
@ inc = mk()
h = h * inc()
! inc = mk()
! inc()
--- gen
@ def gg(z):
@     for i in range(3): yield z * i
h = sum(gg(h))
--- defaultmut
@ def acc(z, seen=[]):
@     seen.append(1)
@     return z * len(seen)
h = acc(h)
! acc.__defaults__[0].clear()
! acc.__defaults__ = ([1, 2],)
--- fattr
@ def fa(z):
@     fa.calls = getattr(fa, 'calls', 0) + 1
@     return z * fa.calls
h = fa(h)
! fa.calls = 0
! fa.__dict__.clear()
--- deco
@ def timed(fn):
@     @functools.wraps(fn)
@     def w(*a, **k):
@         w.n += 1
@         return fn(*a, **k)
@     w.n = 0
@     return w
@ @timed
@ def tf(z, k=2.0): return z * k
h = tf(h) + tf(h, k=0.5)
! tf.n = 0
! tf.__wrapped__.__defaults__ = (3.0,)
--- lrum
@ class Lm:
@     def __init__(self): self.w = 2.0
@     @functools.lru_cache(maxsize=8)
@     def t(self, n): return torch.arange(n).double() * self.w
@ lm = Lm()
h = h + lm.t(h.shape[-1])
! Lm.t.cache_clear()
! lm.w = 3.0
! lm = Lm()
! lm.w = 4.0; Lm.t.cache_clear()
--- counterc
@ cnt = collections.Counter()
cnt['f'] += 1
cnt[h.shape[0]] += 1
h = h * cnt['f']
! cnt.clear()
! cnt.update(f=2)
! cnt = collections.Counter(f=1)
--- odict
@ od = collections.OrderedDict(a=1.0, b=2.0)
for k, v in od.items(): h = h * v if k != 'b' else h + v
! od['a'] = 3.0
! od.move_to_end('a')
! od['c'] = 0.5
! od.pop('b', None)
! od['a'] = torch.ones(3).double()
--- chain
@ base = {'x': 1.0}
@ cm = collections.ChainMap({}, base)
h = h * cm['x']
! base['x'] = 2.0
! cm['x'] = 3.0
! cm.maps[0].clear()
--- ddict
@ dd = collections.defaultdict(list)
dd['l'].append(h.detach().sum())
h = h + sum(dd['l'])
! dd.clear()
! dd['l'] = [1.0]
--- heap
@ import heapq
@ hp = [3, 1, 2]
heapq.heappush(hp, len(hp))
h = h * hp[0]
! hp.clear(); hp.append(5)
! heapq.heappop(hp)
--- setp
@ st = set()
st.add(h.shape[0])
h = h * len(st)
! st.clear()
! st.update({1, 2})
--- bytes
@ ba = bytearray(b'abc')
ba[0] = (ba[0] + 1) % 256
h = h * (ba[0] % 3)
! ba[0] = 5
--- ctxm
@ depth = []
@ @contextlib.contextmanager
@ def scope(v):
@     depth.append(v)
@     try: yield sum(depth)
@     finally: depth.pop()
with scope(2.0) as s, scope(1.0) as q: h = h * s + q
! depth.append(1.0)
! depth.clear()
--- ctxc
@ class Cx:
@     on = 0
@     def __enter__(self): Cx.on += 1; return self
@     def __exit__(self, *a): Cx.on -= 1
with Cx() as c: h = h * Cx.on
! Cx.on = 2
! Cx.on = 0
--- exc
@ class Stop(Exception): pass
@ lim = 2
try:
    for i in range(4):
        if i > lim: raise Stop
        h = h * 1.1
except Stop: h = h + 1
else: h = h - 1
finally: h = h * 2
! lim = 5
! lim = 0
--- match
@ mode = ('a', 2)
match mode:
    case ('a', k): h = h * k
    case {'s': s}: h = h + s
    case [q, *rest]: h = h * q + len(rest)
    case _: h = h.sin()
! mode = ('a', 3)
! mode = {'s': 0.5}
! mode = [2.0, 1, 1]
! mode = None
! mode = ('a', torch.ones(3).double())
--- walrus
@ vals = [1.0, 2.0, 3.0]
h = h * sum(q for v in vals if (q := v * 2) > 2.5)
! vals[0] = 2.0
! vals.append(0.5)
! vals.clear(); vals.append(4.0)
--- star
@ def st3(a, *b, c=1.0, **d): return a * c + sum(b) + sum(d.values())
@ args3 = [1.0]
@ kw3 = {'c': 2.0, 'e': 0.5}
h = st3(h, *args3, **kw3)
! args3.append(2.0)
! kw3['c'] = 3.0
! kw3['z'] = 1.0
! args3.clear()
! kw3.pop('e', None)
--- reduce
@ ops = [torch.sin, torch.tanh]
h = functools.reduce(lambda a, f: f(a), ops, h)
! ops.append(torch.exp)
! ops.reverse()
! ops[0] = torch.cos
! ops.clear()
"""
