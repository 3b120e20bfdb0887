"""Bits per character on text8 after a few minutes, ours beside a plain implementation, in one run.

    python benchmarks/text8.py path/to/text8 --minutes 5

The plain twin is what one would write after reading the papers: 4 layers × 128 with attention, batch 16 × 256, float32
Muon, the bound (or next-token cross-entropy) as the loss; everything about it is in this file. Both are measured on the test
split by the same bound: the number of masks k uniform in 1…L, weight L/k.
"""

import argparse
import math
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import LambdaLR

from unnoise.data import Text8
from unnoise.data.corpus import Corpus, corpus
from unnoise.model.model import Model
from unnoise.training.optim import optimizers
from unnoise.training.run import train

K, LENGTH, BATCH = 27, 256, 16


def rotary(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[-2])[:, None] * 10_000.0 ** -(torch.arange(half) / half)
    a, b = x.chunk(2, -1)
    return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)


class PlainBlock(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm_1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(rotary(q), rotary(k), v, is_causal=self.causal)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


class Plain(nn.Module):
    def __init__(self, causal: bool, width: int = 128, depth: int = 4, heads: int = 4):
        super().__init__()
        self.embed = nn.Embedding(K + 1, width)
        self.blocks = nn.Sequential(*(PlainBlock(width, heads, causal) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, K)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.embed(x))))


def plain_loss(net: Plain, x: Tensor, causal: bool, generator: torch.Generator) -> Tensor:
    """The loss in nats per character: next-token cross-entropy, or the masked bound with weight 1/t."""
    if causal:
        start = torch.full_like(x[:, :1], K)
        return F.cross_entropy(net(torch.cat([start, x[:, :-1]], 1)).flatten(0, 1), x.flatten())
    t = ((torch.rand((), generator=generator) + torch.arange(len(x))[:, None] / len(x)) % 1).clamp_min(1e-3)
    masked = torch.rand(x.shape, generator=generator) < t
    losses = F.cross_entropy(net(x.masked_fill(masked, K)).flatten(0, 1), x.flatten(), reduction="none").view(x.shape)
    return (losses * masked / t).sum() / x.numel()


@torch.no_grad()
def test_bits(network, x: Tensor, causal: bool) -> float:
    """Exact for causal networks; otherwise the masked bound with the number of masks uniform in 1…L."""
    generator = torch.Generator().manual_seed(0)
    total = 0.0
    for rows in x.split(32):
        if causal:
            start = torch.full_like(rows[:, :1], K)
            total += float(F.cross_entropy(network(torch.cat([start, rows[:, :-1]], 1)).flatten(0, 1), rows.flatten())) * len(
                rows
            )
            continue
        u = (torch.rand((), generator=generator) + torch.randperm(len(rows), generator=generator) / len(rows)) % 1
        count = (u * LENGTH).long() + 1
        masked = torch.rand(rows.shape, generator=generator).argsort(1).argsort(1) < count[:, None]
        losses = F.cross_entropy(network(rows.masked_fill(masked, K)).flatten(0, 1), rows.flatten(), reduction="none")
        total += float(((losses.view(rows.shape) * masked).sum(1) / count).sum())
    return total / len(x) / math.log(2)


def plain(source: Corpus, minutes: float, causal: bool) -> tuple[Plain, int]:
    torch.manual_seed(0)
    texts = source.texts(Text8(), "train", LENGTH)
    net = Plain(causal)
    start, step, done = time.monotonic(), 0, 0.0
    both = optimizers(net)
    rates = [LambdaLR(optimizer, lambda _: min(1.0, done / 0.02 + 1e-2) * (1 - done)) for optimizer in both]
    while (done := (time.monotonic() - start) / (60 * minutes)) < 1:
        net.zero_grad()
        x = texts.batch(torch.arange(BATCH) + step * BATCH, 0).x
        plain_loss(net, x, causal, torch.Generator().manual_seed(step)).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        for part in (*both, *rates):
            part.step()
        step += 1
    return net, step * BATCH * LENGTH


def ours(source: Corpus, minutes: float, name: str) -> tuple[nn.Module, int]:
    model = Model.build(name, Text8(), length=LENGTH)
    report = train(model, source, loss="fast", minutes=minutes)
    return model.network.eval(), report.tokens


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--methods", nargs="+", default=["mdlm", "ar"])
    options = parser.parse_args()
    source = corpus(str(options.data))
    x = source.texts(Text8(), "test", LENGTH).windows()
    print(f"{options.minutes:g} minutes each, {len(x)} test windows of {LENGTH}")
    for name in options.methods:
        bits = {}
        for who in ("plain", "ours"):
            network, characters = (
                plain(source, options.minutes, name == "ar") if who == "plain" else ours(source, options.minutes, name)
            )
            bits[who] = test_bits(network, x, name == "ar")
            print(f"{name:5s} {who:6s} {bits[who]:.3f} bits per character, {characters:,} characters read", flush=True)
        print(f"{name:5s} ours lies {bits['plain'] - bits['ours']:.3f} bits below")
