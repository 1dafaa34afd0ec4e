"""An LSTM that predicts a real sequence: the airline passengers of Box & Jenkins.

    python examples/lstm.py

Data: monthly totals of international airline passengers, January 1949 to December 1960, in
thousands (Box, Jenkins & Reinsel, Time Series Analysis, series G). `nn.LSTM` is traced through
its cells, step by step; the last two years are never trained on.
"""

from __future__ import annotations

import argparse
import math

import torch
from torch import Tensor, nn

from gradof import differentiate

PASSENGERS = """
112 118 132 129 121 135 148 148 136 119 104 118  115 126 141 135 125 149 170 170 158 133 114 140
145 150 178 163 172 178 199 199 184 162 146 166  171 180 193 181 183 218 230 242 209 191 172 194
196 196 236 235 229 243 264 272 237 211 180 201  204 188 235 227 234 264 302 293 259 229 203 229
242 233 267 269 270 315 364 347 312 274 237 278  284 277 317 313 318 374 413 405 355 306 271 306
315 301 356 348 355 422 465 467 404 347 305 336  340 318 362 348 363 435 491 505 404 359 310 337
360 342 406 396 420 472 548 559 463 407 362 405  417 391 419 461 472 535 622 606 508 461 390 432
"""
WINDOW = 12


class Forecaster(nn.Module):
    """A one-layer LSTM over a window of 12 months and a linear head: f32[n,12,1] -> f32[n]."""

    def __init__(self, hidden: int = 16) -> None:
        super().__init__()
        self.lstm = nn.LSTM(1, hidden, batch_first=True)
        self.head = nn.Linear(hidden, 1)

    def forward(self, x: Tensor) -> Tensor:
        """The month after each window: the same month a year before plus a learnt change."""
        states, _ = self.lstm(x)
        return x[:, 0, 0] + self.head(states[:, -1])[:, 0]


def load_series() -> Tensor:
    """The logarithm of the passengers, standardised: f32[144]."""
    series = torch.tensor([math.log(float(v)) for v in PASSENGERS.split()])
    return (series - series[:120].mean()) / series[:120].std()


def windows(series: Tensor) -> tuple[Tensor, Tensor]:
    """Every window of 12 months with the month after it: f32[132,12,1], f32[132]."""
    x = torch.stack([series[i : i + WINDOW] for i in range(len(series) - WINDOW)])
    return x[:, :, None], series[WINDOW:]


def main(argv: list[str] | None = None) -> dict[str, float]:
    """Train; returns the test errors of the model and of repeating last month or last year."""
    parser = argparse.ArgumentParser(description="an LSTM on the airline passengers")
    parser.add_argument("--steps", type=int, default=200)
    steps = parser.parse_args(argv).steps
    torch.manual_seed(0)
    x, y = windows(load_series())
    split = len(x) - 24
    model = differentiate(Forecaster())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=1e-2)
    for step in range(steps):
        optimizer.zero_grad()
        value = nn.functional.mse_loss(model(x[:split]), y[:split])
        value.backward()
        optimizer.step()
        if step % 40 == 0 or step == steps - 1:
            print(f"step {step:>4}  training error {value.item():.5f}")
    with torch.no_grad():
        error = nn.functional.mse_loss(model(x[split:]), y[split:]).item()
    month = nn.functional.mse_loss(x[split:, -1, 0], y[split:]).item()
    year = nn.functional.mse_loss(x[split:, 0, 0], y[split:]).item()
    print(f"test error {error:.5f}; repeating last month {month:.5f}, last year {year:.5f}")
    return {"error": error, "month": month, "year": year}


if __name__ == "__main__":
    main()
