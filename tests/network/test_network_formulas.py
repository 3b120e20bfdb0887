"""Networks against the same formulas in plain lines, in float64 and with loops over positions: the package's Transformer in
one and two dimensions, its time and labels, soft tokens, defaults, and what belongs to a parameterization."""

import math

import pytest
import torch
from torch import Tensor

import unnoise
from unnoise.network.attention import Visibility
from unnoise.network.ddit import Ddit
from unnoise.network.layers import SquaredRelu
from unnoise.network.llama import Llama
from unnoise.network.md4 import Md4Network
from unnoise.network.parameterization import LikelihoodParameterization
from unnoise.network.transformer import Transformer


def random(network: torch.nn.Module, size: float = 0.3) -> dict[str, Tensor]:
    """Convert a network to float64, randomize its weights and return them by name."""
    network.double()
    with torch.no_grad():
        for number, weight in enumerate(network.parameters()):
            weight.copy_(size * torch.randn(weight.shape, generator=torch.Generator().manual_seed(number)))
    return {name: weight.detach() for name, weight in network.named_parameters()}


def norm(x: Tensor) -> Tensor:
    """(x − mean)/√(variance + 10⁻⁵)."""
    x = x - x.mean(-1, keepdim=True)
    return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()


def turned(x: Tensor, angles: Tensor) -> Tensor:
    """Each pair (i, i + D/2) as a complex number, turned: [D]."""
    a, b = x.chunk(2)
    z = torch.complex(a, b) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat([z.real, z.imag])


def plain_time(w: dict[str, Tensor], t: float) -> Tensor:
    """silu(W φ(t) + b), φ of t·f and of f·log(t)/14 with sixteen f from 1 to 1,000: sines, then cosines."""
    f = [1000 ** (i / 15) for i in range(16)]
    phases = torch.tensor([t * one for one in f] + [math.log(max(t, 1e-6)) / 14 * one for one in f], dtype=torch.float64)
    wave = w["time_embed.0.weight"] @ torch.cat([phases.sin(), phases.cos()]) + w["time_embed.0.bias"]
    return wave * wave.sigmoid()


def plain_convolution(network: Transformer, taps: Tensor, h: Tensor) -> Tensor:
    """Σ_k w_k ⊙ h_{i+k}, k around 0 or up to it; in a picture over a square of pixels, each channel by itself: [L, D]."""
    shape, mixed = network.shape, torch.zeros_like(h)
    side, columns = math.isqrt(shape.taps), shape.grid[1] if shape.grid else 1
    for i in range(len(h)):
        for k in range(shape.taps):
            j = i + k - (shape.taps - 1 if shape.causal else shape.taps // 2)
            inside = 0 <= j < len(h)
            if shape.grid:
                row, column = i // columns + k // side - side // 2, i % columns + (k % side - side // 2) * shape.channels
                j, inside = row * columns + column, 0 <= row < shape.grid[0] and 0 <= column < columns
            if inside:
                mixed[i] += taps[k] * h[j]
    return mixed


def plain_angles(network: Transformer, i: int) -> Tensor:
    """By what position i turns its pairs."""
    shape = network.shape
    pairs = shape.width // shape.heads // 2
    if not shape.grid:
        return torch.tensor([i * 10_000.0 ** (-n / (pairs - 1)) for n in range(pairs)])
    slow = [100.0 ** (-n / max(pairs - pairs // 2 - 1, 1)) for n in range(pairs - pairs // 2)]
    row, column = i // shape.grid[1], i % shape.grid[1] // shape.channels
    return torch.tensor([row * one for one in slow] + [column * one for one in slow[: pairs // 2]])


def plain_attention(network: Transformer, qkv: Tensor) -> Tensor:
    """softmax(q·k/√D)·v with normed and turned q and k: [L, 3, H, D] → [L, H·D]."""
    length, _, heads, size = qkv.shape
    attended = torch.zeros(length, heads, size)
    for head in range(heads):
        q, k = ([turned(norm(qkv[i, n, head]), plain_angles(network, i)) for i in range(length)] for n in (0, 1))
        for i in range(length):
            seen = range(i + 1) if network.shape.causal else range(length)
            share = torch.stack([q[i] @ k[j] / math.sqrt(size) for j in seen]).softmax(0)
            attended[i, head] = sum(p * qkv[j, 2, head] for p, j in zip(share, seen, strict=True))
    return attended.view(length, heads * size)


def plain_transformer(network: Transformer, x: Tensor, t: float | None = None, label: int | None = None) -> Tensor:
    """One text [L] → [L, outputs]."""
    shape, w = network.shape, {name: weight.detach() for name, weight in network.named_parameters()}
    h = norm(w["embed.weight"][x])
    if shape.labels:
        h = h + w["label.weight"][shape.labels if label is None else label]
    if shape.channels > 1:
        h = h + w["channel.weight"][[i % shape.channels for i in range(len(x))]]
    for layer in range(shape.depth):
        block = {name.removeprefix(f"blocks.{layer}."): one for name, one in w.items() if name.startswith(f"blocks.{layer}.")}
        h = h + plain_convolution(network, block["conv.weight"], h)
        change = torch.zeros(4 * shape.width)
        if t is not None:
            change = block["adaln.weight"] @ plain_time(w, t) + block["adaln.bias"]
        scale_1, shift_1, scale_2, shift_2 = change.chunk(4)
        if (shape.depth - 1 - layer) % shape.attention_every == 0:
            qkv = (norm(h) * (1 + scale_1) + shift_1) @ block["attention.qkv.weight"].T
            h = h + plain_attention(network, qkv.view(len(x), 3, shape.heads, -1)) @ block["attention.out.weight"].T
        inside = (norm(h) * (1 + scale_2) + shift_2) @ block["up.weight"].T
        h = h + inside.clamp_min(0).square() @ block["down.weight"].T
    return norm(h) @ w["head.weight"].T + w["head.bias"]


SHAPES = {
    "plain": {"length": 7, "taps": 5},
    "causal": {"length": 7, "taps": 5, "causal": True},
    "time": {"length": 6, "time": True, "attention_every": 2},
    "labels": {"length": 6, "labels": 3, "depth": 1},
    "grey picture": {"length": 12, "grid": (3, 4)},
    "picture in colours": {"length": 18, "grid": (3, 6), "channels": 3, "labels": 2, "time": True, "depth": 1},
}


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("kind", SHAPES)
@torch.no_grad()
def test_the_transformer_is_its_formula(kind: str) -> None:
    network = Transformer(**{"inputs": 9, "outputs": 8, "width": 24, "depth": 2, "heads": 2, **SHAPES[kind]})
    random(network)
    shape = network.shape
    x = torch.randint(9, (2, shape.length), generator=torch.Generator().manual_seed(1))
    for label in (None, 1) if shape.labels else (None,):
        for t in (0.37, 1e-4) if shape.time else (None,):
            options = {} if label is None else {"label": label}
            found = network(x, None if t is None else torch.full((2,), t, dtype=torch.float64), **options)
            for row, one in zip(found, x, strict=True):
                assert torch.allclose(row, plain_transformer(network, one, t, label), atol=1e-9)


def test_the_gradient_of_the_squared_relu() -> None:
    x = torch.linspace(-2, 2, 9, dtype=torch.float64, requires_grad=True)
    weights = torch.arange(9.0, dtype=torch.float64)
    (SquaredRelu.apply(x) * weights).sum().backward()
    assert x.grad is not None and torch.equal(x.grad, 2 * x.detach().clamp_min(0) * weights)


@torch.no_grad()
@pytest.mark.parametrize("mask", [None, 2])
def test_soft_tokens_are_mixtures_of_embeddings(mask: int | None) -> None:
    """Σ_k p_k e_k, where the last state has the embedding of the mask token, if that is one of the vocabulary's."""
    network = Llama(inputs=6, outputs=5, length=4, width=8, depth=1, heads=2, mask_token=mask)
    weights = random(network)
    p = torch.rand(2, 4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).softmax(-1)
    rows = weights["embed.weight"] if mask is None else torch.cat([weights["embed.weight"], weights["embed.weight"][[mask]]])
    wanted = torch.zeros(2, 4, 8, dtype=torch.float64)
    for k in range(6):
        wanted += p[..., k, None] * rows[k]
    assert torch.allclose(network._embedded(p), wanted, atol=1e-12)
    x = torch.tensor([[0, 5, 2, 5], [4, 1, 5, 3]])
    assert torch.allclose(network(torch.nn.functional.one_hot(x, 6).double()), network(x), atol=1e-12)


@torch.no_grad()
def test_padding_and_causality_together() -> None:
    """Padding on the right does not change the output."""
    network = Llama(inputs=6, outputs=5, length=6, width=8, depth=2, heads=2, causal=True)
    random(network)
    x = torch.tensor([[3, 1, 4, 1, 0, 0]])
    present = torch.tensor([[True] * 4 + [False] * 2])
    found = network(x, present=present)
    assert torch.allclose(found[:, :4], network(x[:, :4]), atol=1e-12)
    changed = x.clone()
    changed[0, 3] = 2
    assert torch.allclose(network(changed, present=present)[:, :3], found[:, :3], atol=1e-12)


def test_a_position_sees_what_is_there_and_what_the_mask_allows() -> None:
    present = torch.tensor([[True, True, False], [True, False, True]])
    mask = torch.ones(3, 3, dtype=torch.bool).tril()
    both = Visibility(present, mask).attention_mask
    assert both is not None and both.shape == (2, 1, 3, 3)
    for row in range(2):
        for i in range(3):
            for j in range(3):
                assert both[row, 0, i, j] == bool(present[row, j] and j <= i)


def test_default_sizes_are_those_of_the_papers() -> None:
    """Perceptrons of 8/3 of the width, rounded up to 8 (Llama) or 32 (MD4), or of 4 times it (DDiT)."""
    for width, heads in ((48, 4), (64, 2), (128, 4), (96, 3)):
        llama = Llama(inputs=5, outputs=4, length=4, width=width, depth=1, heads=heads)
        md4 = Md4Network(inputs=5, outputs=4, length=4, width=width, depth=1, heads=heads)
        assert llama.shape.hidden == next(n for n in range(0, 9999, 8) if n >= 8 * width / 3)
        assert md4.shape.hidden == next(n for n in range(0, 9999, 32) if 3 * n >= 8 * width // 3 * 3)
        assert md4.shape.features == width // heads
        assert Ddit(inputs=5, outputs=4, length=4, width=width, depth=1, heads=heads).shape.hidden == 4 * width


def test_fresh_weights() -> None:
    """Initialize a ddit with embeddings of variance 1/width and zero adaLN and heads, so that predictions are uniform."""
    torch.manual_seed(0)
    network = Ddit(inputs=600, outputs=599, length=4, width=64, depth=1, heads=2, time=True, labels=300)
    assert float(network.embed.weight.detach().std()) == pytest.approx(1 / 8, rel=0.02)
    assert float(network.label.weight.detach().std()) == pytest.approx(0.02, rel=0.02)  # pyright: ignore
    zero = [weight for name, weight in network.named_parameters() if "adaln" in name or name.startswith("head")]
    assert len(zero) == 6 and not any(bool(weight.any()) for weight in zero)
    assert not network(torch.arange(4)[None], torch.ones(1), label=2).any()


@torch.no_grad()
@pytest.mark.parametrize("time_input", ["loglinear", "geometric", "t", "1-t"])
def test_what_a_ddit_reads_of_time(time_input: str) -> None:
    network = Ddit(
        inputs=5, outputs=4, length=4, width=8, depth=1, heads=2, time=True, cond_width=6,
        time_input=time_input, sigma_eps=0.01, sigma_min=0.1, sigma_max=5.0,
    )  # fmt: skip
    w = random(network)
    t = torch.tensor([0.1, 0.8], dtype=torch.float64)
    sigma = {"loglinear": -torch.log(1 - 0.99 * t), "geometric": 0.1 ** (1 - t) * 5.0**t, "t": t, "1-t": 1 - t}[time_input]
    for found, one in zip(network._condition(t, None)[:, 0], sigma, strict=True):
        phases = torch.tensor([float(one) * 10_000 ** (-k / 128) for k in range(128)], dtype=torch.float64)
        h = w["time_embed.0.weight"] @ torch.cat([phases.cos(), phases.sin()]) + w["time_embed.0.bias"]
        c = w["time_embed.2.weight"] @ (h * h.sigmoid()) + w["time_embed.2.bias"]
        assert torch.allclose(found, c * c.sigmoid(), atol=1e-6)


@torch.no_grad()
def test_the_output_prior_is_bayes_rule() -> None:
    """μ_k ∝ e^{output_k}·q(state | x_0 = k)."""
    model = unnoise.Model.build("gaussian", "text8", length=5, width=16, depth=1, heads=2)
    denoiser = model.denoiser
    assert isinstance(denoiser, LikelihoodParameterization)
    random(model.network, 0.1)
    model.network.float()
    process, t = model.process, torch.tensor([0.3, 0.7])
    z = torch.randn(2, 5, process.inputs, generator=torch.Generator().manual_seed(0))
    output, known = denoiser.run(z, t), process.log_likelihood(z, t).float()  # pyright: ignore
    wanted = (output + known).exp() / (output + known).exp().sum(-1, keepdim=True)
    assert torch.allclose(denoiser(z, t).log_probs.exp(), wanted, atol=1e-6)
    assert not torch.allclose(denoiser(z, t).log_probs, torch.log_softmax(output, -1), atol=0.1)
    where = torch.rand(2, 5, generator=torch.Generator().manual_seed(1)) < 0.5
    assert torch.allclose(denoiser(z, t, where).log_probs.exp(), wanted[where], atol=1e-6)
