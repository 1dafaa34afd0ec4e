"""A LeNet-style network with batch normalisation on scikit-learn's digits.

    python examples/cnn.py

`differentiate(module)` keeps the module's parameters, buffers and train()/eval(): the running
statistics of the batch normalisations are updated as torch's own are. LeCun et al.,
Gradient-based learning applied to document recognition, 1998.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

from gradof import differentiate


def lenet(width: int = 8) -> nn.Sequential:
    """For images f32[n,1,8,8]: two convolutions with batch norm and pooling, two linear layers.

    Batch norm subtracts the mean, so a bias before it would have no gradient but rounding.
    """
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1, bias=False), nn.BatchNorm2d(2 * width), nn.ReLU(),
        nn.AvgPool2d(2), nn.Flatten(), nn.Linear(8 * width, 32), nn.ReLU(), nn.Linear(32, 10),
    )  # fmt: skip


def load_images() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Train images f32[n,1,8,8], test images, train labels i64[n], test labels."""
    digits = load_digits()
    parts = train_test_split(
        digits.images / 16.0, digits.target, test_size=0.25, random_state=0, stratify=digits.target
    )
    train_x, test_x, train_y, test_y = (torch.as_tensor(p) for p in parts)
    return train_x.float()[:, None], test_x.float()[:, None], train_y.long(), test_y.long()


def batches(images: Tensor, labels: Tensor, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Shuffled whole batches of 64."""
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    for start in range(0, len(order) - 63, 64):
        chosen = order[start : start + 64]
        yield images[chosen], labels[chosen]


def main(argv: list[str] | None = None) -> float:
    """Train; returns the test accuracy."""
    parser = argparse.ArgumentParser(description="LeNet with batch norm on digits")
    parser.add_argument("--epochs", type=int, default=12)
    epochs = parser.parse_args(argv).epochs
    torch.manual_seed(0)
    train_x, test_x, train_y, test_y = load_images()
    model = differentiate(lenet())
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    accuracy = 0.0
    for epoch in range(epochs):
        model.train()
        value = torch.tensor(0.0)
        for images, labels in batches(train_x, train_y, epoch):
            optimizer.zero_grad()
            value = nn.functional.cross_entropy(model(images), labels)
            value.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            accuracy = (model(test_x).argmax(1) == test_y).float().mean().item()
        print(f"epoch {epoch:>2}  loss {value.item():.4f}  test accuracy {accuracy:.2%}")
    print(model.cache_info())
    return accuracy


if __name__ == "__main__":
    main()
