"""What a function draws from the world: iterators, random numbers, clocks, prints and files.

Rows of `sequences_writes`: what stands before f with f, and the steps.
"""

from __future__ import annotations

AGAIN = ("", "", "", "")

WORLD = {
    "next-iterator": ("it = iter([1., 2., 3., 4.])\ndef f(x):\n    return (x * next(it)).sum()", AGAIN),
    "next-exhausted": ("it = iter([1., 2.])\ndef f(x):\n    return (x * next(it, 9.)).sum()", AGAIN),
    "stop-iteration": ("it = iter([1., 2.])\ndef f(x):\n    return (x * next(it)).sum()", AGAIN),
    "count": ("it = itertools.count(1)\ndef f(x):\n    return (x * next(it)).sum()", AGAIN),
    "cycle": ("it = itertools.cycle([1., 2.])\ndef f(x):\n    return (x * next(it)).sum()", AGAIN),
    "generator": ("def gen():\n    n = 1.\n    while True: yield n; n *= 2\ng0 = gen()\n"
                  "def f(x):\n    return (x * next(g0)).sum()", AGAIN),
    "generator-send": ("def gen():\n    n = 1.\n    while True: n = n + (yield n)\ng0 = gen(); next(g0)\n"
                       "def f(x):\n    return (x * g0.send(2.)).sum()", AGAIN),
    "generator-local": ("def gen(n):\n    for i in range(n): yield i\n"
                        "def f(x):\n    return sum(x[i] * i for i in gen(3))", AGAIN),
    "map-object": ("it = map(float, [1, 2, 3, 4])\ndef f(x):\n    return (x * next(it)).sum()", AGAIN),
    "enumerate-object": ("it = enumerate([5., 6., 7., 8.])\ndef f(x):\n    return (x * next(it)[1]).sum()", AGAIN),
    "reversed-object": ("it = reversed([5., 6., 7., 8.])\ndef f(x):\n    return (x * next(it)).sum()", AGAIN),
    "iterator-class": ("class It:\n    n = 0\n    def __iter__(self): return self\n"
                       "    def __next__(self): self.n += 1; return self.n\nit = It()\n"
                       "def f(x):\n    return (x * next(it)).sum()", AGAIN),
    "dict-iterator": ("it = iter(dict(a=1., b=2., c=3., d=4.).values())\ndef f(x):\n    return (x * next(it)).sum()",
                      AGAIN),
    "data-loader": (
        "data = torch.utils.data.TensorDataset(torch.arange(8.).double())\n"
        "it = iter(torch.utils.data.DataLoader(data, batch_size=2))\n"
        "def f(x):\n    (b,) = next(it); return (x[:2] * b).sum()", AGAIN),
    "random-random": ("def f(x):\n    return (x * random.random()).sum()", AGAIN),
    "random-unread": ("def f(x):\n    random.random(); return x.sum()", AGAIN),
    "random-choice": ("def f(x):\n    return (x * random.choice([1., 2., 3.])).sum()", AGAIN),
    "random-instance": ("r = random.Random(3)\ndef f(x):\n    return (x * r.random()).sum()", AGAIN),
    "random-branch": ("def f(x):\n    return (x * 2 if random.random() < 0.5 else x * 3).sum()", AGAIN),
    "numpy-random": ("def f(x):\n    return (x * np.random.rand()).sum()", AGAIN),
    "numpy-beta": ("def f(x):\n    return (x * np.random.beta(0.4, 0.4)).sum()", AGAIN),
    "numpy-default-rng": ("r = np.random.default_rng(3)\ndef f(x):\n    return (x * r.normal()).sum()", AGAIN),
    "numpy-permutation": ("def f(x):\n    return x[torch.from_numpy(np.random.permutation(3))[:2]].sum()", AGAIN),
    "numpy-random-array": ("def f(x):\n    return (x * torch.from_numpy(np.random.randn(3))).sum()", AGAIN),
    "torch-rand-item": ("def f(x):\n    return (x * torch.rand(()).item()).sum()", AGAIN),
    "torch-rand-branch": ("def f(x):\n    return (x * 2 if torch.rand(()) < 0.5 else x * 3).sum()", AGAIN),
    "torch-randperm": ("def f(x):\n    return x[torch.randperm(3)[:2]].sum()", AGAIN),
    "torch-dropout": ("f = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5)).double()", ("", "", "f.eval()", "f.train()")),
    "torch-generator": ("r = torch.Generator().manual_seed(1)\n"
                        "def f(x):\n    return (x * torch.rand(3, generator=r)).sum()", AGAIN),
    "beta-distribution": (
        "def f(x):\n    l = torch.distributions.Beta(0.4, 0.4).sample(); return (x * l).sum()", AGAIN),
    "seed-inside": ("def f(x):\n    random.seed(1); return (x * random.random()).sum()", AGAIN),
    "uuid": ("import uuid\nn = []\ndef f(x):\n    n.append(len({str(uuid.uuid4()) for _ in range(2)})); return x.sum()",
             AGAIN),
    "time": ("_s = set()\ndef f(x):\n    _s.add(time.perf_counter_ns()); return x.sum()",
             ("", "", "n = len(_s)", "n = len(_s)")),
    "time-order": ("_last = [0.]\nlater = []\ndef f(x):\n    now = time.monotonic()\n"
                   "    later.append(now > _last[0]); _last[0] = now; return x.sum()", AGAIN),
    "date": ("import datetime\n_s = set()\ndef f(x):\n    _s.add(datetime.datetime.now()); return x.sum()",
             ("", "", "n = len(_s)", "n = len(_s)")),
    "print": ("def f(x):\n    print('loss', x.shape); return x.sum()", AGAIN),
    "print-item": ("def f(x):\n    l = x.sum(); print(f'{l.item():.3f}'); return l", AGAIN),
    "print-tensor": ("def f(x):\n    l = x.sum(); print(l.detach()); return l", AGAIN),
    "print-every": ("class Net(nn.Module):\n    def __init__(self): super().__init__(); self.n = 0\n"
                    "    def forward(self, x):\n        self.n += 1\n"
                    "        if self.n % 2 == 0: print(self.n)\n        return (x * 2).sum()\nf = Net()", AGAIN),
    "stdout-write": ("def f(x):\n    sys.stdout.write('a'); return x.sum()", AGAIN),
    "string-io": ("import io\nlog = io.StringIO(); text = []\ndef f(x):\n    log.write('a'); return x.sum()",
                  ("", "", "text.append(log.getvalue())", "text.append(log.getvalue())")),
    "file-write": ("def f(x):\n    with open(folder / 'log', 'a') as h: h.write('a')\n    return x.sum()", AGAIN),
    "file-read": ("(folder / 'k').write_text('2')\ndef f(x):\n    return (x * float((folder / 'k').read_text())).sum()",
                  ("", "", "(folder / 'k').write_text('3')", "")),
    "file-exists": ("def f(x):\n    return (x * (2 if (folder / 'k').exists() else 3)).sum()",
                    ("", "", "(folder / 'k').write_text('3')", "")),
    "torch-save": ("def f(x):\n    torch.save(x.detach(), folder / 'x'); return x.sum()",
                   ("", "", "", "ok = torch.load(folder / 'x').tolist(); os.remove(folder / 'x')"),),
    "logging": ("import logging, io\nlog = io.StringIO()\nlogger = logging.Logger('p')\n"
                "logger.addHandler(logging.StreamHandler(log)); lines = []\n"
                "def f(x):\n    logger.warning('step'); return x.sum()",
                ("", "", "lines.append(log.getvalue().count('step'))", "lines.append(log.getvalue().count('step'))")),
    "warn": ("seen = []\ndef f(x):\n    warnings.warn('careful'); return x.sum()\n"
             "_show = warnings.showwarning\n"
             "warnings.showwarning = lambda m, *r, **k: (\n"
             "    seen.append(str(m)) if str(m) == 'careful' else _show(m, *r, **k))", AGAIN),
}  # fmt: skip
