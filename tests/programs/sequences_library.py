"""Programs in the manner of well-known libraries, written anew: trainers, wrappers, metrics, caches.

Each is one class with the state that such classes keep between calls.
"""

from __future__ import annotations

from tests.programs.sequence import Sequence

AGAIN = ("", "", "", "", "")
_ROW = "args = (t(4, 3),); out = g(*args)"
_LINEAR = "torch.manual_seed(1)\n"

# name: setup that defines f, steps
ROWS: dict[str, tuple[str, tuple[str, ...]]] = {
    "lightning": ("""\
class Trainer:
    global_step, callback_metrics, logged = 0, {}, []
class LightningModule(nn.Module):
    trainer = None
    @property
    def global_step(self): return self.trainer.global_step
    def log(self, name, value, on_step=True):
        value = value.detach() if isinstance(value, torch.Tensor) else torch.tensor(value)
        self.trainer.callback_metrics[name] = value
        self.trainer.logged.append((name, self.global_step))
class Model(LightningModule):
    def __init__(self):
        super().__init__(); self.net = nn.Linear(3, 1).double(); self.hparams = Box(weight=0.5)
    def training_step(self, batch):
        loss = self.net(batch).pow(2).mean() * self.hparams.weight
        self.log('loss', loss); self.log('step', float(self.global_step))
        return {'loss': loss, 'n': len(batch)}
m = Model(); trainer = m.trainer = Trainer(); f = m.training_step
""", ("", "trainer.global_step += 1", "trainer.global_step += 1; m.hparams.weight = 0.25", "")),
    "accelerate-forward-replaced": ("""\
f = nn.Linear(3, 2).double()
def convert(h):
    @functools.wraps(h)
    def inner(*a, **k): calls.append(1); return h(*a, **k).float()
    return inner
calls = []
f.forward = convert(f.forward)
""", ("", "", "f.forward = convert(f.forward)", "del f.forward", "")),
    "ema": ("""\
class EMA:
    def __init__(self, m): self.m, self.n, self.shadow = m, 0, {k: v.clone() for k, v in m.state_dict().items()}
    def update(self):
        self.n += 1; d = min(0.9, (1 + self.n) / (10 + self.n))
        for k, v in self.m.state_dict().items(): self.shadow[k].mul_(d).add_(v.detach(), alpha=1 - d)
net = nn.Linear(3, 2).double(); ema = EMA(net)
def f(x):
    ema.update(); return net(x).sum()
""", ("", "", "net.weight.data.mul_(2)", "", "ema.n = 0")),
    "ema-teacher": ("""\
net = nn.Linear(3, 2).double(); teacher = copy.deepcopy(net).requires_grad_(False)
def f(x):
    with torch.no_grad():
        for a, b in zip(teacher.parameters(), net.parameters()): a.mul_(0.9).add_(b, alpha=0.1)
        target = teacher(x)
    return F.mse_loss(net(x), target)
""", ("", "net.weight.data.mul_(2)", "", "")),
    "metric": ("""\
class Metric:
    def __init__(self): self.reset()
    def reset(self): self.total, self.count, self.values, self._update_count = torch.zeros(()).double(), 0, [], 0
    def update(self, v):
        self._update_count += 1; self.count += v.numel(); self.total = self.total + v.detach().sum(); self.values.append(v.detach().max())
    def compute(self): return self.total / self.count + torch.stack(self.values).mean()
    def __call__(self, v): self.update(v); return self.compute()
metric = Metric(); shown = []
def f(x):
    shown.append(metric(x)); return x.sum()
""", ("", "", "", "metric.reset()", "")),
    "metric-dict": ("""\
class Meter:
    def __init__(self): self.sum = self.n = 0.0
    def add(self, v, n=1): self.sum += v * n; self.n += n
    @property
    def mean(self): return self.sum / max(self.n, 1)
meters = collections.defaultdict(Meter)
def f(x):
    loss = x.pow(2).mean(); meters['loss'].add(loss.item(), len(x)); meters['n'].add(len(x)); return loss / (1 + meters['n'].mean)
""", ("", "", "meters.clear()", "")),
    "loss-scale": ("""\
class Scale:
    def __init__(self): self.scale, self.good = 4.0, 0
    def __call__(self, loss):
        if math.isfinite(loss.item()): self.good += 1
        else: self.scale /= 2
        if self.good == 2: self.scale, self.good = self.scale * 2, 0
        return loss * self.scale
scale = Scale()
def f(x): return scale(x.pow(2).sum())
""", AGAIN),
    "memory-bank": ("""\
class MoCo(nn.Module):
    def __init__(self):
        super().__init__(); self.net = nn.Linear(3, 2).double()
        self.register_buffer('queue', torch.eye(2, 8).double()); self.register_buffer('ptr', torch.zeros(1, dtype=torch.long))
    def forward(self, x):
        q = F.normalize(self.net(x), dim=1); k = q.detach()
        logits = q @ self.queue.clone().detach()
        with torch.no_grad():
            p = int(self.ptr); self.queue[:, p:p + len(k)] = k.T; self.ptr[0] = (p + len(k)) % 8
        return logits.logsumexp(1).sum()
f = MoCo()
""", AGAIN),
    "codebook": ("""\
class VQ(nn.Module):
    def __init__(self):
        super().__init__(); self.register_buffer('book', torch.arange(6.).reshape(2, 3).double()); self.register_buffer('size', torch.zeros(2).double())
    def forward(self, x):
        d = torch.cdist(x, self.book); i = d.argmin(1); one = F.one_hot(i, 2).double()
        if self.training:
            self.size.data.mul_(0.9).add_(one.sum(0), alpha=0.1)
            self.book.data.lerp_((one.T @ x.detach()) / one.sum(0).clamp(min=1)[:, None], 0.1)
        q = self.book[i]; return (x + (q - x).detach()).sum() + F.mse_loss(x, q.detach())
f = VQ()
""", ("", "", "f.eval()", "f.train()", "")),
    "normaliser": ("""\
class Norm(nn.Module):
    def __init__(self): super().__init__(); self.n = 0; self.mean = 0.0; self.m2 = 0.0
    def forward(self, x):
        if self.training:
            for v in x.detach().flatten()[:2]:
                self.n += 1; d = v.item() - self.mean; self.mean += d / self.n; self.m2 += d * (v.item() - self.mean)
        return ((x - self.mean) / math.sqrt(self.m2 / max(1, self.n - 1) + 1e-3)).pow(2).sum()
f = Norm()
""", ("", "", "", "f.eval()", "")),
    "replay-buffer": ("""\
class Buffer:
    def __init__(self): self.items = collections.deque(maxlen=6)
    def push(self, rows): self.items.extend(rows.detach().unbind())
    def sample(self, n): return torch.stack(random.sample(list(self.items), n))
buffer = Buffer(); net = nn.Linear(3, 1).double()
def f(x):
    buffer.push(x); return net(buffer.sample(3)).pow(2).mean() + x.sum()
""", AGAIN),
    "target-network": ("""\
net = nn.Linear(3, 2).double(); target = copy.deepcopy(net); steps = 0
def f(x):
    global steps
    steps += 1
    if steps % 2 == 0: target.load_state_dict(net.state_dict())
    return F.mse_loss(net(x).max(1).values, target(x).max(1).values.detach())
""", ("", "net.weight.data.mul_(2)", "", "net.weight.data.mul_(2)", "")),
    "layer-drop": ("""\
layers = nn.ModuleList([nn.Linear(3, 3).double() for _ in range(3)])
def f(x):
    for layer in layers:
        if random.random() < 0.6: x = x + layer(x)
    return x.sum()
""", AGAIN),
    "curriculum": ("""\
class C(nn.Module):
    def __init__(self): super().__init__(); self.depth = 1; self.net = nn.Linear(3, 3).double()
    def forward(self, x):
        for _ in range(self.depth): x = torch.tanh(self.net(x))
        return x.sum()
    def grow(self): self.depth += 1
f = C()
""", ("", "", "f.grow()", "", "f.grow()", "f.depth = 1")),
    "gumbel": ("""\
class G(nn.Module):
    def __init__(self): super().__init__(); self.tau = 2.0
    def forward(self, x): self.tau = max(0.5, self.tau * 0.7); return F.gumbel_softmax(x, self.tau, hard=True).pow(2) * x
f = G()
""", AGAIN),
    "gradient-reversal": ("""\
class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k): ctx.k = k; return x.view_as(x)
    @staticmethod
    def backward(ctx, g): return -ctx.k * g, None
class R(nn.Module):
    def __init__(self): super().__init__(); self.k = 0.1
    def forward(self, x): self.k = min(1.0, self.k * 2); return Reverse.apply(x, self.k).pow(2).sum()
f = R()
""", AGAIN),
    "function-with-class-state": ("""\
class Scaled(torch.autograd.Function):
    scale, runs = 2.0, []
    @staticmethod
    def forward(ctx, x): ctx.save_for_backward(x); return x * Scaled.scale
    @staticmethod
    def backward(ctx, g): Scaled.runs.append(1); return g * Scaled.scale * ctx.saved_tensors[0]
def f(x): return Scaled.apply(x).sum()
""", ("", "", "Scaled.scale = 5.0", "")),
    "rotary-cache": ("""\
class Rotary(nn.Module):
    def __init__(self): super().__init__(); self.longest = 0
    def forward(self, x):
        if len(x) > self.longest:
            self.longest = len(x); angle = torch.arange(len(x)).double()
            self.register_buffer('cos', angle.cos()[:, None], persistent=False); self.register_buffer('sin', angle.sin()[:, None], persistent=False)
        return (x * self.cos[:len(x)] + x.roll(1, 1) * self.sin[:len(x)]).pow(2).sum()
f = Rotary()
""", ("args = (t(4, 3),)", "args = (t(2, 3),)", "args = (t(6, 3),)", "args = (t(4, 3),)", "args = (t(6, 3),)")),
    "generate-with-cache": ("""\
class Attention(nn.Module):
    def __init__(self): super().__init__(); self.qkv = nn.Linear(3, 9).double(); self.cache = None
    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        if self.cache is not None: k, v = torch.cat([self.cache[0], k]), torch.cat([self.cache[1], v])
        self.cache = (k.detach(), v.detach())
        return (q @ k.T).softmax(-1) @ v
f = Attention()
""", ("args = (t(2, 3),)", "args = (t(1, 3),)", "args = (t(1, 3),)", "f.cache = None; args = (t(2, 3),)", "args = (t(1, 3),)")),
    "wrapper-getattr": ("""\
class Wrapper(nn.Module):
    def __init__(self, m): super().__init__(); self.base_model = m
    def __getattr__(self, name):
        try: return super().__getattr__(name)
        except AttributeError: return getattr(self.base_model, name)
    def forward(self, x): return self.base_model(x) * self.temperature
base = nn.Linear(3, 2).double(); base.temperature = 2.0; f = Wrapper(base)
""", ("", "", "base.temperature = 3.0", "f.temperature = 4.0", "")),
    "lora": ("""\
class LoRA(nn.Module):
    def __init__(self):
        super().__init__(); self.base = nn.Linear(3, 2).double().requires_grad_(False); self.a = nn.Parameter(torch.ones(1, 3).double()); self.b = nn.Parameter(torch.ones(2, 1).double() * .1)
        self.merged, self.disabled, self.scaling = False, False, 0.5
    def merge(self): self.base.weight.data += self.b.data @ self.a.data * self.scaling; self.merged = True
    def unmerge(self): self.base.weight.data -= self.b.data @ self.a.data * self.scaling; self.merged = False
    @contextlib.contextmanager
    def off(self):
        self.disabled = True; yield; self.disabled = False
    def forward(self, x):
        y = self.base(x)
        return y if self.disabled or self.merged else y + (x @ self.a.T @ self.b.T) * self.scaling
f = LoRA()
""", ("", "f.scaling = 0.25", "f.merge()", "f.unmerge()", "c = f.off(); c.__enter__(); del c", "f.disabled = False")),
    "prune": ("import torch.nn.utils.prune as prune\nf = nn.Linear(3, 2).double()\n",
              ("", "prune.l1_unstructured(f, 'weight', 0.5)", "", "prune.remove(f, 'weight')", "")),
    "observer": ("""\
class Fake(nn.Module):
    def __init__(self): super().__init__(); self.register_buffer('lo', torch.tensor(math.inf)); self.register_buffer('hi', torch.tensor(-math.inf)); self.on = True
    def forward(self, x):
        if self.on:
            lo, hi = torch.aminmax(x.detach()); self.lo.copy_(torch.min(lo, self.lo)); self.hi.copy_(torch.max(hi, self.hi))
        s = ((self.hi - self.lo) / 15).item(); q = torch.fake_quantize_per_tensor_affine(x.float(), max(s, 1e-3), 0, 0, 15)
        return q.sum()
f = Fake()
""", ("", "", "f.on = False", "")),
    "mixture-of-experts": ("""\
class MoE(nn.Module):
    def __init__(self):
        super().__init__(); self.gate = nn.Linear(3, 2).double(); self.experts = nn.ModuleList([nn.Linear(3, 3).double() for _ in range(2)]); self.load = [0, 0]
    def forward(self, x):
        p = self.gate(x).softmax(-1); w, i = p.max(-1); y = torch.zeros_like(x)
        for e, expert in enumerate(self.experts):
            rows = (i == e).nonzero().squeeze(-1); self.load[e] += len(rows)
            if len(rows): y = y.index_add(0, rows, expert(x[rows]) * w[rows, None])
        return y.pow(2).sum() + 0.1 * self.load[0] * p.mean()
f = MoE()
""", AGAIN),
    "regulariser-by-name": ("""\
net = nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 1)).double(); skip = {'bias'}
def f(x):
    r = sum(p.norm() for n, p in net.named_parameters() if p.requires_grad and not any(s in n for s in skip))
    return net(x).sum() + 0.1 * r
""", ("", "skip.clear()", "net[0].requires_grad_(False)", "skip.add('weight'); net[2].bias.requires_grad_(False)", "")),
    "parameter-groups": ("""\
net = nn.Linear(3, 2).double(); opt = torch.optim.SGD(net.parameters(), lr=0.1)
def f(x): return net(x).sum() * opt.param_groups[0]['lr']
""", ("", "opt.step()", "opt.param_groups[0]['lr'] = 0.01", "opt.step()")),
    "scheduler-read": ("""\
net = nn.Linear(3, 2).double(); opt = torch.optim.SGD(net.parameters(), lr=0.1); sched = torch.optim.lr_scheduler.StepLR(opt, 1, 0.5)
def f(x): return net(x).sum() * sched.get_last_lr()[0]
""", ("", "opt.step(); sched.step()", "opt.step(); sched.step()", "")),
    "optimiser-state-read": ("""\
net = nn.Linear(3, 2).double(); opt = torch.optim.Adam(net.parameters())
def f(x):
    s = opt.state.get(net.weight, {}); return net(x).sum() * (1 + float(s.get('step', 0)))
""", ("", "opt.step()", "opt.step()", "")),
    "parametrised": ("""\
class Sym(nn.Module):
    k = 1.0
    def forward(self, w): return (w + w.T) * self.k
f = nn.Linear(3, 3).double()
""", ("", "nn.utils.parametrize.register_parametrization(f, 'weight', Sym())", "f.parametrizations.weight[0].k = 2.0", "nn.utils.parametrize.remove_parametrizations(f, 'weight')", "")),
    "weights-loaded": ("f = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1)).double(); other = copy.deepcopy(f)\n",
                       ("", "f.load_state_dict({k: v * 2 for k, v in other.state_dict().items()})", "f.load_state_dict(other.state_dict(), assign=True)", "")),
    "dtype-moved": ("f = nn.Linear(3, 2).double()\n", ("", "f.to(torch.float64)", "f.weight.data = f.weight.data * 2", "")),
    "weights-tied-later": ("f = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)).double()\n",
                           ("", "f[1].weight = f[0].weight", "", "f[1].weight = nn.Parameter(f[0].weight.detach().clone())")),
    "layers-changed": ("f = nn.Sequential(nn.Linear(3, 3), nn.Tanh()).double()\n",
                       ("", "f.append(nn.Sigmoid())", "f[1] = nn.ReLU()", "del f[2]", "f.insert(0, nn.Tanh())")),
    "module-dict": ("d = nn.ModuleDict(dict(a=nn.Linear(3, 2).double()))\ndef f(x): return sum(m(x).sum() for m in d.values())\n",
                    ("", "d['b'] = nn.Linear(3, 2).double()", "d.pop('a')", "d['a'] = nn.Linear(3, 2).double()")),
    "parameter-list": ("l = nn.ParameterList([torch.ones(3).double()])\ndef f(x): return sum((x * p).sum() for p in l)\n",
                       ("", "l.append(torch.ones(3).double() * 2)", "l[0] = nn.Parameter(torch.ones(3).double() * 3)", "")),
    "apply-inside": ("net = nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5)).double(); seen = []\ndef f(x):\n    net.apply(lambda m: seen.append(type(m).__name__)); return net(x).sum()\n", AGAIN),
    "deepcopied-inside": ("net = nn.Linear(3, 2).double()\ndef f(x):\n    other = copy.deepcopy(net); return other(x).sum() + net(x).sum()\n", ("", "net.weight.data.mul_(2)", "")),
    "frozen-config": ("@dataclasses.dataclass(frozen=True)\nclass Config:\n    scale: float = 2.0; act: str = 'tanh'\nconfig = Config()\ndef f(x): return getattr(torch, config.act)(x) * config.scale\n",
                      ("", "config = dataclasses.replace(config, scale=3.0)", "config = dataclasses.replace(config, act='sin')", "object.__setattr__(config, 'scale', 4.0)")),
    "dot-dict": ("class DotDict(dict):\n    __getattr__ = dict.__getitem__; __setattr__ = dict.__setitem__\nconfig = DotDict(a=DotDict(k=2.0))\ndef f(x): return x * config.a.k\n",
                 ("", "config.a.k = 3.0", "config.a = DotDict(k=4.0)", "config['a']['k'] = 5.0")),
    "argparse": ("import argparse\nargs_ = argparse.Namespace(k=2.0, mode='a')\ndef f(x): return x * (args_.k if args_.mode == 'a' else -args_.k)\n", ("", "args_.k = 3.0", "args_.mode = 'b'", "")),
    "registry": ("TABLE = {}\ndef register(n):\n    def put(h): TABLE[n] = h; return h\n    return put\n@register('a')\ndef one(x): return x * 2\ndef f(x): return TABLE['a'](x)\n",
                 ("", "@register('a')\ndef two(x): return x * 3", "TABLE['a'] = torch.sin", "")),
    "logging-level": ("import logging\nlogger = logging.Logger('k'); logger.setLevel(logging.INFO); lines = []\ndef f(x):\n    if logger.isEnabledFor(logging.DEBUG): x = x * 2\n    return x.sum()\n",
                      ("", "logger.setLevel(logging.DEBUG)", "logger.setLevel(logging.INFO)", "")),
    "monkey-patched": ("def act(x): return x * 2\nclass M(nn.Module):\n    def forward(self, x): return act(x)\nf = M()\n",
                       ("", "M.forward = lambda self, x: x * 5", "def act(x): return x * 3\nM.forward = lambda self, x: act(x)", "f.forward = lambda x: x * 7", "")),
    "torch-patched": ("_old = torch.tanh\ndef f(x): return torch.tanh(x).sum()\n", ("", "torch.tanh = torch.sin", "torch.tanh = _old", "")),
    "functional-patched": ("_old = F.relu\ndef f(x): return F.relu(x).sum()\n", ("", "F.relu = lambda v, inplace=False: v * 3", "F.relu = _old", "")),
    "class-swapped": ("class A:\n    def h(self, x): return x * 2\nclass B:\n    def h(self, x): return x * 3\no = A()\ndef f(x): return o.h(x)\n", ("", "o.__class__ = B", "o = A()", "A.h = lambda self, x: x * 4")),
    "mro-changed": ("class A:\n    k = 2.\nclass B:\n    k = 3.\nclass C(A): pass\no = C()\ndef f(x): return x * o.k\n", ("", "C.__bases__ = (B,)", "C.k = 5.", "del C.k")),
    "code-replaced": ("def h(x): return x * 2\ndef other(x): return x * 3\ndef f(x): return h(x)\n", ("", "h.__code__ = other.__code__", "", "f.__code__ = (lambda x: h(x) + 1).__code__")),
    "try-except-torch": ("W = torch.ones(3).double(); failed = []\ndef f(x):\n    try: return (x @ W).sum()\n    except RuntimeError as e: failed.append(type(e).__name__); return x.sum() * 2\n",
                         ("", "W = torch.ones(5).double()", "", "W = torch.ones(3).double()")),
    "assert-message": ("limit = 100\ndef f(x):\n    assert x.numel() < limit, f'too many: {x.numel()}'\n    return x.sum()\n", ("", "limit = 5", "limit = 100", "")),
    "match": ("mode = 'a'\ndef f(x):\n    match mode:\n        case 'a': return x * 2\n        case {'k': k}: return x * k\n        case [u, *_]: return x * u\n        case _: return x\n",
              ("", "mode = {'k': 3.0}", "mode = [4.0, 5]", "mode = None")),
    "asyncio": ("import asyncio\nk = 2.0\nasync def h(x): await asyncio.sleep(0); return x * k\ndef f(x): return asyncio.run(h(x)).sum()\n", ("", "k = 3.0", "")),
    "thread-pool": ("from concurrent.futures import ThreadPoolExecutor\nk = 2.0\ndef f(x):\n    with ThreadPoolExecutor(1) as p: return p.submit(lambda: x * k).result().sum()\n", ("", "k = 3.0", "")),
    "inspect-signature": ("import inspect\ndef h(a, b=1): pass\ndef f(x): return x * len(inspect.signature(h).parameters)\n", ("", "def h(a): pass", "")),
    "frame-locals": ("k = 2.0\ndef h(): return sys._getframe(1).f_locals['scale']\ndef f(x):\n    scale = k; return x * h()\n", ("", "k = 3.0", "")),
    "docstring": ("def f(x):\n    'two'\n    return x * len(f.__doc__)\n", ("", "f.__doc__ = 'three'", "")),
    "name-attribute": ("def f(x): return x * len(f.__name__)\n", ("", "f.__name__ = 'longer'", "")),
    "singleton-dispatch": ("@functools.singledispatch\ndef h(v, x): return x\n@h.register\ndef _(v: int, x): return x * v\nv = 2\ndef f(x): return h(v, x)\n",
                           ("", "v = 3", "v = 'a'", "h.register(str, lambda v, x: x * len(v)); v = 'abcd'")),
    "total-ordering": ("@functools.total_ordering\nclass V:\n    def __init__(self, a): self.a = a\n    def __eq__(self, o): return self.a == o.a\n    def __lt__(self, o): return self.a < o.a\nu, v = V(1), V(2)\ndef f(x): return x * (2 if u < v else 3)\n",
                       ("", "u.a = 5", "v = V(9)")),
    "property-setter": ("class P:\n    _k = 2.0; log = []\n    @property\n    def k(self): self.log.append('get'); return self._k\n    @k.setter\n    def k(self, v): self.log.append('set'); self._k = v\np = P()\ndef f(x):\n    p.k = p.k * 2; return x * p.k\n", AGAIN),
    "context-default": ("class Ctx:\n    stack = []\n    def __init__(self, k): self.k = k\n    def __enter__(self): Ctx.stack.append(self)\n    def __exit__(self, *e): Ctx.stack.pop()\ndef f(x): return x * (Ctx.stack[-1].k if Ctx.stack else 1.0)\n",
                        ("", "_c = Ctx(2.0); _c.__enter__()", "_d = Ctx(3.0); _d.__enter__()", "_d.__exit__()", "_c.__exit__()")),
    "event-bus": ("handlers = collections.defaultdict(list); log = []\ndef emit(n, *a): return [h(*a) for h in handlers[n]]\ndef f(x):\n    emit('start'); return x.sum() * (1 + len(handlers['start']))\n",
                  ("", "handlers['start'].append(lambda: log.append('s'))", "", "handlers['start'].clear()")),
    "lazy-import-heavy": ("def f(x):\n    import colorsys; from textwrap import dedent; return x * len(dedent('  a')) * colorsys.ONE_THIRD\n", ("", "")),
    "vmap-of-module": ("net = nn.Linear(3, 2).double()\ndef f(x): return torch.func.vmap(net)(x).sum()\n", ("", "net.weight.data.mul_(2)", "")),
    "scipy-inside": ("from scipy import optimize\ndef f(x):\n    r = optimize.brentq(lambda v: v ** 2 - x.detach().sum().item(), 0, 10); return x.sum() * r\n", ("", "", "")),
    "checkpoint": ("from torch.utils.checkpoint import checkpoint\nruns = []\nnet = nn.Linear(3, 3).double()\ndef part(x): runs.append(1); return torch.tanh(net(x))\ndef f(x): return checkpoint(part, x, use_reentrant=False).sum()\n", ("", "net.weight.data.mul_(2)", "")),
}  # fmt: skip

# What stands between a call and its backward: name → setup, call, after
BETWEEN = {
    "parameter-data-changed": ("w = nn.Parameter(torch.ones(3).double())\ndef f(x): return (x * w * w).sum()",
                               "out = g(*args)", "w.data.mul_(2); backward(out)"),
    "parameter-changed": ("w = nn.Parameter(torch.ones(3).double())\ndef f(x): return (x * w * w).sum()",
                          "out = g(*args)", "with torch.no_grad(): w.mul_(2)\nbackward(out)"),
    "argument-data-changed": ("def f(x): return (x * x).sum()", "out = g(*args)", "args[0].data.mul_(2); backward(out)"),
    "backward-twice": ("def f(x): return (x * x).sum()", "out = g(*args)", "out.backward(retain_graph=True); out.backward()"),
    "backward-twice-refused": ("def f(x): return (x * x).sum()", "out = g(*args)", "out.backward(); out.backward()"),
    "two-calls-reversed": ("n = 0\ndef f(x):\n    global n; n += 1; return (x * x * n).sum()", "out = g(*args); out2 = g(*args)", "out2.backward(); out.backward()"),
    "grad-of-grad": ("def f(x): return (x ** 3).sum()", "out = g(*args)", "d, = torch.autograd.grad(out, args[0], create_graph=True); d.sum().backward()"),
    "result-changed": ("def f(x): return x * 2", "out = g(*args)", "out.mul_(3); out.sum().backward()"),
    "result-of-state-changed": ("h = torch.ones(3).double()\ndef f(x): return h, x * 2", "out = g(*args)", "out[0].add_(1); out[1].sum().backward()"),
    "result-is-stored": ("o = Box()\ndef f(x):\n    o.h = x * 2; return o.h", "out = g(*args)", "same = out is o.h; out.sum().backward()"),
    "stored-has-graph": ("o = Box()\ndef f(x):\n    o.h = x * 2; return (o.h * 3).sum()", "out = g(*args)", "o.h.sum().backward(retain_graph=True); out.backward()"),
    "stored-retained": ("o = Box()\ndef f(x):\n    o.h = x * 2; o.h.retain_grad(); return (o.h * 3).sum()", "out = g(*args)", "out.backward(); got = o.h.grad"),
    "state-before-backward": ("k = [2.0]\nclass S(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x): return x * 1\n    @staticmethod\n    def backward(ctx, g): return g * k[0]\ndef f(x): return S.apply(x).sum()", "out = g(*args)", "k[0] += 1; out.backward()"),
    "no-grad-call": ("n = 0\ndef f(x):\n    global n; n += 1; return (x * n).sum()", "with torch.no_grad(): out = g(*args)", "quiet = out.requires_grad; backward(g(*args))"),
    "inference-call": ("n = 0\ndef f(x):\n    global n; n += 1; return (x * n).sum()", "with torch.inference_mode(): a = g(*args).item()", "out = g(*args); backward(out)"),
    "accumulated": ("def f(x): return (x * x).sum()", "out = [g(*args) for _ in range(3)]", "sum(out).backward()"),
    "chained": ("def f(x): return torch.tanh(x * 2)", "out = g(g(g(*args)))", "backward(out)"),
    "inside-another": ("def h(x): return x * 2\ndef f(x): return h(x).sum()", "out = g(args[0] * 2) + f(args[0])", "backward(out)"),
    "hook-on-result": ("log = []\ndef f(x): return x * 2", "out = g(*args)", "out.register_hook(lambda v: log.append(v.clone())); backward(out)"),
    "anomaly": ("def f(x): return torch.sqrt(x - x).sum()", "out = g(*args)", "with torch.autograd.detect_anomaly(check_nan=True): backward(out)"),
    "threads": ("n = []\ndef f(x):\n    n.append(1); return (x * 2).sum()", "import threading; r = []; _ts = [threading.Thread(target=lambda: r.append(g(*args).item())) for _ in range(3)]\nfor _t in _ts: _t.start()\nfor _t in _ts: _t.join()", "out = g(*args); backward(out)"),
    "grad-set-none": ("w = nn.Parameter(torch.ones(3).double())\ndef f(x): return (x * w).sum()", "w.grad = None; out = g(*args)", "backward(out)"),
    "requires-grad-toggled": ("w = nn.Parameter(torch.ones(3).double())\ndef f(x): return (x * w).sum()", "w.requires_grad_(not w.requires_grad); out = g(*args)", "backward(out)"),
    "argument-resized": ("def f(x): return (x * x).sum()", "args[0].data = torch.ones(5).double(); out = g(*args)", "backward(out)"),
    "deepcopy-of-result": ("def f(x): return (x * x).sum().detach()", "out = copy.deepcopy(g(*args))", ""),
    "pickled-parameters": ("f = nn.Linear(3, 2).double()", "import pickle; f.load_state_dict(pickle.loads(pickle.dumps(f.state_dict()))); out = g(*args)", "backward(out)"),
}  # fmt: skip


def _all() -> list[Sequence]:
    found = []
    for name, (setup, steps) in ROWS.items():
        call = "out = g(*args)" if any("args = " in step for step in steps) else _ROW
        found.append(Sequence(f"library-{name}", _LINEAR + setup, steps, call=call))
    for name, (setup, call, after) in BETWEEN.items():
        text = f"args = (t(3),); {call}" if not call.startswith(("with", "import")) else f"args = (t(3),)\n{call}"
        found.append(Sequence(f"between-{name}", _LINEAR + setup, ("", "", "", ""), call=text, after=after))
    return found


SEQUENCES = _all()
