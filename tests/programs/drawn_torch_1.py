"""Parts of drawn programs of torch (1 of 4); see `drawn.py`."""

PARTS = r"""
--- linear
. self.l0 = nn.Linear(3, 3)
h = self.l0(h).tanh()
! m.l0.weight.requires_grad_(not m.l0.weight.requires_grad)
! m.l0.bias.data.mul_(1.5)
! m.l0.weight.data = m.l0.weight.data * 0.5
! m.l0 = nn.Linear(3, 3).double()
! m.l0.weight = nn.Parameter(m.l0.weight.detach() * 2)
! m.l0.bias = None
! m.l0.weight.grad = None
! m.l0.forward = lambda x: x * 2
! m.l0.__dict__.pop('forward', None)
--- bn
. self.bn = nn.BatchNorm1d(3)
h = self.bn(h)
! m.bn.eval()
! m.bn.train()
! m.bn.momentum = 0.5
! m.bn.reset_running_stats()
! m.bn.track_running_stats = False
! m.bn.running_mean.zero_()
! m.bn.eps = 0.1
! m.bn.num_batches_tracked = None
! m.bn.momentum = None
--- dropout
. self.drop = nn.Dropout(0.3)
h = self.drop(h)
! m.drop.p = 0.6
! m.drop.p = 0.0
! torch.manual_seed(3)
! m.drop.eval()
--- ln
. self.ln = nn.LayerNorm(3)
h = self.ln(h)
! m.ln.weight.data.fill_(2)
! m.ln.eps = 1e-2
--- counter
. self.n = 0
self.n += 1
h = h * self.n
! m.n = 0
! m.n = 2.5
! m.n = torch.tensor(2.0).double()
! m.n = True
! m.n = np.float64(1.5)
! del m.n; m.n = 1
--- buffer
. self.register_buffer('ema', torch.zeros(3))
with torch.no_grad():
    self.ema.mul_(0.9).add_(h.mean(0), alpha=0.1)
h = h - self.ema
! m.ema = torch.ones(3).double()
! m.ema.zero_()
! m.ema = m.ema.clone()
! m.register_buffer('ema', torch.full((3,), 2.0).double())
! m.ema.requires_grad_(False)
! _e = m.ema; _e += 1
--- buffer2
. self.register_buffer('sum', torch.zeros(3), persistent=False)
self.sum = self.sum + h.detach().sum(0)
h = h + self.sum.cos()
! m.sum = torch.ones(3).double()
! m.sum.zero_()
--- history
. self.hist = []
self.hist.append(h.detach().mean())
h = h + sum(self.hist) / len(self.hist)
! m.hist.clear()
! m.hist = []
! m.hist = m.hist[-1:]
! m.hist.append(torch.tensor(1.0).double())
! m.hist[:] = [1.0]
--- window
. self.win = collections.deque(maxlen=2)
self.win.append(h.detach().mean())
h = h * torch.stack(list(self.win)).mean()
! m.win.clear()
! m.win = collections.deque(maxlen=3)
! m.win.append(torch.tensor(0.5).double())
--- lastgrad
. self.last = None
if self.last is not None: h = h + self.last.detach()[:1]
self.last = h
! m.last = None
! m.last = torch.ones(2, 3).double()
! _l = m.last
--- scale
. self.scale = 0.7
. self.cfg = {'a': 2, 'act': 'tanh', 'deep': {'p': 1}}
h = getattr(torch, self.cfg['act'])(h * self.scale) ** self.cfg['a'] * self.cfg['deep']['p']
! m.scale = 1.3
! m.scale += 0.1
! m.cfg['a'] = 3
! m.cfg['act'] = 'sin'
! m.cfg = dict(m.cfg, a=1)
! m.cfg['deep']['p'] = 4
! m.scale = torch.tensor(0.3).double()
! m.scale = torch.tensor(0.3, requires_grad=True).double()
! m.cfg['a'] = 2.0
! m.cfg.update(a=3, act='cos')
! m.scale = np.float32(0.25)
--- training
h = h * 2 if self.training else h + 1
! m.eval()
! m.train()
! m.training = not m.training
--- layers
. self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(2)])
for l in self.layers: h = F.relu(l(h)) + h
! m.layers.append(nn.Linear(3, 3).double())
! m.layers[0], m.layers[1] = m.layers[1], m.layers[0]
! del m.layers[0]
! m.layers = m.layers[:1]
! m.layers[0].weight = m.layers[-1].weight
! m.layers[0].register_forward_hook(lambda mod, a, o: o * 2)
! m.layers[-1].register_forward_pre_hook(lambda mod, a: (a[0] + 1,))
! m.layers[-1].register_full_backward_hook(lambda mod, gi, go: (gi[0] * 2,))
! m.layers[0].requires_grad_(False)
! m.layers[0].requires_grad_(True)
! m.layers.extend([nn.Identity()])
! nn.init.ones_(m.layers[0].weight)
--- plist
. self.ps = nn.ParameterList([torch.ones(3) * 0.5, torch.ones(1)])
. self.pd = nn.ParameterDict({'a': torch.ones(3)})
h = h * self.ps[0] + self.ps[1] * self.pd['a']
! m.ps[0] = nn.Parameter(torch.full((3,), 2.0).double())
! m.pd['a'].data.add_(1)
! m.ps.append(torch.ones(2).double())
! m.pd['b'] = nn.Parameter(torch.ones(2).double())
! m.pd['a'] = nn.Parameter(torch.zeros(3).double())
--- tied
. self.t1 = nn.Linear(3, 3, bias=False)
. self.t2 = nn.Linear(3, 3, bias=False)
. self.t2.weight = self.t1.weight
h = self.t2(self.t1(h).sigmoid())
! m.t2.weight = nn.Parameter(m.t1.weight.detach().clone())
! m.t2.weight = m.t1.weight
! m.t1.weight.data.add_(0.1)
--- noise
h = h + torch.rand_like(h) * 0.1
! torch.manual_seed(1)
! torch.rand(2)
--- pyrandom
h = h * (1 + random.random())
! random.seed(1)
! random.random()
--- nprandom
h = h * float(np.random.rand())
! np.random.seed(1)
! np.random.rand()
--- global
@ STEP = 0
@ LOG = {}
global STEP
STEP += 1
LOG['n'] = LOG.get('n', 0) + 1
h = h / STEP
! STEP = 5
! LOG.clear()
! LOG = {'n': 7}
! STEP = 1.5
--- closure
@ _c = [1.0]
@ def factor(): return _c[0]
h = h * factor()
! _c[0] = 2.0
! _c[0] += 1
! def factor(): return 0.5
! factor = lambda: _c[0] * 3
! _c.insert(0, 4)
--- nograd
with torch.no_grad(): z = h.sigmoid()
h = h * z
--- checkpoint
. self.ck = nn.Linear(3, 3)
h = torch.utils.checkpoint.checkpoint(lambda a: self.ck(a).relu() + a, h, use_reentrant=False)
! m.ck.weight.data.mul_(2)
--- custom
@ class Sq(torch.autograd.Function):
@     calls = 0
@     @staticmethod
@     def forward(ctx, x):
@         ctx.save_for_backward(x); return x * x
@     @staticmethod
@     def backward(ctx, g):
@         x, = ctx.saved_tensors; Sq.calls += 1; return g * 3 * x
h = Sq.apply(h)
! Sq.calls = 0
--- thook
@ seen = []
if h.requires_grad: h.register_hook(lambda g: seen.append(g.sum().item()))
h = h * 1.5
! seen.clear()
--- thook2
if h.requires_grad: h.register_hook(lambda g: g * 2)
h = h.exp()
--- inplace
h = h.clone()
h[0] = 1.0
h.mul_(2)
h[:, 1] += h[:, 0]
--- item
. self.peak = 0.0
self.peak = max(self.peak, h.max().item())
h = h / (1 + abs(self.peak))
! m.peak = 0.0
! m.peak = 100.0
--- branch
h = h * 2 if h.sum() > 0 else h.sin()
--- shape
h = h[:2] if h.shape[0] > 3 else h * h.shape[0]
--- memo
@ @functools.lru_cache(None)
@ def table(n): return torch.arange(n).double().cos()
h = h + table(h.shape[-1])
! table.cache_clear()
--- cache
. self.memo = {}
if h.shape[0] not in self.memo:
    self.memo[h.shape[0]] = torch.arange(h.shape[0] * 3).double().reshape(-1, 3)
h = h + self.memo[h.shape[0]]
! m.memo.clear()
! m.memo[4] = torch.ones(4, 3).double()
--- classattr
@ class K:
@     n = 0
@     w = 2.0
K.n += 1
h = h * K.w
! K.n = 0
! K.w = 3.0
! K.w = torch.ones(3).double()
--- prop
. self._g = 1.0
h = h * self.gain
! m._g = 2.0
! type(m).gain = property(lambda self: self._g * 10)
--- emb
. self.emb = nn.Embedding(5, 3)
h = h + self.emb(torch.arange(h.shape[0]) % 5)
! m.emb.weight.data[0] = 0
! m.emb.padding_idx = 1
! m.emb.max_norm = 1.0
--- gru
. self.gru = nn.GRUCell(3, 3)
h = self.gru(h, h * 0.5)
! m.gru.weight_ih.data.mul_(2)
--- state
. self.carry = torch.zeros(1, 3)
c = (h.mean(0, keepdim=True) + self.carry.to(h)).tanh()
self.carry = c.detach()
h = h + c
! m.carry = torch.zeros(1, 3)
! m.carry = torch.ones(1, 3).double()
! m.carry.zero_()
! m.carry += 1
--- counterT
. self.register_buffer('k', torch.tensor(0))
self.k += 1
h = h * self.k
! m.k.zero_()
! m.k.fill_(3)
! m.k = torch.tensor(2)
--- raise
@ fail = False
if fail: raise ValueError('asked')
h = h * 1.1
! fail = True
! fail = False
--- requires
h = h * 3 if h.requires_grad else h * 5
--- gradmode
h = h * 3 if torch.is_grad_enabled() else h * 5
--- detached
h = h.detach() * 0.5 + h
--- dataclass
@ @dataclasses.dataclass
@ class Opt:
@     lr: float = 0.1
@     n: int = 0
. self.opt = Opt()
self.opt.n += 1
h = h * (1 - self.opt.lr) ** self.opt.n
! m.opt.lr = 0.3
! m.opt = Opt(0.2)
! m.opt = dataclasses.replace(m.opt, n=0)
--- enum
@ class Mode(enum.Enum):
@     A = 1
@     B = 2
@ mode = Mode.A
h = h.sin() if mode is Mode.A else h.cos()
! mode = Mode.B
! mode = Mode.A
--- lossattr
. self.aux = 0.0
self.aux = (h ** 2).mean()
! _a = m.aux
! m.aux = 0.0
"""
