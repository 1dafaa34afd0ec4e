"""Hooks of modules and tensors, put on and taken off between calls."""

from __future__ import annotations

from tests.programs.sequence import Sequence

_NET = """\
log = []
inner = nn.Linear(2, 2).double()
f = nn.Sequential(nn.Linear(3, 2).double(), inner, nn.Tanh(), nn.Linear(2, 1).double())
"""
# name: where it is put ({m} is a module), as statements that define `handle`
MODULE_HOOKS = {
    "forward-count": "handle = {m}.register_forward_hook(lambda m, a, o: log.append(1))",
    "forward-replace": "handle = {m}.register_forward_hook(lambda m, a, o: o * 2)",
    "forward-log-mean": "handle = {m}.register_forward_hook(lambda m, a, o: log.append(o.mean().item()))",
    "forward-log-tensor": "handle = {m}.register_forward_hook(lambda m, a, o: log.append(o.detach()))",
    "forward-kwargs": "handle = {m}.register_forward_hook(lambda m, a, k, o: o + len(k), with_kwargs=True)",
    "forward-always": "handle = {m}.register_forward_hook(lambda m, a, o: log.append(2), always_call=True)",
    "forward-prepend": ("{m}.register_forward_hook(lambda m, a, o: log.append('a'))\n"
                        "handle = {m}.register_forward_hook(lambda m, a, o: log.append('b'), prepend=True)"),
    "forward-removes-itself": (
        "def once(m, a, o): log.append('once'); handle.remove()\nhandle = {m}.register_forward_hook(once)"),
    "pre-replace": "handle = {m}.register_forward_pre_hook(lambda m, a: (a[0] * 2,))",
    "pre-count": "handle = {m}.register_forward_pre_hook(lambda m, a: log.append(a[0].shape))",
    "pre-sets-state": "handle = {m}.register_forward_pre_hook(lambda m, a: setattr(m, 'seen', len(log)) or log.append(0))",
    "full-backward-scale": "handle = {m}.register_full_backward_hook(lambda m, gi, go: (gi[0] * 10,) if gi[0] is not None else None)",
    "full-backward-log": "handle = {m}.register_full_backward_hook(lambda m, gi, go: log.append(go[0].sum().item()))",
    "full-backward-keep": "handle = {m}.register_full_backward_hook(lambda m, gi, go: log.append(go[0].clone()))",
    "backward-pre-scale": "handle = {m}.register_full_backward_pre_hook(lambda m, go: (go[0] * 10,))",
    "backward-pre-log": "handle = {m}.register_full_backward_pre_hook(lambda m, go: log.append(go[0].clone()))",
}  # fmt: skip
MODULES = {"inner": "inner", "outer": "f"}

_TENSOR = "log = []\nw = nn.Parameter(torch.ones(3).double())\nm = nn.Linear(3, 2).double()\n"
TENSOR_HOOKS = {
    # name: body of f(x), steps
    "parameter": ("return (x * w).sum()", "handle = w.register_hook(lambda g: g * 10)", "handle.remove()"),
    "parameter-log": ("return (x * w).sum()", "handle = w.register_hook(lambda g: log.append(g.clone()))", "handle.remove()"),
    "module-parameter": ("return m(x).sum()", "handle = m.weight.register_hook(lambda g: g * 10)", "handle.remove()"),
    "post-accumulate": ("return (x * w).sum()",
                        "handle = w.register_post_accumulate_grad_hook(lambda p: log.append(p.grad.clone()))", "handle.remove()"),
    "post-accumulate-step": ("return (x * w).sum()",
                             "handle = w.register_post_accumulate_grad_hook(lambda p: p.data.sub_(p.grad))", "handle.remove()"),
    "argument": ("return (x * w).sum()", "args = (t(3),); args[0].register_hook(lambda g: g * 10)", "args = (t(3),)"),
    "intermediate": ("h = x * 2; h.register_hook(lambda g: g * 10); return (h * w).sum()", "", ""),
    "intermediate-log": ("h = x * 2; h.register_hook(lambda g: log.append(g.clone())); return (h * w).sum()", "", ""),
    "intermediate-of-branch": ("h = x * 2\n    if h.requires_grad: h.register_hook(lambda g: g.clamp(max=0.5))\n    return (h * w).sum()", "", ""),
    "intermediate-removed": ("h = x * 2; k = h.register_hook(lambda g: g * 10); k.remove(); return (h * w).sum()", "", ""),
    "retain-grad": ("h = x * 2; h.retain_grad(); log.append(h); return (h * w).sum()", "", ""),
    "multi-grad": ("h = x * 2\n    torch.autograd.graph.register_multi_grad_hook((h, x), lambda gs: log.append(len(gs)))\n"
                   "    return (h * w).sum()", "", ""),
    "multi-grad-outside": ("return (x * w).sum()",
                           "args = (t(3),); torch.autograd.graph.register_multi_grad_hook((args[0], w), lambda gs: log.append(len(gs)))",
                           "args = (t(3),)"),
    "grad-fn-hook": ("h = x * 2; h.grad_fn.register_hook(lambda gi, go: log.append(1)); return (h * w).sum()", "", ""),
    "grad-fn-pre-hook": ("h = x * 2; h.grad_fn.register_prehook(lambda go: (go[0] * 10,)); return (h * w).sum()", "", ""),
    "saved-tensors-around": ("return (x * w * w).sum()",
                             "_c = torch.autograd.graph.saved_tensors_hooks(lambda v: v, lambda v: v); _c.__enter__()",
                             "_c.__exit__(None, None, None)"),
    "save-on-cpu": ("with torch.autograd.graph.save_on_cpu(): h = x * w\n    return (h * h).sum()", "", ""),
    "hook-with-state": ("h = x * 2; h.register_hook(lambda g: log.append(len(log)) or g * len(log)); return (h * w).sum()", "", ""),
    "hook-of-result": ("return (x * w).sum(), x * 2", "", ""),
}  # fmt: skip
GLOBAL_HOOKS = {
    "global-forward": "nn.modules.module.register_module_forward_hook(lambda m, a, o: log.append(type(m).__name__))",
    "global-forward-replace": "nn.modules.module.register_module_forward_hook(lambda m, a, o: o * 2 if type(m) is nn.Tanh else None)",
    "global-pre": "nn.modules.module.register_module_forward_pre_hook(lambda m, a: log.append('pre'))",
    "global-backward": "nn.modules.module.register_module_full_backward_hook(lambda m, gi, go: log.append(type(m).__name__))",
    "state-dict": "f.register_state_dict_pre_hook(lambda m, p, k: log.append('dict'))",
}


def _module(hook: str, place: str) -> Sequence:
    text = MODULE_HOOKS[hook].format(m=MODULES[place])
    return Sequence(f"hook-{hook}-{place}", _NET, ("", "", text, "", "handle.remove()", ""))


def _before(hook: str) -> Sequence:
    """The hook is there before the first call."""
    setup = _NET + MODULE_HOOKS[hook].format(m="inner")
    return Sequence(f"hook-{hook}-from-the-start", setup, ("", "", "handle.remove()", ""))


def _two(first: str, second: str) -> Sequence:
    a, b = (MODULE_HOOKS[hook].format(m="inner") for hook in (first, second))
    steps = (a, "", b.replace("handle", "other"), "", "other.remove()", "handle.remove()")
    return Sequence(f"hook-{first}-and-{second}", _NET, steps)


def _tensor(name: str) -> Sequence:
    body, put, off = TENSOR_HOOKS[name]
    fresh = "args = (t(3),)"
    if "args" in put:
        steps: tuple[str, ...] = (fresh, put, put, off)
    else:
        steps = tuple(f"{fresh}\n{step}" for step in ("", "", put, "", off, ""))
    after = "backward(out)"
    if name == "hook-of-result":
        after = "out[0].register_hook(lambda v: v * 10); backward(out)"
    setup = f"{_TENSOR}def f(x):\n    {body}"
    return Sequence(f"hook-tensor-{name}", setup, steps, call="out = g(*args)", after=after)


def _all() -> list[Sequence]:
    found = [_module(hook, place) for hook in MODULE_HOOKS for place in MODULES]
    found += [_before(hook) for hook in MODULE_HOOKS]
    found += [_two("forward-replace", "pre-replace"), _two("pre-count", "full-backward-scale"),
              _two("backward-pre-scale", "full-backward-log")]  # fmt: skip
    found += [_tensor(name) for name in TENSOR_HOOKS]
    for name, text in GLOBAL_HOOKS.items():
        steps = "", "", f"handle = {text}", "", "handle.remove()", ""
        found.append(Sequence(f"hook-{name}", _NET, steps))
    return found


SEQUENCES = _all()
