"""Training loops as people write them: GAN, VAE, siamese, style transfer, mixup, freezing half-way.

Each is a function of `wrap`, which is `differentiate` or nothing, and of what it makes nothing is
shared: the data is drawn from torch's seeded generator.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from tests.programs.training import STEPS, Trained, Wrap


def gan(wrap: Wrap) -> Trained:
    """Two losses over shared modules, instance noise that is annealed, both logged inside."""
    generator = nn.Sequential(
        nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)).double()  # fmt: skip
    critic = nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1)).double()
    hist: dict[str, list[float]] = {"d": [], "g": []}

    class Losses:
        noise, step = 0.5, 0

        def critic_loss(self, real: Any, z: Any) -> Any:
            self.step += 1
            self.noise *= 0.9
            fake = generator(z).detach()
            ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
            real_loss = F.binary_cross_entropy_with_logits(
                critic(real + self.noise * torch.randn_like(real)), ones.double())
            fake_loss = F.binary_cross_entropy_with_logits(critic(fake), zeros.double())
            loss = real_loss + fake_loss * min(1.0, self.step / 5)
            hist["d"].append(loss.item())
            return loss

        def generator_loss(self, z: Any) -> Any:
            loss = F.softplus(-critic(generator(z))).mean()
            hist["g"].append(loss.item())
            return loss

    losses = Losses()
    critic_loss, generator_loss = wrap(losses.critic_loss), wrap(losses.generator_loss)
    to_g = torch.optim.Adam(generator.parameters(), lr=1e-2, betas=(0.5, 0.999))
    to_d = torch.optim.Adam(critic.parameters(), lr=1e-2, betas=(0.5, 0.999))
    for _ in range(STEPS):
        real, z = torch.randn(16, 2).double() * 2 + 1, torch.randn(16, 3).double()
        to_d.zero_grad()
        critic_loss(real, z).backward()
        to_d.step()
        to_g.zero_grad()
        generator_loss(z).backward()
        to_g.step()
    return Trained([generator, critic], hist, {"step": losses.step, "noise": losses.noise},
                   [critic_loss, generator_loss])  # fmt: skip


class VAE(nn.Module):
    """Draws inside, an annealed weight of the divergence, and a log in `forward`."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(6, 8)
        self.mean, self.log_variance = nn.Linear(8, 2), nn.Linear(8, 2)
        self.decoder = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 6))
        self.beta, self.step = 1.0, 0
        self.hist: list[float] = []
        self.parts: list[tuple[float, float]] = []

    def forward(self, x: Any) -> Any:
        self.step += 1
        self.beta *= 0.99
        h = torch.tanh(self.encoder(x))
        mean, log_variance = self.mean(h), self.log_variance(h)
        z = mean + torch.randn_like(mean) * torch.exp(0.5 * log_variance)
        reconstruction = F.mse_loss(self.decoder(z), x, reduction="sum") / len(x)
        divergence = -0.5 * (1 + log_variance - mean.pow(2) - log_variance.exp()).sum(1).mean()
        loss = reconstruction + self.beta * divergence * min(1.0, self.step / 10)
        self.hist.append(loss.item())
        self.parts.append((reconstruction.item(), divergence.item()))
        return loss


def vae(wrap: Wrap) -> Trained:
    net = VAE().double()
    loss_of = wrap(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss_of(torch.randn(8, 6).double()).backward()
        optimizer.step()
    logs = {"hist": net.hist, "parts": [v for pair in net.parts for v in pair]}
    return Trained([net], logs, {"step": net.step, "beta": net.beta}, [loss_of])


MARGIN = {"value": 1.0}
SEEN = 0


def siamese(wrap: Wrap) -> Trained:
    """One tower twice, a margin in a global dict that grows, a global counter."""
    global SEEN
    SEEN = 0
    MARGIN["value"] = 1.0
    tower = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)).double()
    hist: list[float] = []

    def loss_of(left: Any, right: Any, same: Any) -> Any:
        global SEEN
        SEEN += 1
        MARGIN["value"] *= 1.01
        distance = F.pairwise_distance(tower(left), tower(right))
        apart = F.relu(MARGIN["value"] - distance)
        loss = (same * distance**2 + (1 - same) * apart**2).mean() / (1 + 0.01 * SEEN)
        hist.append(loss.item())
        return loss

    step = wrap(loss_of)
    optimizer = torch.optim.SGD(tower.parameters(), lr=0.02, momentum=0.9)
    for _ in range(STEPS):
        left, right = torch.randn(6, 1, 6, 6).double(), torch.randn(6, 1, 6, 6).double()
        optimizer.zero_grad()
        step(left, right, torch.randint(0, 2, (6,)).double()).backward()
        optimizer.step()
    return Trained([tower], {"hist": hist}, {"seen": SEEN, "margin": MARGIN["value"]}, [step])


def style_transfer(wrap: Wrap) -> Trained:
    """The image is the parameter; features are frozen, and targets are found in the first call."""
    features = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2),
                             nn.Conv2d(4, 6, 3, padding=1), nn.ReLU()).double()  # fmt: skip
    for p in features.parameters():
        p.requires_grad_(False)
    content, style = torch.rand(1, 3, 8, 8).double(), torch.rand(1, 3, 8, 8).double()
    image = nn.Parameter(content.clone())
    hist: list[float] = []

    def gram(x: Any) -> Any:
        n, c, h, w = x.size()
        flat = x.view(n * c, h * w)
        return flat.mm(flat.t()).div(n * c * h * w)

    class Loss:
        def __init__(self) -> None:
            self.targets: Any = None
            self.weight, self.step = 1e3, 0

        def layers(self, x: Any) -> list[Any]:
            found = []
            for layer in features:
                x = layer(x)
                if isinstance(layer, nn.ReLU):
                    found.append(x)
            return found

        def __call__(self, x: Any) -> Any:
            self.step += 1
            self.weight *= 0.99
            if self.targets is None:
                with torch.no_grad():
                    self.targets = [gram(f) for f in self.layers(style)]
                    self.kept = self.layers(content)[-1]
            found = self.layers(x)
            pairs = zip(found, self.targets, strict=True)
            style_loss = sum(F.mse_loss(gram(f), g) for f, g in pairs)
            loss = F.mse_loss(found[-1], self.kept) + self.weight * style_loss
            if self.step % 5 == 0:
                hist.append(loss.item())
            return loss

    loss = Loss()
    step = wrap(loss)
    optimizer = torch.optim.Adam([image], lr=0.02)
    for _ in range(STEPS):
        optimizer.zero_grad()
        step(image).backward()
        optimizer.step()
        with torch.no_grad():
            image.clamp_(0, 1)
    return Trained([image], {"hist": hist}, {"step": loss.step, "weight": loss.weight}, [step])


def mixup(wrap: Wrap) -> Trained:
    """The weight is drawn outside the loss, by numpy, and is an argument."""
    net = nn.Sequential(nn.Linear(5, 8), nn.GELU(), nn.Linear(8, 3)).double()
    hist: list[float] = []
    state = {"step": 0, "smoothing": 0.2}

    def loss_of(x: Any, a: Any, b: Any, weight: float) -> Any:
        state["step"] += 1
        state["smoothing"] *= 0.95
        out = net(x)
        loss = weight * F.cross_entropy(out, a) + (1 - weight) * F.cross_entropy(out, b)
        loss = loss + state["smoothing"] * (-F.log_softmax(out, 1).mean()) / state["step"]
        hist.append(loss.item())
        return loss

    step = wrap(loss_of)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, nesterov=True, momentum=0.9)
    for _ in range(STEPS):
        x, y = torch.randn(8, 5).double(), torch.randint(0, 3, (8,))
        weight, order = float(np.random.beta(0.4, 0.4)), torch.randperm(8)
        optimizer.zero_grad()
        step(weight * x + (1 - weight) * x[order], y, y[order], weight).backward()
        optimizer.step()
    return Trained([net], {"hist": hist}, dict(state), [step])


def mixup_inside(wrap: Wrap) -> Trained:
    """The weight, the order and whether to mix are drawn in the loss."""
    net = nn.Sequential(nn.Linear(5, 8), nn.GELU(), nn.Linear(8, 3)).double()
    hist: list[float] = []
    state = {"step": 0, "alpha": 0.5}

    def loss_of(x: Any, y: Any) -> Any:
        state["step"] += 1
        state["alpha"] *= 1.01
        if random.random() < 0.3:
            loss = F.cross_entropy(net(x), y)
        else:
            weight, order = np.random.beta(state["alpha"], state["alpha"]), torch.randperm(len(x))
            out = net(weight * x + (1 - weight) * x[order])
            loss = weight * F.cross_entropy(out, y) + (1 - weight) * F.cross_entropy(out, y[order])
        hist.append(loss.item())
        return loss

    step = wrap(loss_of)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        step(torch.randn(8, 5).double(), torch.randint(0, 3, (8,))).backward()
        optimizer.step()
    return Trained([net], {"hist": hist}, dict(state), [step])


def freezing(wrap: Wrap) -> Trained:
    """The backbone is frozen in the middle, its norm goes to eval, and a new group is added."""
    backbone = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Tanh()).double()
    head = nn.Linear(8, 3).double()

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone, self.head = backbone, head
            self.step, self.decay = 0, 1.0
            self.hist: list[float] = []

        def forward(self, x: Any, y: Any) -> Any:
            self.step += 1
            self.decay *= 0.98
            penalty = sum(p.pow(2).sum() for p in self.parameters() if p.requires_grad)
            loss = F.cross_entropy(self.head(self.backbone(x)), y)
            loss = loss + 0.01 * self.decay * penalty + 0.0 * self.step
            self.hist.append(loss.item())
            return loss

    net = Net()
    step = wrap(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    for i in range(STEPS):
        if i == STEPS // 2:
            backbone.requires_grad_(False)
            backbone.eval()
            optimizer = torch.optim.AdamW(head.parameters(), lr=1e-2)
        optimizer.zero_grad()
        step(torch.randn(8, 5).double(), torch.randint(0, 3, (8,))).backward()
        optimizer.step()
    return Trained([net], {"hist": net.hist}, {"step": net.step, "decay": net.decay}, [step])
