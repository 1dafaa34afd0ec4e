"""Training loops as people write them: language models, recurrence, policies, LBFGS, SAM."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from tests.programs.training import STEPS, Trained, Wrap


class Block(nn.Module):
    """A block of a small GPT, attention written out."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        wide = 2 * width
        self.mlp = nn.Sequential(nn.Linear(width, wide), nn.GELU(), nn.Linear(wide, width))

    def forward(self, x: Any) -> Any:
        b, n, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).chunk(3, -1)
        q, k, v = (t.view(b, n, self.heads, c // self.heads).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(y.transpose(1, 2).reshape(b, n, c))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """A language model that returns its loss and logs it."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(17, 8), nn.Embedding(6, 8)
        self.blocks = nn.ModuleList([Block(8, 2), Block(8, 2)])
        self.head = nn.Linear(8, 17, bias=False)
        self.head.weight = self.embed.weight
        self.step, self.z_weight = 0, 1e-2
        self.hist: list[float] = []

    def forward(self, ids: Any, targets: Any) -> Any:
        self.step += 1
        self.z_weight *= 0.99
        x = self.embed(ids) + self.place(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = self.head(x).flatten(0, 1)
        loss = F.cross_entropy(logits.float() if logits.dtype == torch.bfloat16 else logits,
                               targets.flatten())
        loss = loss + self.z_weight * logits.logsumexp(-1).pow(2).mean() / math.sqrt(self.step)
        self.hist.append(loss.item())
        return loss


def _language_model(wrap: Wrap, half: bool) -> Trained:
    net = GPT() if half else GPT().double()
    average = copy.deepcopy(net)
    loss_of = wrap(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2) if not half else torch.optim.SGD(
        net.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: min(1.0, (i + 1) / 5))
    norms = []
    for _ in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
        for _ in range(2):
            ids = torch.randint(0, 17, (4, 7))
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
                loss = loss_of(ids[:, :-1], ids[:, 1:]) / 2
            torch.autograd.backward(loss)
        norms.append(nn.utils.clip_grad_norm_(net.parameters(), 0.5).item())
        optimizer.step()
        schedule.step()
        with torch.no_grad():
            for slow, fast in zip(average.parameters(), net.parameters(), strict=True):
                slow.lerp_(fast, 0.1)
    logs = {"hist": net.hist, "norms": norms}
    return Trained([net, average], logs, {"step": net.step, "z": net.z_weight}, [loss_of])


def language_model(wrap: Wrap) -> Trained:
    """Accumulation, clipping, a schedule and an exponential average, in float64."""
    return _language_model(wrap, half=False)


def language_model_in_bfloat16(wrap: Wrap) -> Trained:
    """The same under autocast."""
    return _language_model(wrap, half=True)


class WordLM(nn.Module):
    """The Transformer of pytorch/examples' word_language_model: its mask is kept on self."""

    def __init__(self) -> None:
        super().__init__()
        self.src_mask: Any = None
        self.encode, self.decode = nn.Embedding(17, 8), nn.Linear(8, 17)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.temperature, self.calls = 2.0, 0

    def forward(self, src: Any) -> Any:
        self.calls += 1
        self.temperature = max(1.0, self.temperature * 0.95)
        if self.src_mask is None or self.src_mask.size(0) != len(src):
            mask = torch.log(torch.tril(torch.ones(len(src), len(src))))
            self.src_mask = mask.to(src.device).double()
        x = self.encoder(self.encode(src) * math.sqrt(8), mask=self.src_mask)
        return F.log_softmax(self.decode(x) / self.temperature, -1)


def word_language_model(wrap: Wrap) -> Trained:
    """The last batch of an epoch is shorter, and the mask is made again."""
    net = WordLM().double()
    model = wrap(net)
    hist = []
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for i in range(STEPS):
        n = 3 if i % 10 == 9 else 5
        ids = torch.randint(0, 17, (n + 1, 4))
        optimizer.zero_grad()
        loss = F.nll_loss(model(ids[:-1]).flatten(0, 1), ids[1:].flatten())
        torch.autograd.backward(loss)
        optimizer.step()
        hist.append(loss.item())
    counters = {"calls": net.calls, "temperature": net.temperature}
    return Trained([net, net.src_mask], {"hist": hist}, counters, [model])


def truncated_lstm(wrap: Wrap) -> Trained:
    """The hidden state is carried on detached, kept on the module, and reset by its own counter."""

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(11, 6), nn.Linear(6, 11)
            self.lstm = nn.LSTM(6, 6, 2, dropout=0.1)
            self.hidden: Any = None
            self.step, self.weight = 0, 0.1
            self.hist: list[float] = []

        def forward(self, ids: Any) -> Any:
            self.step += 1
            self.weight *= 0.97
            if self.hidden is None:
                zeros = torch.zeros(2, ids.shape[1], 6).double()
                self.hidden = (zeros, zeros.clone())
            state = tuple(h.detach() for h in self.hidden)
            out, self.hidden = self.lstm(self.embed(ids[:-1]), state)
            loss = F.cross_entropy(self.head(out).flatten(0, 1), ids[1:].flatten())
            loss = loss + self.weight * out.pow(2).mean()
            self.hist.append(loss.item())
            return loss

    net = Recurrent().double()
    loss_of = wrap(net)
    optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-3)
    for i in range(STEPS):
        if i == 12:
            net.hidden = None
        optimizer.zero_grad()
        loss_of(torch.randint(0, 11, (6, 3))).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.25)
        optimizer.step()
    return Trained([net, *net.hidden], {"hist": net.hist}, {"step": net.step, "weight": net.weight},
                   [loss_of])  # fmt: skip


def actor_critic(wrap: Wrap) -> Trained:
    """Actions are drawn by torch.distributions; entropy is annealed; returns are a Python loop."""
    policy = nn.Sequential(nn.Linear(3, 8), nn.Tanh()).double()
    actor, critic = nn.Linear(8, 2).double(), nn.Linear(8, 1).double()
    hist: list[tuple[float, float, float]] = []

    class Agent:
        entropy_weight, step = 0.1, 0

        def loss(self, states: Any, rewards: Any) -> Any:
            self.step += 1
            self.entropy_weight *= 0.95
            h = policy(states)
            chosen: Any = torch.distributions.Categorical(logits=actor(h))
            action, value = chosen.sample(), critic(h).squeeze(-1)
            got = torch.zeros(()).double()
            returns: list[Any] = []
            for reward in reversed(torch.where(action == 1, rewards, -rewards).unbind()):
                got = reward + 0.9 * got
                returns.insert(0, got)
            target = torch.stack(returns)
            target = (target - target.mean()) / (target.std() + 1e-6)
            advantage = target - value.detach()
            actor_loss = -(chosen.log_prob(action) * advantage).mean()
            critic_loss = F.smooth_l1_loss(value, target)
            entropy = chosen.entropy().mean()
            hist.append((actor_loss.item(), critic_loss.item(), entropy.item()))
            return actor_loss + 0.5 * critic_loss - self.entropy_weight * entropy

    agent = Agent()
    loss_of = wrap(agent.loss)
    modules = nn.ModuleList([policy, actor, critic])
    optimizer = torch.optim.Adam(modules.parameters(), lr=1e-2)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss_of(torch.randn(6, 3).double(), torch.rand(6).double()).backward()
        optimizer.step()
    return Trained([modules], {"hist": [v for row in hist for v in row]},
                   {"step": agent.step, "entropy": agent.entropy_weight}, [loss_of])  # fmt: skip


def lbfgs(wrap: Wrap) -> Trained:
    """A closure without arguments, called as often as the line search likes."""
    net = nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 1)).double()
    x = torch.randn(12, 2).double()
    y = torch.sin(x.sum(1, keepdim=True))
    state: dict[str, Any] = {"calls": 0, "decay": 1e-2, "hist": []}

    def fit() -> Any:
        state["calls"] += 1
        penalty = state["decay"] * sum(p.pow(2).sum() for p in net.parameters())
        loss = F.mse_loss(net(x), y) + penalty / (1 + 0.0 * state["calls"])
        state["hist"].append(loss.item())
        return loss

    loss_of = wrap(fit)
    optimizer: Any = torch.optim.LBFGS(
        net.parameters(), max_iter=4, line_search_fn="strong_wolfe")  # fmt: skip

    def closure() -> Any:
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        return loss

    for _ in range(STEPS):
        state["decay"] *= 0.9
        optimizer.step(closure)
    counters = {"calls": state["calls"], "decay": state["decay"]}
    return Trained([net], {"hist": state["hist"]}, counters, [loss_of])


class SAM(torch.optim.Optimizer):
    """Sharpness-aware minimisation, as in davda54/sam."""

    def __init__(self, params: Any, lr: float, rho: float = 0.05) -> None:
        super().__init__(params, {"rho": rho})
        self.base = torch.optim.SGD(self.param_groups, lr=lr, momentum=0.9)

    @torch.no_grad()
    def first_step(self) -> None:
        grads = [p.grad for group in self.param_groups for p in group["params"]]
        norm = torch.norm(torch.stack([g.norm(p=2) for g in grads]), p=2)
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["old"] = p.data.clone()
                p.add_(p.grad * (group["rho"] / (norm + 1e-12)))
        self.zero_grad()

    @torch.no_grad()
    def second_step(self) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                p.data = self.state[p]["old"]
        self.base.step()
        self.zero_grad()


def sam(wrap: Wrap) -> Trained:
    """Two backwards a step; the second in train mode without running statistics."""
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.SiLU(), nn.Linear(8, 3)).double()
    hist: list[float] = []
    calls, smoothing = 0, 0.2

    def loss_of(x: Any, y: Any) -> Any:
        nonlocal calls, smoothing
        calls += 1
        smoothing *= 0.98
        out = net(x)
        loss = F.cross_entropy(out, y) - smoothing * F.log_softmax(out, 1).mean() / calls
        hist.append(loss.item())
        return loss

    step = wrap(loss_of)
    optimizer = SAM(net.parameters(), lr=0.05)
    for _ in range(STEPS):
        x, y = torch.randn(8, 4).double(), torch.randint(0, 3, (8,))
        step(x, y).backward()
        optimizer.first_step()
        step(x, y).backward()
        optimizer.second_step()
    return Trained([net], {"hist": hist}, {"calls": calls, "smoothing": smoothing}, [step])
