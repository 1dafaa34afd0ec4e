"""Parts of drawn programs of numpy; see `drawn.py`."""

PARTS = r"""
--- counter
@ S.n = 0
S.n += 1
h = h * S.n
! S.n = 0
! S.n = 2.5
! S.n = np.float64(1.5)
! S.n = True
! S.n = np.array(2.0)
! S.n = np.int64(3)
--- global
@ K = 1.5
@ N = 0
global N
N += 1
h = h * K + N
! K = 2.0
! K = np.array([1.0, 2.0, 3.0])[:1]
! N = 5
! K = 3
! K = np.float32(0.5)
--- const
@ W = np.arange(1.0, 4.0)
h = h * W[:1] + W.sum()
! W[0] = 5
! W = np.ones(3)
! W = np.ones(4)
! W *= 2
! W = W.astype(np.float32)
! W = np.arange(3)
! W[:] = W[::-1].copy()
! W = W[::-1]
--- matrix
@ A = np.eye(8)[:, ::-1] * 0.5 + np.eye(8)
h = A[:h.shape[0], :h.shape[0]] @ h
! A[0, 1] = 2
! A = A.T
! A = A.copy() * 2
! A = np.asfortranarray(A)
! A.setflags(write=False)
! A = A + 0j if False else A * 1.5
--- ema
@ S.ema = np.zeros(1)
S.ema = 0.9 * S.ema + 0.1 * h.mean()
h = h - S.ema
! S.ema = np.ones(1)
! S.ema = 0.5
--- last
@ S.last = None
if S.last is not None: h = h + S.last
S.last = h.mean()
! S.last = None
! S.last = 2.0
--- hist
@ H = []
H.append(h.sum())
h = h + sum(H) / len(H)
! H.clear()
! H.append(1.0)
! H = []
! H[:] = [np.float64(2.0)]
--- inplaceS
@ S.buf = np.zeros(3)
S.buf[1] = h.sum()
h = h + S.buf.sum()
! S.buf[:] = 1
! S.buf = np.zeros(3)
! S.buf = np.zeros(4)
--- cfg
@ C = {'a': 2, 'f': np.sin, 'd': {'p': 1.5}}
h = C['f'](h) ** C['a'] * C['d']['p']
! C['a'] = 3
! C['f'] = np.tanh
! C['d']['p'] = 0.5
! C = dict(C, a=1)
! C['a'] = 2.0
! C.update(a=3, f=np.cos)
! C['f'] = lambda z: z * 2
! C['a'] = np.int64(2)
--- branch
h = h * 2 if h.sum() > 0.5 else h.copy() - 1
--- branchg
@ MODE = 'a'
h = np.exp(-h) if MODE == 'a' else np.log1p(h * h)
! MODE = 'b'
! MODE = 'a'
--- loop
@ T = 3
for i in range(T): h = h + 0.1 * np.sin(h) * i
! T = 5
! T = 0
! T = 2
--- while
k = 0
while h.max() < 2 and k < 6:
    h = h * 1.5 + 0.1
    k += 1
--- memo
@ M = {}
if h.shape not in M: M[h.shape] = np.arange(float(h.size)).reshape(h.shape)
h = h + M[h.shape]
! M.clear()
! M[(3,)] = np.ones(3)
--- lru
@ @functools.lru_cache(None)
@ def table(n): return np.cos(np.arange(float(n)))
h = h * table(h.shape[0])
! table.cache_clear()
--- opt
@ @dataclasses.dataclass
@ class Opt:
@     lr: float = 0.1
@     n: int = 0
@ O = Opt()
O.n += 1
h = h * (1 - O.lr) ** O.n
! O.lr = 0.3
! O = Opt(0.2)
! O = dataclasses.replace(O, n=0)
--- enum
@ class Mode(enum.Enum):
@     A = 1
@     B = 2
@ mode = Mode.A
h = np.sin(h) if mode is Mode.A else np.cos(h)
! mode = Mode.B
! mode = Mode.A
--- cbs
@ CB = [lambda z: z * 2]
for cb in CB: h = cb(h)
! CB.append(np.sin)
! CB.clear()
! CB = [functools.partial(np.multiply, 3.0)]
! CB.insert(0, lambda z: z + 1)
--- prop
@ class P:
@     k = 1.0
@     @property
@     def gain(self): return self.k * 2
@ p = P()
h = h * p.gain
! p.k = 3.0
! P.k = 0.5
! P.gain = property(lambda self: self.k * 10)
! p = P()
--- draw
@ np.random.seed(3)
h = h + np.random.rand(*h.shape)
! np.random.seed(1)
! np.random.rand()
--- rng
@ R = np.random.default_rng(0)
h = h * (1 + R.random())
! R = np.random.default_rng(1)
! R.random()
--- pyrandom
@ random.seed(0)
h = h * (1 + random.random())
! random.seed(1)
--- inplace
h = h.copy()
h[0] = 1.0
h *= 2
h[1:] += h[:-1]
--- addat
@ IDX = np.array([0, 1, 0])
z = np.zeros(3)
np.add.at(z, IDX, np.resize(h, 3))
h = h + z.sum()
! IDX[0] = 2
! IDX = np.array([1, 1, 1])
! IDX = np.array([0, 2, 1], dtype=np.int32)
--- out
@ OUT = np.zeros(1)
h = np.multiply(h, 2.0, out=np.empty_like(h))
OUT[0] = h.sum()
! OUT[0] = 7
--- errstate
with np.errstate(all='ignore'): h = np.log(np.abs(h) + 1e-3)
--- raise
@ fail = False
if fail: raise ValueError('asked')
h = h * 1.1
! fail = True
! fail = False
--- try
@ D = {'k': 2.0}
try: q = D['k']
except KeyError: q = 0.5
h = h * q
! D.pop('k', None)
! D['k'] = 4.0
--- default
@ def inner(z, k=2.0, *, b=np.ones(1)): return z * k + b
h = inner(h)
! inner.__defaults__ = (3.0,)
! inner.__kwdefaults__ = {'b': np.zeros(1)}
! def inner(z, k=2.0): return z - k
--- cell
@ def make(k):
@     def go(z): return z * k
@     return go
@ go = make(2.0)
h = go(h)
! go = make(3.0)
! go.__closure__[0].cell_contents = 5.0
! go = make(np.array(2.0))
--- spline
@ CS = scipy.interpolate.CubicSpline(np.linspace(-9, 9, 19), np.sin(np.linspace(-9, 9, 19)))
h = CS(h) + h
! CS = scipy.interpolate.CubicSpline(np.linspace(-9, 9, 19), np.cos(np.linspace(-9, 9, 19)))
--- special
@ NU = 1.5
h = scipy.special.gammaln(np.abs(h) + NU) + scipy.special.expit(h)
! NU = 2.5
! NU = 3
--- stats
@ LOC = 0.5
h = scipy.stats.norm.logpdf(h, loc=LOC, scale=1.2)
! LOC = 1.0
! LOC = np.array([0.1])
--- frozen
@ FZ = scipy.stats.norm(0.2, 1.5)
h = FZ.logpdf(h)
! FZ = scipy.stats.norm(0.5, 1.0)
! FZ = scipy.stats.t(4.0)
--- linalg
h = np.linalg.solve(np.eye(h.size) * 2 + np.outer(h, h), h)
--- chol
@ JIT = 1e-1
L = np.linalg.cholesky(np.outer(h, h) + np.eye(h.size) * (1 + JIT))
h = scipy.linalg.solve_triangular(L, h, lower=True)
! JIT = 0.5
! JIT = 1
--- fft
h = np.abs(np.fft.rfft(h)) ** 2 if h.size < 3 else np.fft.irfft(np.fft.rfft(h), h.size)
--- einsum
@ SUB = 'i,i->i'
h = np.einsum(SUB, h, h)
! SUB = 'i,j->i'
--- deque
@ DQ = collections.deque([1.0], maxlen=2)
DQ.append(h.mean())
h = h * sum(DQ)
! DQ.clear(); DQ.append(1.0)
! DQ.append(0.5)
--- named
@ P2 = collections.namedtuple('P2', 'a b')
@ PT = P2(1.0, np.ones(1))
h = h * PT.a + PT.b
! PT = P2(2.0, np.zeros(1))
! PT = PT._replace(a=0.5)
! PT.b[0] = 3
--- sns
@ NS = types.SimpleNamespace(w=np.ones(1), k=2)
h = h * NS.w * NS.k
! NS.w[0] = 4
! NS.k = 3
! NS.w = np.full(1, 0.5)
! NS.k = 2.5
--- list
@ LW = [1.0, 2.0]
h = h * LW[0] + LW[-1] + len(LW)
! LW.append(3.0)
! LW[0] = 0.5
! LW = [0.1]
! LW[0] = np.float64(2.0)
--- set
@ ST = {1, 2}
h = h * len(ST) if 1 in ST else h * 7
! ST.add(5)
! ST.discard(1)
! ST = {1}
--- str
@ FN = 'sin'
h = getattr(np, FN)(h)
! FN = 'cos'
! FN = 'tanh'
--- method
@ class Net:
@     def __init__(self): self.w = np.full(1, 0.5); self.calls = 0
@     def __call__(self, z):
@         self.calls += 1
@         return np.tanh(z * self.w)
@ net = Net()
h = net(h)
! net.w[0] = 2
! net = Net()
! net.w = net.w * 3
! Net.__call__ = lambda self, z: z * self.w
--- argmax
h = h * h[np.argmax(h)] + np.argsort(h)
--- ctx
@ cv = contextvars.ContextVar('cv', default=1.5)
h = h * cv.get()
! cv.set(2.0)
--- quad
h = h + scipy.integrate.quad(lambda u: np.exp(-u * h[0] ** 2), 0, 1)[0]
--- root
@ TOL = 1e-12
h = h + scipy.optimize.brentq(lambda u: u ** 3 + u - h[0], -50, 50, xtol=TOL)
--- dict
@ DD = collections.defaultdict(lambda: 2.0)
h = h * DD['q']
DD['w'] += 1
! DD['q'] = 4.0
! DD.clear()
"""
