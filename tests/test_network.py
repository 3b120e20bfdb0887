"""The network: where, causality, cache, time; and the optimiser beside it."""

import pytest
import torch

from unnoise.network.base import Cache
from unnoise.network.transformer import SIZES, Transformer, TransformerConfig
from unnoise.training.optimizer import Muon, orthogonal, split


def network(**changes: object) -> Transformer:
    torch.manual_seed(0)
    shape: dict = {"inputs": 11, "outputs": 10, "length": 24, "width": 32, "depth": 2, "heads": 2} | changes
    made = Transformer(**shape)
    with torch.no_grad():  # a fresh network says nothing: its last layers start at zero
        for weight in made.parameters():
            weight.add_(0.2 * torch.randn(weight.shape))
    return made


X = torch.randint(11, (3, 24), generator=torch.Generator().manual_seed(1))


def test_it_computes_at_where_only() -> None:
    made = network()
    where = torch.rand(X.shape, generator=torch.Generator().manual_seed(2)) < 0.3
    everywhere = made(X)
    assert everywhere.shape == (3, 24, 10)
    assert torch.allclose(made(X, where=where), everywhere[where], atol=1e-5)


def test_a_fresh_network_is_undecided() -> None:
    assert (Transformer(inputs=5, outputs=4, length=8, width=16, heads=2)(X[:, :8] % 5) == 0).all()


def test_a_causal_network_sees_only_what_is_before() -> None:
    made = network(causal=True)
    changed = X.clone()
    changed[:, 12] = (changed[:, 12] + 1) % 11
    before, after = made(X), made(changed)
    assert torch.allclose(before[:, :12], after[:, :12], atol=1e-5)
    assert not torch.allclose(before[:, 12:], after[:, 12:], atol=1e-3)
    free = network()
    assert not torch.allclose(free(X)[:, :12], free(changed)[:, :12], atol=1e-3)


def test_the_cache_gives_the_same_answers() -> None:
    made = network(causal=True)
    whole = made(X)
    cache = Cache()
    parts = [made(X[:, a:b], cache=cache) for a, b in ((0, 5), (5, 6), (6, 7), (7, 12), (12, 13))]
    assert torch.allclose(torch.cat(parts, 1), whole[:, :13], atol=1e-4)


def test_time_is_seen_when_asked_for() -> None:
    made = network(time=True)
    early, late = made(X, torch.full((3,), 0.1)), made(X, torch.full((3,), 0.9))
    assert not torch.allclose(early, late, atol=1e-3)
    assert torch.isfinite(made(X, torch.full((3,), 1e-6))).all()
    with pytest.raises(ValueError, match="conditioned on time"):
        made(X)


def test_sizes_and_mistakes() -> None:
    assert (SIZES["base"]["width"], SIZES["base"]["depth"], SIZES["base"]["heads"]) == (768, 12, 12)
    for fields in SIZES.values():
        TransformerConfig(inputs=2, outputs=2, length=2, **fields)
    with pytest.raises(ValueError, match="even multiple of its heads"):
        TransformerConfig(inputs=2, outputs=2, length=2, width=30, heads=4)
    with pytest.raises(ValueError, match="depth must be a whole number ≥ 1, found 0"):
        TransformerConfig(inputs=2, outputs=2, length=2, depth=0)
    with pytest.raises(ValueError, match="at most 24 tokens, found 25"):
        network()(torch.zeros(1, 25, dtype=torch.long))


def test_newton_schulz_makes_a_matrix_nearly_orthogonal() -> None:
    for shape in ((16, 16), (16, 64), (64, 16)):
        matrix = torch.randn(shape, generator=torch.Generator().manual_seed(0))
        values = torch.linalg.svdvals(orthogonal(matrix))
        assert (values > 0.3).all() and (values < 1.3).all()
        u, _, v = torch.linalg.svd(matrix, full_matrices=False)
        assert float((orthogonal(matrix) * (u @ v)).sum() / (u @ v).square().sum()) > 0.8


def test_matrices_go_to_muon_and_the_rest_to_adam() -> None:
    matrices, others = split(network(time=True))
    assert "blocks.1.attention.qkv.weight" in matrices and "head.weight" in others and "embed.weight" in others
    assert all(weight.dim() == 2 for weight in matrices.values())


def test_the_adam_part_is_adam() -> None:
    start = torch.randn(5, generator=torch.Generator().manual_seed(0))
    mine, theirs = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.clone())
    ours = Muon([], [mine], other_lr=0.1)
    adam = torch.optim.Adam([theirs], lr=0.1, betas=(0.9, 0.95), eps=1e-8)
    for _ in range(5):
        for weight, optimizer in ((mine, ours), (theirs, adam)):
            optimizer.zero_grad()
            (weight**2).sum().backward()
            optimizer.step()
    assert torch.allclose(mine, theirs, atol=1e-5)
