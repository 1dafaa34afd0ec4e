"""What a function writes besides its result, and what it draws from the world."""

from __future__ import annotations

from tests.programs.sequence import CALL, Sequence
from tests.programs.sequences_world import AGAIN, WORLD

# name: what stands before f, the body of f, and the expression that reads what was written
COUNTERS = {
    "self": ("class L:\n    n = 0\n    def __call__(self, x):\n        {body}\nf = L()", "self.n"),
    "module": ("class L(nn.Module):\n    def __init__(self): super().__init__(); self.n = 0\n"
               "    def forward(self, x):\n        {body}\nf = L()", "self.n"),
    "submodule": ("class L(nn.Module):\n    def __init__(self): super().__init__(); self.n = 0\n"
                  "    def forward(self, x):\n        {body}\nl = L()\nf = nn.Sequential(l, nn.Tanh())",
                  "self.n"),
    "object": ("o = Box(n=0)\ndef f(x):\n        {body}", "o.n"),
    "global": ("n = 0\ndef f(x):\n        global n\n        {body}", "n"),
    "nonlocal": ("def make():\n    n = 0\n    def f(x):\n        nonlocal n\n        {body}\n"
                 "    return f\nf = make()", "n"),
    "dict": ("d = dict(n=0)\ndef f(x):\n        {body}", "d['n']"),
    "defaultdict": ("d = collections.defaultdict(int)\ndef f(x):\n        {body}", "d['n']"),
    "counter": ("d = collections.Counter()\ndef f(x):\n        {body}", "d['n']"),
    "list": ("l = [0]\ndef f(x):\n        {body}", "l[0]"),
    "class": ("class C: n = 0\ndef f(x):\n        {body}", "C.n"),
    "slot": ("class S: __slots__ = ('n',)\ns = S(); s.n = 0\ndef f(x):\n        {body}", "s.n"),
    "property": ("class P:\n    k = 0\n    n = property(lambda s: s.k, lambda s, v: setattr(s, 'k', v))\n"
                 "p = P()\ndef f(x):\n        {body}", "p.n"),
    "setattr-method": ("class P:\n    log = []\n    def __setattr__(self, k, v):\n"
                       "        self.log.append(k); super().__setattr__(k, v)\n"
                       "p = P(); p.n = 0\ndef f(x):\n        {body}", "p.n"),
    "function": ("def f(x):\n        {body}\nf.n = 0", "f.n"),
    "default": ("def f(x, d={{'n': 0}}):\n        {body}", "d['n']"),
    "array": ("a = np.zeros(1, int)\ndef f(x):\n        {body}", "a[0]"),
    "bytearray": ("a = bytearray(1)\ndef f(x):\n        {body}", "a[0]"),
    "globals-call": ("n = 0\ndef f(x):\n        {body}", "globals()['n']"),
    "module-attribute": ("helper = types.ModuleType('helper'); helper.n = 0\ndef f(x):\n        {body}",
                         "helper.n"),
    "thread-local": ("import threading\nl = threading.local(); l.n = 0\ndef f(x):\n        {body}", "l.n"),
    "dataclass": ("@dataclasses.dataclass\nclass D: n: int = 0\nd = D()\ndef f(x):\n        {body}", "d.n"),
    "deque": ("l = collections.deque([0], maxlen=1)\ndef f(x):\n        {body}", "l[0]"),
    "tensor": ("n = torch.zeros(())\ndef f(x):\n        {body}", "n.data"),
}  # fmt: skip
BODIES = {
    "read": "{n} += 1; return (x * {n}).sum()",
    "read-first": "y = x * {n}; {n} += 1; return y.sum()",
    "unread": "{n} += 1; return (x * 2).sum()",
    "branch": "{n} += 1; return (x * (2 if {n} > 2 else 3)).sum()",
    "decay": "{n} = {n} * 0.5 + 1; return (x * {n}).sum()",
}
_ONLY_INTS = {"array", "bytearray", "deque"}


def _counter(place: str, body: str) -> Sequence:
    setup, name = COUNTERS[place]
    if place == "submodule":
        text = BODIES[body].replace(".sum()", "")
    else:
        text = BODIES[body]
    change = {"self": "f.n = 10", "module": "f.n = 10", "submodule": "l.n = 10"}.get(place)
    if change is None:
        change = "" if place == "nonlocal" or "self" in name or (name.startswith("d[") and (
            "d={" in setup)) else f"{name} = 10"
    if place == "tensor":
        change = "n.fill_(10)"
    return Sequence(f"write-counter-{place}-{body}", setup.format(body=text.format(n=name)),
                    ("", "", "", "", change, ""))  # fmt: skip


def _counters() -> list[Sequence]:
    found = [_counter(place, "read") for place in COUNTERS]
    found += [_counter(place, body) for place in ("self", "global", "nonlocal", "dict")
              for body in BODIES if body != "read"]  # fmt: skip
    return found


_MODULE = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        {init}
    def forward(self, x):
        {body}
f = Net()
"""


def _net(init: str, body: str) -> str:
    body = body.replace("\n", "\n        ")
    return _MODULE.format(init=init, body=body)


_GAN = "for p in f.parameters(): p.grad = None"
ROWS = {
    # logs
    "append-item": ("hist = []\ndef f(x):\n    l = (x * x).sum(); hist.append(l.item()); return l", AGAIN),
    "append-item-then-used": (
        "hist = []\ndef f(x):\n    l = (x * x).sum(); hist.append(l.item()); return l * hist[-1]", AGAIN),
    "append-item-mean-of-last": (
        "hist = []\ndef f(x):\n    l = (x * x).sum(); hist.append(l.item())\n"
        "    return l / (sum(hist[-3:]) / len(hist[-3:]))", AGAIN),
    "append-float": ("hist = []\ndef f(x):\n    l = x.sum(); hist.append(float(l)); return l", AGAIN),
    "append-tolist": ("hist = []\ndef f(x):\n    y = x * 2; hist.append(y.tolist()); return y.sum()", AGAIN),
    "append-rounded": (
        "hist = []\ndef f(x):\n    l = x.sum(); hist.append(round(l.item(), 3)); return l", AGAIN),
    "append-formatted": (
        "hist = []\ndef f(x):\n    l = x.sum(); hist.append(f'{l.item():.4f}'); return l", AGAIN),
    "append-tensor": ("hist = []\ndef f(x):\n    l = x.sum(); hist.append(l.detach()); return l", AGAIN),
    "append-tensor-with-graph": (
        "hist = []\ndef f(x):\n    l = (x * x).sum(); hist.append(l); return l * 2", AGAIN),
    "append-tuple": (
        "hist = []\ndef f(x):\n    l = x.sum(); hist.append((len(hist), l.item())); return l", AGAIN),
    "append-numpy": (
        "hist = []\ndef f(x):\n    l = (x * 2); hist.append(l.detach().numpy()); return l.sum()", AGAIN),
    "append-shape": ("hist = []\ndef f(x):\n    hist.append(tuple(x.shape)); return x.sum()", AGAIN),
    "append-argument": ("hist = []\ndef f(x):\n    hist.append(x); return x.sum()", AGAIN),
    "list-extend": ("h = []\ndef f(x):\n    h.extend([1, 2]); return (x * len(h)).sum()", AGAIN),
    "list-insert": ("h = [1]\ndef f(x):\n    h.insert(0, len(h)); return (x * h[0]).sum()", AGAIN),
    "list-pop": ("h = [1., 2., 3., 4.]\ndef f(x):\n    return (x * h.pop()).sum()", AGAIN),
    "list-pop-empty": ("h = [1., 2.]\ndef f(x):\n    return (x * h.pop()).sum()", AGAIN),
    "list-del": ("h = [1., 2., 3., 4.]\ndef f(x):\n    del h[0]; return (x * sum(h)).sum()", AGAIN),
    "list-clear": ("h = [1.]\ndef f(x):\n    n = len(h); h.clear(); return (x * n).sum()",
                   ("", "", "h.append(1)", "")),
    "list-sort": ("h = [3., 1., 2.]\ndef f(x):\n    h.sort(); return (x * h[0]).sum()",
                  ("", "h.append(0.5)", "h.append(0.1)", "")),
    "list-slice": ("h = [1., 2.]\ndef f(x):\n    h[:] = [v * 2 for v in h]; return (x * h[0]).sum()", AGAIN),
    "list-iadd": ("h = []\ndef f(x):\n    global h; h += [1.]; return (x * len(h)).sum()", AGAIN),
    "list-fifo-of-tensors": (
        "h = []\ndef f(x):\n    h.append(x.detach() * 2)\n    if len(h) > 2: h.pop(0)\n"
        "    return (x * torch.stack(h).mean(0)).sum()", AGAIN),
    "deque-maxlen": (
        "h = collections.deque(maxlen=2)\ndef f(x):\n    h.append(x.sum().item()); return (x * sum(h)).sum()",
        AGAIN),
    "deque-popleft": ("h = collections.deque([1., 2., 3., 4.])\ndef f(x):\n    return (x * h.popleft()).sum()",
                      AGAIN),
    "set-add": ("s = set()\ndef f(x):\n    s.add(len(s)); return (x * len(s)).sum()", AGAIN),
    "set-seen-shape": (
        "s = set()\ndef f(x):\n    new = x.shape not in s; s.add(x.shape); return (x * (2 if new else 3)).sum()",
        AGAIN),
    "set-discard": ("s = {1, 2, 3}\ndef f(x):\n    s.discard(len(s)); return (x * len(s)).sum()", AGAIN),
    "dict-cache": (
        "c = {}\ndef f(x):\n    if x.shape not in c: c[x.shape] = torch.ones(x.shape) * 2\n"
        "    return (x * c[x.shape]).sum()", AGAIN),
    "dict-cache-number": (
        "c = {}\ndef f(x):\n    k = len(x)\n    if k not in c: c[k] = len(c) + 1.\n    return (x * c[k]).sum()",
        ("", "", "args = (t(4),)", "")),
    "dict-setdefault": ("c = {}\ndef f(x):\n    return (x * c.setdefault('k', len(c) + 2.)).sum()", AGAIN),
    "dict-pop": ("c = dict(a=1., b=2., c=3., d=4.)\ndef f(x):\n    return (x * c.popitem()[1]).sum()", AGAIN),
    "dict-del": ("c = dict(a=1.)\ndef f(x):\n    n = len(c); c.pop('a', None); return (x * (n + 1)).sum()",
                 ("", "", "c['a'] = 2", "")),
    "dict-update": ("c = dict(n=1)\ndef f(x):\n    c.update(n=c['n'] * 2); return (x * c['n']).sum()", AGAIN),
    "dict-of-lists": (
        "c = collections.defaultdict(list)\ndef f(x):\n    c['l'].append(x.sum().item())\n"
        "    c['n'].append(len(c['l'])); return x.sum()", AGAIN),
    "attribute-created": (
        "o = Box()\ndef f(x):\n    if not hasattr(o, 'k'): o.k = 5.\n    return (x * o.k).sum()",
        ("", "", "del o.k", "o.k = 7.")),
    "attribute-deleted": (
        "o = Box(k=1)\ndef f(x):\n    n = 2 if hasattr(o, 'k') else 3\n    if n == 2: del o.k\n"
        "    return (x * n).sum()", ("", "", "o.k = 1", "")),
    "lazy-mask": (_net("self.mask = None",
        "if self.mask is None or self.mask.size(0) != len(x):\n    self.mask = torch.ones(len(x)).cumsum(0)\n"
        "return (x * self.mask).sum()"), ("", "", "args = (t(4),)", "args = (t(4),)", "")),
    "lazy-buffer": (_net("self.register_buffer('mask', None)",
        "if self.mask is None:\n    self.mask = torch.full((len(x),), 2.)\nreturn (x * self.mask).sum()"),
        ("", "", "f.mask = None", "f.mask.fill_(5)")),
    "lazy-parameter": (_net("self.w = None",
        "if self.w is None:\n    self.w = nn.Parameter(torch.full((len(x),), 2.).double())\n"
        "return (x * self.w).sum()"), ("", "", "f.zero_grad()", "f.w.data.mul_(2)")),
    "lazy-linear": ("f = nn.Sequential(nn.LazyLinear(2), nn.Tanh()).double()", AGAIN),
    "kv-cache": (_net("self.k = None",
        "k = x.detach()[None]\nself.k = k if self.k is None else torch.cat([self.k, k])\n"
        "return (x * self.k.sum(0)).sum()"), ("", "", "", "f.k = None", "")),
    "kv-cache-with-graph": (_net("self.k = None; self.w = nn.Parameter(torch.ones(3).double())",
        "k = (x * self.w)[None]\nself.k = k if self.k is None else torch.cat([self.k.detach(), k])\n"
        "return self.k.sum()"), ("", "", "", "f.k = None", "")),
    "kv-cache-static": (_net("self.register_buffer('k', torch.zeros(4, 3).double()); self.n = 0",
        "self.k[self.n] = x.detach(); self.n += 1\nreturn (x * self.k[:self.n].sum(0)).sum()"),
        ("", "", "", "f.n = 0")),
    "hidden-state": (_net("self.h = torch.zeros(3).double()",
        "self.h = torch.tanh(self.h.detach() + x)\nreturn self.h.sum()"), AGAIN),
    "hidden-state-no-detach": (_net("self.h = torch.zeros(3).double()",
        "h = torch.tanh(self.h + x)\nself.h = h.detach()\nreturn h.sum()"), AGAIN),
    "hidden-state-list": (_net("self.h = [torch.zeros(3).double(), 0]",
        "self.h[0] = torch.tanh(self.h[0].detach() + x); self.h[1] += 1\nreturn self.h[0].sum() * self.h[1]"),
        AGAIN),
    "store-argument": (_net("self.last = None", "self.last = x\nreturn (x * 2).sum()"), AGAIN),
    "store-previous-argument": (_net("self.last = None",
        "l = (x * 2).sum() if self.last is None else (x * self.last).sum()\nself.last = x.detach()\nreturn l"),
        AGAIN),
    "store-activation": (_net("self.a = nn.Linear(3, 2).double()",
        "self.activation = self.a(x)\nreturn self.activation.sum()"), AGAIN),
    "store-in-no-grad": (_net("self.register_buffer('m', torch.zeros(3).double())",
        "with torch.no_grad():\n    self.m.mul_(0.9).add_(x, alpha=0.1)\nreturn (x * self.m).sum()"), AGAIN),
    "ema-rebind": (_net("self.m = torch.zeros(3).double()",
        "self.m = self.m * 0.9 + x.detach() * 0.1\nreturn (x * self.m).sum()"), AGAIN),
    "ema-float": (_net("self.m = 0.0",
        "self.m = 0.9 * self.m + 0.1 * x.mean().item()\nreturn (x * self.m).sum()"), AGAIN),
    "ema-number-unread": (_net("self.m = 0.0",
        "self.m = 0.9 * self.m + 0.1 * x.mean().item()\nreturn (x * 2).sum()"), AGAIN),
    "max-seen": (_net("self.m = -math.inf",
        "self.m = max(self.m, x.max().item())\nreturn (x / self.m).sum()"), AGAIN),
    "best-kept": (_net("self.best = None; self.at = math.inf",
        "l = x.sum()\nif l.item() < self.at:\n    self.at = l.item(); self.best = x.detach().clone()\nreturn l"),
        AGAIN),
    "patience": (_net("self.at = 0.; self.bad = 0",
        "l = x.sum()\nself.bad = 0 if l.item() > self.at else self.bad + 1\nself.at = l.item()\n"
        "return l * (1 + self.bad)"), AGAIN),
    "warm-up": (_net("self.n = 0", "self.n += 1\nreturn (x * min(1.0, self.n / 3)).sum()"), AGAIN + AGAIN),
    "annealed": (_net("self.beta = 1.0", "self.beta *= 0.9\nreturn (x * self.beta).sum()"),
                 ("", "", "", "f.beta = 1.", "")),
    "cosine": (_net("self.n = 0",
        "self.n += 1\nreturn (x * (1 + math.cos(math.pi * self.n / 4))).sum()"), AGAIN),
    "every-other": (_net("self.n = 0", "self.n += 1\nreturn (x * 2 if self.n % 2 else x * 3).sum()"), AGAIN + AGAIN),
    "power-of-step": (_net("self.n = 0", "self.n += 1\nreturn (x * (1 - 0.9 ** self.n)).sum()"), AGAIN),
    "step-as-size": (_net("self.n = 0", "self.n += 1\nreturn x[:self.n].sum()"), AGAIN),
    "step-in-range": (_net("self.n = 0",
        "self.n += 1\nfor _ in range(self.n): x = torch.tanh(x)\nreturn x.sum()"), AGAIN),
    "step-in-tensor": (_net("self.n = 0", "self.n += 1\nreturn (x * torch.tensor(float(self.n))).sum()"), AGAIN),
    "step-in-full": (_net("self.n = 0", "self.n += 1\nreturn (x * torch.full((3,), self.n)).sum()"), AGAIN),
    "step-in-string": (_net("self.n = 0; self.names = []",
        "self.n += 1; self.names.append(f'step {self.n}')\nreturn (x * self.n).sum()"), AGAIN),
    "step-as-key": (_net("self.n = 0; self.table = {1: 2., 2: 3., 3: 4., 4: 5.}",
        "self.n += 1\nreturn (x * self.table[self.n]).sum()"), AGAIN),
    "step-returned": (_net("self.n = 0", "self.n += 1\nreturn dict(loss=x.sum(), step=self.n)"), AGAIN),
    "item-returned": ("def f(x):\n    l = x.sum(); return l, l.item()", AGAIN),
    "order-of-writes": (
        "log = []\nn = 0\ndef f(x):\n    global n\n    log.append(('a', n)); n += 1; log.append(('b', n))\n"
        "    return (x * n).sum()", AGAIN),
    "write-then-read-back": (
        "o = Box(a=1., b=2.)\ndef f(x):\n    o.a, o.b = o.b, o.a; return (x * o.a).sum()", AGAIN),
    "two-names-of-one": (
        "a = [1.]; b = a\ndef f(x):\n    a.append(2.); return (x * len(b)).sum()", AGAIN),
    "fresh-object": ("o = Box(v=None)\ndef f(x):\n    o.v = Box(k=len(x)); return (x * o.v.k).sum()", AGAIN),
    "fresh-list": ("o = Box(v=None)\ndef f(x):\n    o.v = []; o.v.append(1.); return (x * sum(o.v)).sum()",
                   ("", "kept = o.v", "", "o.v.append(2.)")),
    "fresh-dict-of-tensors": (
        "o = Box(v=None)\ndef f(x):\n    o.v = dict(a=x * 2, b=x.detach()); return o.v['a'].sum()", AGAIN),
    "class-made-inside": (
        "made = []\ndef f(x):\n    class C: k = 2.\n    made.append(C().k); return (x * C.k).sum()", AGAIN),
    "closure-made-inside": (
        "o = Box()\ndef f(x):\n    k = 2.\n    o.fn = lambda y: y * k\n    return o.fn(x).sum()", AGAIN),
    "exception-after-write": (
        "log = []\ndef f(x):\n    log.append(1)\n    if len(log) == 2: raise ValueError('stop')\n"
        "    return (x * len(log)).sum()", AGAIN),
    "exception-caught": (
        "log = []\ndef f(x):\n    try:\n        raise KeyError('k')\n    except KeyError as e:\n"
        "        log.append(str(e))\n    return (x * len(log)).sum()", AGAIN),
    "finally": ("log = []\ndef f(x):\n    try:\n        return (x * 2).sum()\n    finally:\n        log.append(1)",
                AGAIN),
    "context-manager": (
        "log = []\n@contextlib.contextmanager\ndef scope():\n    log.append('in'); yield len(log); log.append('out')\n"
        "def f(x):\n    with scope() as n:\n        return (x * n).sum()", AGAIN),
    "with-object": (
        "class Scope:\n    depth = 0\n    def __enter__(self): self.depth += 1; return self\n"
        "    def __exit__(self, *e): self.depth -= 1; self.left = True\n"
        "s = Scope()\ndef f(x):\n    with s: return (x * (s.depth + 1)).sum()", AGAIN),
    "os-environ": ("def f(x):\n    os.environ['PROGRAM_N'] = str(int(os.environ.get('PROGRAM_N', '0')) + 1)\n"
                   "    return (x * int(os.environ['PROGRAM_N'])).sum()", AGAIN),
    "context-variable": ("CV = contextvars.ContextVar('cv', default=0)\n"
                         "def f(x):\n    CV.set(CV.get() + 1); return (x * CV.get()).sum()", AGAIN),
    "lru-cache-inside": ("calls = []\n@functools.lru_cache\ndef k(n): calls.append(n); return n * 2.\n"
                         "def f(x):\n    return (x * k(len(x))).sum()", ("", "", "args = (t(4),)", "k.cache_clear()")),
    "lru-cache-tensor": ("@functools.lru_cache\ndef mask(n): return torch.ones(n).cumsum(0)\n"
                         "def f(x):\n    return (x * mask(len(x))).sum()", ("", "", "mask(3).fill_(7)", "mask.cache_clear()")),
    "cached-property": ("class L:\n    k = 2.\n    @functools.cached_property\n    def w(self): return self.k * 2\n"
                        "l = L()\ndef f(x):\n    return (x * l.w).sum()", ("", "", "l.k = 5.", "del l.w")),
    "singleton": ("class S:\n    one = None\n    @classmethod\n    def get(cls):\n"
                  "        if cls.one is None: cls.one = Box(k=2.)\n        return cls.one\n"
                  "def f(x):\n    return (x * S.get().k).sum()", ("", "", "S.one.k = 3.", "S.one = None")),
    "heap": ("import heapq\nh = [3., 1., 2., 5., 4.]; heapq.heapify(h)\ndef f(x):\n    return (x * heapq.heappop(h)).sum()",
             AGAIN),
    "queue": ("import queue\nq = queue.Queue()\nfor i in range(5): q.put(float(i))\n"
              "def f(x):\n    return (x * q.get()).sum()", AGAIN),
    "numpy-written": ("a = np.zeros(3)\ndef f(x):\n    a[0] += 1; return (x * float(a[0])).sum()", AGAIN),
    "numpy-from-tensor": ("a = np.zeros(3)\ndef f(x):\n    a[:] = x.detach().numpy(); return (x * 2).sum()", AGAIN),
    "numpy-shared": ("a = np.zeros(3); w = torch.from_numpy(a)\ndef f(x):\n    w.add_(1); return (x * float(a[0])).sum()",
                     AGAIN),
    "tensor-list": ("ws = []\ndef f(x):\n    ws.append(torch.ones(3) * len(ws)); return (x * sum(ws)).sum()", AGAIN),
    "metric-update": (
        "class Mean:\n    def __init__(self): self.total = torch.zeros(()).double(); self.n = 0\n"
        "    def update(self, v): self.total += v.detach().sum(); self.n += v.numel()\n"
        "    def compute(self): return self.total / self.n\n"
        "m = Mean()\ndef f(x):\n    m.update(x); return (x * m.compute()).sum()", ("", "", "m.__init__()", "")),
    "hook-in-function": (
        "seen = []\ndef f(x):\n    y = x * 2; y.register_hook(lambda g: seen.append(g.clone())); return y.sum()", AGAIN),
    "requires-grad-inside": ("def f(x):\n    w = torch.ones(3, requires_grad=True); return (x * w).sum()", AGAIN),
    "grad-written": ("w = nn.Parameter(torch.ones(3).double())\n"
                     "def f(x):\n    w.grad = torch.ones(3).double(); return (x * w).sum()", AGAIN),
    "backward-inside": (
        "w = nn.Parameter(torch.ones(3).double())\n"
        "def f(x):\n    (w * 2).sum().backward(); return (x * 2).sum()", AGAIN),
    "optimizer-inside": (
        "w = nn.Parameter(torch.ones(3).double()); opt = torch.optim.SGD([w], lr=0.1, momentum=0.9)\n"
        "def f(x):\n    opt.zero_grad(); l = (w * x.detach()).sum(); l.backward(); opt.step(); return (x * 2).sum()",
        AGAIN),
    "manual-update": (
        "w = nn.Parameter(torch.ones(3).double())\ndef f(x):\n    l = (x * w).sum()\n"
        "    with torch.no_grad(): w.sub_(0.1 * x)\n    return l.detach() + x.sum()", AGAIN),
    "data-update": ("w = nn.Parameter(torch.ones(3).double())\n"
                    "def f(x):\n    w.data.mul_(0.5); return (x * w).sum()", AGAIN),
    "parameter-replaced": (
        "m = nn.Linear(3, 1).double()\n"
        "def f(x):\n    m.weight = nn.Parameter(m.weight.detach() * 2); return m(x).sum()", AGAIN),
    "module-added": ("m = nn.Sequential(nn.Tanh())\ndef f(x):\n    m.append(nn.Tanh()); return m(x).sum()", AGAIN),
    "thread-inside": (
        "import threading\nout_ = []\ndef f(x):\n    th = threading.Thread(target=lambda: out_.append(1)); th.start()\n"
        "    th.join(); return (x * len(out_)).sum()", AGAIN),
    "id-inside": ("ids = []\ndef f(x):\n    ids.append(id(x) == id(args[0])); return x.sum()", AGAIN),
    "recursion": ("depth = []\ndef f(x, n=3):\n    depth.append(n); return x.sum() if n == 0 else f(x * 2, n - 1)", AGAIN),
    "gc-collect": ("import gc\ndef f(x):\n    gc.collect(); return x.sum()", ("", "", "")),
    "del-global": ("k = 2.\ndef f(x):\n    global k\n    v = k; del k; return (x * v).sum()", ("", "k = 3.", "k = 4.")),
    "del-global-missing": ("k = 2.\ndef f(x):\n    global k\n    v = k; del k; return (x * v).sum()", AGAIN),
    "exec-inside": ("ns = {}\ndef f(x):\n    exec('n = 1 + locals().get(\"n\", 0)', {}, ns); return (x * ns['n']).sum()", AGAIN),
    "string-builder": ("o = Box(s='')\ndef f(x):\n    o.s += 'a'; return (x * len(o.s)).sum()", AGAIN),
    "bool-toggle": ("o = Box(b=False)\ndef f(x):\n    o.b = not o.b; return (x if o.b else -x).sum()", AGAIN + AGAIN),
    "enum-cycle": ("class M(enum.Enum): A, B = 1, 2\no = Box(m=M.A)\n"
                   "def f(x):\n    o.m = M.B if o.m is M.A else M.A; return (x * o.m.value).sum()", AGAIN + AGAIN),
    "none-then-tensor": ("o = Box(w=None)\ndef f(x):\n    o.w = x.detach() if o.w is None else None\n"
                         "    return (x * (2 if o.w is None else 3)).sum()", AGAIN),
    "swap-modules": ("o = Box(a=nn.Linear(3, 1).double(), b=nn.Linear(3, 1).double())\n"
                     "def f(x):\n    o.a, o.b = o.b, o.a; return o.a(x).sum()", AGAIN),
    "train-inside": ("m = nn.Dropout(0.5)\ndef f(x):\n    m.train(not m.training); return m(x).sum()", AGAIN),
    "batch-norm": ("f = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).double()", ("", "", "f.eval()", "f.train()")),
    "spectral-norm": ("f = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 4)).double()", ("", "", "f.eval()", "f.train()")),
    "old-spectral-norm": ("f = nn.utils.spectral_norm(nn.Linear(3, 4)).double()", ("", "", "f.eval()", "f.train()")),
    "old-weight-norm": ("warnings.simplefilter('ignore'); f = nn.utils.weight_norm(nn.Linear(3, 4)).double()", AGAIN),
}  # fmt: skip

_ARGS = {"batch-norm": "args = (t(4, 3),); out = g(*args)"}
_MATRIX = {"spectral-norm", "old-spectral-norm", "old-weight-norm"}


def _rows() -> list[Sequence]:
    found = []
    for name, (setup, steps) in (ROWS | WORLD).items():
        call = _ARGS.get(name, "args = (t(2, 3),); out = g(*args)" if name in _MATRIX else CALL)
        if any("args" in step for step in steps):
            steps = tuple(step if "args" in step else f"{step}\nargs = (t(3),)" for step in steps)
            call = "out = g(*args)"
        found.append(Sequence(f"write-{name}", setup, steps, call=call))
    return found


SEQUENCES = [*_counters(), *_rows()]
