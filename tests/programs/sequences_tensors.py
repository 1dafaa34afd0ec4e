"""Layouts of arguments, who is who among them, changes in place, and torch's own switches."""

from __future__ import annotations

from tests.programs.sequence import Sequence

# How an argument of shape (2, 3) may lie in memory; leaves are made by `leaf`.
LAYOUTS = {
    "plain": "leaf(2, 3)",
    "transposed": "t(3, 2).detach().T.requires_grad_()",
    "expanded": "t(1, 3).detach().expand(2, 3).requires_grad_()",
    "strided": "t(2, 6).detach()[:, ::2].requires_grad_()",
    "offset": "t(3, 3).detach()[1:].requires_grad_()",
    "view": "t(2, 3) * 1",
    "view-of-graph": "(t(3, 2) * 1).T",
}
BODIES = {
    "contiguous-add": "y = x.contiguous(); y = y.add_(1) if not x.requires_grad else y * 1; return y.sum()",
    "contiguous-is": "return (x * (2 if x.contiguous() is x else 3)).sum()",
    "reshape-shares": "y = x.reshape(-1); return (x * (2 if y.data_ptr() == x.data_ptr() else 3)).sum()",
    "view": "return (x.view(-1) * torch.arange(6.)).sum()",
    "ravel": "return (x.ravel() * torch.arange(6.)).sum()",
    "flatten": "return (x.flatten() * torch.arange(6.)).sum()",
    "stride": "return (x * x.stride(0)).sum()",
    "stride-tuple": "a, b = x.stride(); return (x * (a + 2 * b)).sum()",
    "is-contiguous": "return (x if x.is_contiguous() else -x).sum()",
    "storage-offset": "return (x * (1 + x.storage_offset())).sum()",
    "as-strided": "return (x.as_strided((2, 2), (1, 2)) * torch.arange(4.).reshape(2, 2)).sum()",
    "clone-stride": "y = x.clone(); return (y * y.stride(0)).sum()",
    "empty-like": "y = torch.empty_like(x); return (x * y.stride(1)).sum()",
    "mul-stride": "y = x * 2; return (y * y.stride(1)).sum()",
    "result-kept": "return x * 2, x.T, x.reshape(-1), x.contiguous()",
    "matmul-kept": "return x @ x.T, x.T @ x",
}
# of x without gradient: changes of what may be the argument itself
CHANGES = {
    "contiguous": "y = x.contiguous(); y.add_(1)",
    "reshape": "y = x.reshape(-1); y.mul_(2)",
    "ravel": "y = x.ravel(); y[0] = 7",
    "flatten": "y = x.flatten(); y.zero_()",
    "to": "y = x.to(torch.float64); y.add_(1)",
    "float": "y = x.float(); y.add_(1)",
    "T": "y = x.T; y[0].add_(1)",
    "view": "y = x.view(3, 2); y[0].add_(1)",
    "narrow": "y = x.narrow(1, 1, 2); y.add_(1)",
    "squeeze": "y = x.squeeze(); y.add_(1)",
    "unsqueeze": "y = x.unsqueeze(0); y.add_(1)",
    "diagonal": "y = x.diagonal(); y.add_(1)",
    "as-strided": "y = x.as_strided((2,), (2,)); y.add_(1)",
    "select": "y = x[1]; y.add_(1)",
    "mask": "x[x > 0.6] = 0; y = x",
    "index-put": "x[torch.tensor([0, 1]), torch.tensor([1, 2])] += 1; y = x",
    "chunk": "y, z = x.chunk(2); y.add_(z)",
    "detach": "y = x.detach(); y.add_(1)",
    "data": "y = x.data; y.add_(1)",
    "set": "y = x; x += 1",
    "copy": "y = x.copy_(x.flip(0))",
    "swap": "x[[0, 1]] = x[[1, 0]]; y = x",
    "out": "y = torch.add(x, 1, out=x)",
    "clamp": "y = x.clamp_(0.5, 0.9)",
    "fill": "y = x.fill_(3)",
    "zero-row": "x[0].zero_(); y = x",
    "normal": "y = x.normal_()",
    "bernoulli": "y = x.bernoulli_(0.5)",
    "relu": "y = F.relu(x, inplace=True)",
    "dropout": "y = F.dropout(x, 0.5, inplace=True)",
    "t-": "y = x.t_()",
    "transpose-": "y = x.transpose_(0, 1)",
    "unsqueeze-": "y = x.unsqueeze_(0)",
    "resize-": "y = x.resize_(1, 2)",
    "expand": "y = x[:1].expand(2, 3).clone().add_(x)",
    "set-data": "x.data = x.data * 2; y = x",
    "numpy": "a = x.numpy(); a += 1; y = x",
}

# name → setup, steps, call (or "")
IN_PLACE = {
    "detach-mul": "b = torch.ones(3); s = b.detach(); s.mul_(x); return (s * x).sum()",
    "detach-index": "s = (x * 1).detach(); s[0] = x[1]; return (s * x).sum()",
    "detach-of-used": "h = x * 1; s = h.detach(); s[0] = x[1]; return (s * x).sum() + h.sum()",
    "clone-detach": "s = x.clone().detach(); s[0] = x[1]; s[1] = x[0] * 2; return (s * x).sum()",
    "detach-no-graph": "h = x * 2; s = h.detach(); s.zero_(); return h.sum() + (x * x).sum()",
    "detach-saved": "h = x * 2; y = h * h; h.detach().zero_(); return y.sum()",
    "data-of-intermediate": "h = x * 2; h.data.mul_(3); return (h * x).sum()",
    "data-saved": "h = x * 2; y = h * h; h.data.zero_(); return y.sum()",
    "no-grad-of-intermediate": "h = x * 2\n    with torch.no_grad(): h.mul_(3)\n    return (h * x).sum()",
    "no-grad-view": "h = x * 2\n    with torch.no_grad(): h[0] = 5\n    return (h * x).sum()",
    "view-of-view": "h = x * 2; v = h[1:][:1]; v.mul_(x[0]); return (h * x).sum()",
    "view-detached": "h = x * 2; v = h[1:].detach(); v.mul_(3); return (h * x).sum()",
    "leaf-changed": "x.mul_(2); return x.sum()",
    "leaf-view-changed": "x[0] = 1; return x.sum()",
    "leaf-no-grad": "with torch.no_grad(): x.mul_(0.5)\n    return (x * x).sum()",
    "leaf-data": "x.data.mul_(0.5); return (x * x).sum()",
    "leaf-detach": "x.detach().mul_(0.5); return (x * x).sum()",
    "leaf-data-after": "y = (x * x).sum(); x.data.mul_(0.5); return y",
    "saved-changed": "h = x * 2; y = h * h; h.add_(1); return y.sum()",
    "saved-changed-exp": "h = x.exp(); y = h * 2; h.add_(1); return y.sum()",
    "fill-of-graph": "h = x * 2; h.fill_(3); return (h * x).sum()",
    "zero-of-graph": "h = x * 2; h.zero_(); return (h * x).sum(), h",
    "normal-of-graph": "h = x * 2; h.normal_(); return (h * x).sum(), h",
    "copy-of-graph": "h = x * 2; h.copy_(torch.ones(3)); return (h * x).sum(), h",
    "zeros-written": "h = torch.zeros(3).double(); h[0] = x[0]; h[1:] = x[1:] * 2; return (h * h).sum()",
    "zeros-view-written": "h = torch.zeros(2, 3).double(); r = h[1]; r.copy_(x); return (h * h).sum()",
    "requires-grad-set": "h = torch.ones(3).double().requires_grad_(); return (h * x).sum(), h.requires_grad",
    "detach-": "h = x * 2; h.detach_(); return (h * x).sum()",
    "requires-grad-off": "h = x.detach(); h.requires_grad_(False); return (h * x).sum(), h.requires_grad",
    "retain-grad": "h = x * 2; h.retain_grad(); (h * x).sum().backward(retain_graph=True); return (h.grad * x).sum()",
    "grad-inside": "h = x * x; (d,) = torch.autograd.grad(h.sum(), x, create_graph=True); return (d * x).sum()",
    "version": "n = x._version; h = x * 2; h.add_(1); return (h * (h._version - n)).sum()",
    "version-of-argument": "return (x * (1 + x._version)).sum()",
    "is-leaf": "return (x if x.is_leaf else -x).sum()",
    "requires-grad-read": "return (x if x.requires_grad else -x).sum()",
    "grad-fn-read": "h = x * 2; return (h if 'Mul' in type(h.grad_fn).__name__ else -h).sum()",
    "grad-read": "return (x if x.grad is None else x * x.grad).sum()",
    "scatter": "h = torch.zeros(3).double().scatter_(0, torch.tensor([2, 0, 1]), x); return (h * x).sum()",
    "index-add": "h = torch.zeros(3).double(); h.index_add_(0, torch.tensor([0, 0, 1]), x); return (h * h).sum()",
    "masked-fill": "h = x * 2; h.masked_fill_(h > 1.2, 0); return (h * h).sum()",
    "inplace-relu": "h = x - 0.6; return (F.relu(h, inplace=True) * h).sum()",
    "iadd-alias": "h = x * 2; k = h; k += 1; return (h * k).sum()",
    "unbind": "h = x * 2; a, b, c = h.unbind(); a.add_(1); return (h * h).sum()",
    "split": "h = x * 2; a, b = h.split([1, 2]); b.mul_(2); return (h * h).sum()",
    "expand-changed": "h = (x[:1] * 2).expand(3); h.add_(1); return h.sum()",
    "swap-data": "h = torch.ones(3).double(); h.data = x.detach() * 2; return (h * x).sum()",
    "set-": "h = torch.ones(3).double(); h.set_(x.detach()); return (h * x).sum()",
    "inference": "with torch.inference_mode(): k = x * 2\n    return (x * 2).sum()",
    "inference-used": "with torch.inference_mode(): k = x * 2\n    return (x * k.clone()).sum()",
    "custom-function": (
        "class Double(torch.autograd.Function):\n"
        "        @staticmethod\n        def forward(ctx, a): ctx.mark_dirty(a); return a.mul_(2)\n"
        "        @staticmethod\n        def backward(ctx, g): return g * 2\n"
        "    h = x * 1; return Double.apply(h).sum()"),
}  # fmt: skip

SWITCHES = {
    "default-dtype": ("return (x * torch.tensor([1., 2., 3.])).sum(), torch.ones(1) * x",
                      "torch.set_default_dtype(torch.float64)"),
    "default-dtype-read": ("return x * (2 if torch.get_default_dtype() == torch.float32 else 3)",
                           "torch.set_default_dtype(torch.float64)"),
    "deterministic": ("return x * (2 if torch.are_deterministic_algorithms_enabled() else 3)",
                      "torch.use_deterministic_algorithms(True)"),
    "deterministic-error": ("return x[None, :, None, None].expand(1, 3, 2, 2).kthvalue(1).values.sum()",
                            "torch.use_deterministic_algorithms(True)"),
    "threads": ("return x * torch.get_num_threads()", "torch.set_num_threads(2)"),
    "precision": ("return x * (2 if torch.get_float32_matmul_precision() == 'highest' else 3)",
                  "torch.set_float32_matmul_precision('high')"),
    "grad-enabled": ("return x * (2 if torch.is_grad_enabled() else 3)", "torch.set_grad_enabled(False)"),
    "anomaly": ("return x * (2 if torch.is_anomaly_enabled() else 3)",
                "torch.autograd.set_detect_anomaly(True)"),
    "print-options": ("return x * len(str(torch.ones(1) / 3))", "torch.set_printoptions(precision=2)"),
    "seed": ("return x * torch.initial_seed()", "torch.manual_seed(5)"),
    "grad-mode-inside": ("torch.set_grad_enabled(False); return x * 2", ""),
    "dtype-inside": ("torch.set_default_dtype(torch.float64); return x * torch.ones(1)", ""),
    "seed-inside": ("torch.manual_seed(3); return x * torch.rand(3)", "torch.rand(2)"),
    "autocast": ("return (x.float() @ W).to(torch.float32)",
                 "torch.set_autocast_enabled('cpu', True)"),
    "autocast-read": ("return x * (2 if torch.is_autocast_enabled('cpu') else 3)",
                      "torch.set_autocast_enabled('cpu', True)"),
    "vmap-inside": ("return torch.func.vmap(lambda r: r * 2)(x).sum()", ""),
    "grad-inside": ("return torch.func.grad(lambda r: (r * r).sum())(x).sum()", ""),
    "functional-call": ("return torch.func.functional_call(M, dict(weight=x[None]), (x,)).sum()", ""),
    "recursion-limit": ("return x * (sys.getrecursionlimit() > 0)", ""),
    "default-device": ("return (x * torch.ones(3)).sum(), str(torch.get_default_device())",
                       "torch.set_default_device('cpu')"),
    "decimal-context": ("import decimal; return x * decimal.getcontext().prec",
                        "import decimal; decimal.getcontext().prec = 5"),
    "cwd": ("return x * (2 if os.path.exists('k') else 3)",
            "_at = os.getcwd(); os.chdir(folder); open('k', 'w').close()"),
    "argv": ("return x * len(sys.argv)", "sys.argv.append('a')"),
    "modules-table": ("return x * ('helper' in sys.modules)",
                      "sys.modules['helper'] = types.ModuleType('helper')"),
    "record-function": ("with torch.profiler.record_function('part'): y = x * 2\n    return y", ""),
    "saved-hooks-inside": (
        "with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t):\n"
        "        y = x * x\n    return y", ""),
    "assert": ("assert x.sum() > 0; return x * 2", "t = lambda *s: -torch.ones(s).double()"),
    "isfinite": ("return x if torch.isfinite(x).all() else x * 0", ""),
    "numel-branch": ("return x * (2 if x.numel() > 3 else 3)", "t = lambda *s: torch.ones(5).double()"),
    "scripted": ("return SCRIPTED(x)", ""),
    "as-tuple": ("return tuple(x)", ""),
    "tolist": ("return x * sum(x.tolist())", ""),
    "numpy-inside": ("return x * float(np.sum(x.detach().numpy()))", ""),
    "list-argument": ("return x * torch.tensor([1., 2., 3.]).double()", ""),
    "unique": ("return x.round().unique().sum() + x.sum()", ""),
    "sparse": ("return torch.sparse.mm(S, x[:, None]).sum()", ""),
    "to-sparse": ("return (x * 2).to_sparse().to_dense().sum()", ""),
    "complex": ("return torch.view_as_real(torch.complex(x, x * 2)).sum()", ""),
    "no-tensor-result": ("return 3", ""),
    "no-result": ("x * 2", ""),
    "mixed-result": ("return dict(a=x * 2, b=[1, 'c', None], d=np.ones(2), e=Box)", ""),
    "argument-returned": ("return x", ""),
    "argument-twice": ("return x, x, x * 2", ""),
    "constant": ("return torch.ones(3)", ""),
    "global-returned": ("return W, x * 2", "W.data.add_(1)"),
    "generator-returned": ("return list(v * 2 for v in x)", ""),
    "set-result": ("return {1, 2}, frozenset([3])", ""),
}
_SETUP = {
    "autocast": "W = torch.eye(3)\n",
    "functional-call": "M = nn.Linear(3, 1, bias=False).double()\n",
    "scripted": "def s(x: torch.Tensor): return x * 2\n"
                "warnings.simplefilter('ignore'); SCRIPTED = torch.jit.trace(s, torch.ones(3).double())\n",
    "sparse": "S = torch.eye(3).double().to_sparse()\n",
    "global-returned": "W = nn.Parameter(torch.ones(3).double())\n",
}  # fmt: skip

IDENTITY = {
    # name: parameters and body, calls
    "same-twice": ("x, y", "return (x * 2 if x is y else x * 3 + y).sum()", ("a, a", "a, b", "b, b")),
    "same-of-three": ("x, y, z", "return (x * (1 + (x is y) + 2 * (y is z) + 4 * (x is z))).sum()",
                      ("a, a, b", "a, b, b", "a, b, a", "a, a, a", "a, b, c")),
    "equal-id": ("x, y", "return (x * (2 if id(x) == id(y) else 3)).sum()", ("a, b", "a, a", "b, a")),
    "in-list": ("x, ys", "return (x * (1 + sum(y is x for y in ys))).sum()",
                ("a, [a, b]", "a, [b, c]", "b, [b, b]")),
    "list-twice": ("xs, ys", "return (xs[0] * (2 if xs is ys else 3)).sum()",
                   ("l, l", "l, [a, b]", "l, l")),
    "dict-key": ("x, y", "return (x * len({x: 1, y: 2})).sum()", ("a, b", "a, a", "b, b")),
    "in-set": ("x, y", "return (x * len({x, y})).sum()", ("a, b", "a, a", "b, b")),
    "is-global": ("x", "return (x * (2 if x is a else 3)).sum()", ("a", "b", "a")),
    "is-previous": ("x", "global last; n = x is last; last = x; return (x * (2 if n else 3)).sum()",
                    ("a", "a", "b", "b")),
    "parameter": ("x", "return (x * (2 if isinstance(x, nn.Parameter) else 3)).sum()", ("p", "a", "p")),
    "parameter-argument": ("x, y", "return ((x if type(y) is nn.Parameter else x * 2) * y).sum()",
                           ("a, p", "a, b", "a, p")),
    "type": ("x", "return (x * (2 if type(x) is torch.Tensor else 3)).sum()", ("p", "a", "a")),
    "subclass": ("x", "return (x * (2 if isinstance(x, Sub) else 3)).sum()", ("s", "a", "s")),
    "buffer": ("x", "return (x * (2 if isinstance(x, nn.Buffer) else 3)).sum()", ("nn.Buffer(a)", "a", "a")),
    "attribute-of-tensor": ("x", "return (x * getattr(x, 'k', 1)).sum()", ("a", "k2", "a", "k3")),
    "tag-set": ("x", "x.tag = 5; return (x * 2).sum()", ("a", "b", "c")),
    "shared-memory": ("x, y", "x.add_(1); return (x * y).sum()", ("v[:2], v[1:]", "v[:2], v[2:]", "v[:2], v[:2]")),
    "same-changed": ("x, y", "x.add_(1); return (x * y).sum()", ("v, v", "v, w", "v, v")),
    "same-view-changed": ("x, y", "x.add_(1); return (x * y).sum()", ("v, v.view(-1)", "v, w", "v, v[:]")),
    "gradients-of-same": ("x, y", "return (x * y + x).sum()", ("a, a", "a, b", "a, a", "b, a")),
    "argument-is-state": ("x", "return (x * a).sum()", ("a", "b", "a")),
    "state-twice": ("x", "return (x * o.u * o.v).sum()", ("a", "b", "(setattr(o, 'v', o.u), c)[1]", "c")),
    "none-or-tensor": ("x, y=None", "return (x if y is None else x * y).sum()", ("a", "a, b", "a", "a, None")),
    "number-or-tensor": ("x, y", "return (x * y).sum()", ("a, 2", "a, b", "a, 2.0", "a, torch.tensor(3.)")),
    "float-int-bool": ("x, y", "return (x * y).sum(), type(y)", ("a, 1", "a, 1.0", "a, True", "a, np.float64(1)")),
    "string": ("x, how", "return getattr(torch, how)(x).sum()", ("a, 'sin'", "a, 'cos'", "a, 'sin'")),
    "varargs": ("*xs", "return sum((i + 1) * x for i, x in enumerate(xs)).sum()", ("a", "a, b", "a, b, c", "a")),
    "keywords": ("**xs", "return sum((i + 1) * x for i, x in enumerate(xs.values())).sum()",
                 ("u=a, v=b", "v=b, u=a", "u=a", "v=a, u=b")),
    "keyword-or-not": ("x, y", "return (x - y).sum()", ("a, b", "a, y=b", "y=a, x=b")),
    "dict-order": ("d", "return sum((i + 1) * x for i, x in enumerate(d.values())).sum()",
                   ("dict(u=a, v=b)", "dict(v=b, u=a)", "dict(u=a, v=b)")),
    "dict-changed": ("d", "d['n'] = d['u'] * 2; return d['n'].sum()", ("dict(u=a)", "e", "e", "e")),
    "list-changed": ("l", "l.append(l[0] * 2); return l[-1].sum()", ("[a]", "l", "l")),
    "object-argument": ("x, o", "o.n += 1; return (x * o.n).sum()", ("a, o", "a, o", "b, o")),
    "object-with-tensor": ("o", "return (o.u * o.v).sum()", ("o", "o", "Box(u=a, v=c)")),
    "object-mutated": ("x, o", "o.h = x * 2; return o.h.sum()", ("a, o", "b, o", "c, o")),
    "module-argument": ("x, m", "return m(x).sum()", ("a, m", "b, m", "a, nn.Tanh()", "a, m")),
    "function-argument": ("x, h", "return h(x).sum()", ("a, torch.sin", "a, torch.cos", "a, lambda v: v * 2")),
    "set-argument": ("x, s", "return (x * len(s)).sum()", ("a, {1}", "a, {1, 2}", "a, set()")),
    "numpy-argument": ("x, n", "return (x * torch.from_numpy(n)).sum()",
                       ("a, np.ones(3)", "a, np.full(3, 2.)", "a, np.ones(3)")),
    "numpy-scalar-argument": ("x, n", "return (x * float(n)).sum()",
                              ("a, np.float64(2)", "a, np.float64(3)", "a, np.float32(3)")),
    "enum-argument": ("x, n", "return (x * n.value).sum()", ("a, M.A", "a, M.B", "a, M.A")),
    "dataclass-argument": ("d", "return (d.u * d.k).sum()", ("D(a, 2)", "D(b, 3)", "D(a, 2.5)")),
    "generator-argument": ("xs", "return sum(x.sum() for x in xs)",
                           ("(v for v in [a, b])", "iter([a])", "(v for v in [c])")),
    "dtype-argument": ("x, d", "return x.to(d).sum()", ("a, torch.float32", "a, torch.float64")),
    "size-argument": ("x, n", "return x[:n].sum()", ("a, 1", "a, 2", "a, 3")),
    "slice-argument": ("x, n", "return x[n].sum()", ("a, slice(1)", "a, slice(2)", "a, ...")),
    "empty": ("x", "return x.sum()", ("t(0)", "a", "t(0, 3)")),
    "zero-dim": ("x", "return x * 2", ("t()", "t(1)", "t()")),
    "no-gradient": ("x", "return (x * 2).sum()", ("a", "a.detach()", "a")),
    "integers": ("x, i", "return x[i].sum()", ("a, torch.tensor([0])", "a, torch.tensor([1, 2])", "a, 1")),
    "bad-shape": ("x, y", "return (x * y).sum()", ("a, b", "a, t(4)", "a, b")),
    "bad-type": ("x, y", "return (x * y).sum()", ("a, b", "a, 'k'", "a, b")),
    "bad-count": ("x, y", "return (x * y).sum()", ("a, b", "a", "a, b")),
    "bad-keyword": ("x", "return x.sum()", ("a", "a, k=1", "a")),
    "bad-index": ("x, i", "return x[i].sum()", ("a, 0", "a, 5", "a, 1")),
    "bad-index-tensor": ("x, i", "return x[i].sum()",
                         ("a, torch.tensor([0])", "a, torch.tensor([5])", "a, torch.tensor([1])")),
    "raises": ("x", "if x[0] > 0.9: raise KeyError('big')\n    return x.sum()", ("a", "t(3) + 1", "a")),
    "division": ("x, n", "return (x * (1 / n)).sum()", ("a, 2", "a, 0", "a, 3")),
    "attribute-error": ("x", "return x.nothing", ("a", "b")),
    "name-error": ("x", "return x * NOTHING", ("a", "b")),
    "cuda": ("x", "return x.cuda().sum()", ("a", "b")),
}  # fmt: skip


def _layouts() -> list[Sequence]:
    found = []
    for name, body in BODIES.items():
        setup = f"leaf = t\ndef f(x):\n    {body}"
        found.append(Sequence(f"layout-{name}", setup, tuple(
            f"args = ({lay},)" for lay in LAYOUTS.values()), call="out = g(*args)"))  # fmt: skip
    plain = {k: v.replace(".requires_grad_()", "").replace("leaf(2, 3)", "t(2, 3).detach()")
             for k, v in LAYOUTS.items() if "view" not in k}  # fmt: skip
    for name, body in CHANGES.items():
        setup = f"def f(x, w):\n    {body}; return (y * w[0]).sum()"
        found.append(Sequence(f"layout-change-{name}", setup, tuple(
            f"args = ({lay}, t(1))" for lay in plain.values()), call="out = g(*args)",
            rounding=1e-6 if name == "float" else 0.0))  # fmt: skip
    images = "t(2, 3, 4, 4)", "t(2, 3, 4, 4).detach().to(memory_format=torch.channels_last).requires_grad_()"
    for name, setup in {
        "conv": "f = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU()).double()",
        "norm": "f = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).double()",
        "pool": "def f(x): return F.max_pool2d(x, 2), F.avg_pool2d(x, 2)",
        "pointwise": "def f(x): return x * 2, x + x.mean(1, keepdim=True), x.permute(0, 2, 3, 1)",
        "read": "def f(x): return x * (2 if x.is_contiguous(memory_format=torch.channels_last) else 3)",
        "to": "def f(x): return x.to(memory_format=torch.channels_last), x.contiguous()",
        "cat": "def f(x): return torch.cat([x, x * 2], 1)",
    }.items():
        found.append(Sequence(f"layout-image-{name}", setup, tuple(
            f"args = ({images[i]},)" for i in (0, 1, 0, 1)), call="out = g(*args)"))  # fmt: skip
    return found


def _rest() -> list[Sequence]:
    found = [
        Sequence(f"in-place-{name}", f"def f(x):\n    {body}", ("", "", "", ""))
        for name, body in IN_PLACE.items()
    ]
    for name, (body, change) in SWITCHES.items():
        setup = _SETUP.get(name, "") + f"def f(x):\n    {body}"
        rounding = {"autocast": 1e-2}.get(name, 0.0)
        found.append(Sequence(f"switch-{name}", setup, ("", "", change, ""), rounding=rounding))
    define = ("a, b, c = t(3), t(3), t(3); p = nn.Parameter(t(3).detach()); last = None\n"
              "v, w = torch.arange(4.).double(), torch.ones(4).double(); l = [a, b]; e = dict(u=a)\n"
              "class Sub(torch.Tensor): pass\n"
              "s = t(3).detach().as_subclass(Sub).requires_grad_(); m = nn.Linear(3, 2).double()\n"
              "k2, k3 = t(3), t(3); k2.k, k3.k = 2, 3; o = Box(n=0, u=a, v=b)\n"
              "class M(enum.Enum): A, B = 1, 2\n"
              "@dataclasses.dataclass\nclass D: u: torch.Tensor; k: float\n")  # fmt: skip
    for name, (params, body, calls) in IDENTITY.items():
        setup = f"{define}def f({params}):\n    {body}"
        found.append(Sequence(f"identity-{name}", setup, tuple(
            f"out = None; out = g({call})" for call in calls), call=""))  # fmt: skip
    return found


SEQUENCES = [*_layouts(), *_rest()]
