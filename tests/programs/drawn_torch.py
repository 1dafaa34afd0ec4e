"""Drawn programs of torch: a module with state, its calls, and what is done in between.

Each is a sequence of calls (`sequence.py`), which runs as it is and with `differentiate`.
"""

from __future__ import annotations

import random
import textwrap

from tests.programs import drawn_torch_1, drawn_torch_2, drawn_torch_3, drawn_torch_4
from tests.programs.drawn import Drawn, parsed
from tests.programs.sequence import Sequence, compare

PARTS = {
    **parsed(drawn_torch_1.PARTS), **parsed(drawn_torch_2.PARTS), **parsed(drawn_torch_3.PARTS),
    **parsed(drawn_torch_4.PARTS),
}
BY_DEFAULT = "x = t(4, 3); out = g(x)", "backward(out)"
CALLS = (
    *(BY_DEFAULT[0],) * 5,
    "x = t(2, 3); out = g(x)",
    "x = t(5, 3).detach(); out = g(x)",
    "x = t(3, 4).T; out = g(x).contiguous()",
    "x = t(1, 3).expand(4, 3); out = g(x)",
    "x = t(8, 3)[::2]; out = g(x)",
    "with torch.no_grad(): x = t(4, 3); out = g(x)",
    "with torch.inference_mode(): x = t(4, 3).detach() * 1; out = g(x).sum()",
    "x = t(4, 3); out = g(x) + g(x * 2)",
    "x = t(4, 3); out = g(g(x))",
    "x = t(4, 3); out = g(h=x)",
    "x = t(4, 3); _kept = g(x); out = None",
    "out = None",
    "x = nn.Parameter(t(4, 3).detach()); out = g(x)",
    "x = t(4, 3); x.register_hook(lambda _g: _g * 2); out = g(x)",
    "with torch.autograd.graph.save_on_cpu(): x = t(4, 3); out = g(x)",
    "_y = t(4, 3); x = _y * 2; x.retain_grad(); out = g(x)",
)
AFTERS = (
    *(BY_DEFAULT[1],) * 6,
    "",
    "out.sum().backward(retain_graph=True); backward(out)",
    "gs = slopes(out.sum(), x); (gs.pow(2).sum() + 0 * x.sum()).backward()",
    "gs = [copied(s) for s in torch.autograd.grad(out.sum(), leaves(m), allow_unused=True)]",
    "backward(_kept)",
    "gs = copied(torch.autograd.grad(out, x, torch.ones_like(out), allow_unused=True)[0])",
    "_o.zero_grad(); (out ** 2).mean().backward(); _o.step()",
    "(-out.mean()).backward()",
    "out[0].sum().backward()",
    "m.zero_grad(); backward(out)",
    "out = out.detach()",
)
COMMON = (
    "m.eval()",
    "m.train()",
    "_o.step()",
    "_o.zero_grad()",
    "_o.zero_grad(set_to_none=False)",
    "[p.data.mul_(0.9) for p in m.parameters()]",
    "m.requires_grad_(False)",
    "m.requires_grad_(True)",
    "_sd = copy.deepcopy(m.state_dict())",
    "m.load_state_dict(_sd, strict=False)",
    "m.load_state_dict(_sd, strict=False, assign=True)",
    "torch.nn.utils.clip_grad_norm_(m.parameters(), 0.5)",
    "_h = m.register_forward_hook(lambda mod, a, o: None)",
    "_h = m.register_forward_hook(lambda mod, a, o: o * 2)",
    "_h.remove()",
    "_h = m.register_full_backward_hook(lambda mod, gi, go: None)",
    "_h = m.register_forward_pre_hook(lambda mod, a: tuple(b * 2 for b in a))",
    "m.note = 'x'",
    "m.double()",
    "[p.register_hook(lambda g: g * 2) for p in leaves(m)[:1]]",
    "torch.manual_seed(0)",
    "_e = torch.optim.swa_utils.AveragedModel(m)",
    "_o = torch.optim.Adam([*m.parameters()] or [torch.ones(1)], lr=0.01)",
)
# A backward that eager refuses, as a node's memory is freed; or as it is in inference mode.
REFUSES = ("backward through the graph a second time", "element 0 of tensors does not require grad")
HELP = """\
import torch.nn.utils.prune
torch.manual_seed(0)
def leaves(m): return [p for p in m.parameters() if p.requires_grad]
def copied(x): return None if x is None else x.contiguous()
def slopes(value, x):
    return torch.autograd.grad(value, x, create_graph=True, allow_unused=True)[0].contiguous()
"""


def draw(seed: int) -> Drawn:
    """The program of a seed."""
    chosen = random.Random(seed)
    names = chosen.sample(sorted(PARTS), chosen.choice([1, 1, 2, 2, 3, 4]))
    own = [action for name in names for action in PARTS[name].actions]
    steps = []
    for i in range(chosen.randint(3, 9)):
        several = chosen.choice([1, 1, 2]) if i and chosen.random() < 0.6 else 0
        actions = tuple(
            chosen.choice(own if own and chosen.random() < 0.65 else COMMON)
            for _ in range(several)
        )
        call = CALLS[0] if chosen.random() < 0.5 else chosen.choice(CALLS)
        after = AFTERS[0] if chosen.random() < 0.5 else chosen.choice(AFTERS)
        steps.append((actions, call, after))
    called = chosen.choice(["module", "module", "function", "method"])
    return Drawn(tuple(names), tuple(steps), called)


def sequence_of(drawn: Drawn, name: str = "drawn") -> Sequence:
    """A program of torch's as a sequence of calls."""
    parts = [PARTS[part] for part in drawn.parts]
    init = "\n".join(["super().__init__()", *(p.init for p in parts if p.init)])
    body = "\n".join([*(p.body for p in parts), "return h"])
    called = {"module": "f = m", "function": "def f(h): return m(h)", "method": "f = m.forward"}
    setup = [
        HELP, *(p.before for p in parts if p.before), "class M(nn.Module):",
        "    gain = property(lambda self: self._g)",
        "    kk = functools.cached_property(lambda self: self._k * 2)",
        "    def __init__(self):", textwrap.indent(init, " " * 8),
        "    def forward(self, h):", textwrap.indent(body, " " * 8),
        "m = M().double()",
        "if 'lazy' in dir(m): m.lazy(torch.ones(1, 3).double())",
        "_sd, _kept = copy.deepcopy(m.state_dict()), None",
        "_o = torch.optim.SGD([*m.parameters()] or [torch.ones(1)], lr=0.01)",
        "_h = m.register_forward_hook(lambda mod, a, o: None)", "_h.remove()",
        called[drawn.called],
    ]  # fmt: skip
    steps = tuple("\n".join([*actions, call, after]) for actions, call, after in drawn.steps)
    rounding = 1e-2 if "autocast" in drawn.parts else 1e-9
    return Sequence(name, "\n".join(setup), steps, "pass", "pass", rounding=rounding)


def judge(drawn: Drawn) -> tuple[str, str]:
    """The kind of outcome, and how it is wrong."""
    outcome = compare(sequence_of(drawn))
    if outcome.text.endswith("gradof has None") and any(x in outcome.text for x in REFUSES):
        return "more", outcome.text
    if outcome.kind == "equal" and outcome.compiled.eager_warnings:
        return "eager", ""
    return outcome.kind, outcome.text
