"""The Llama type of network: against transformers' own, cached, masked, at some positions; and trained from scratch."""

from pathlib import Path

import pytest
import torch

import unnoise
from unnoise.network.attention import KVCache
from unnoise.network.llama import Llama

SHAPES = {
    "plain": {},
    "grouped": {"kv_heads": 2, "head_width": 6, "hidden": 24},
    "qwen": {"kv_heads": 1, "qk_norm": True, "qkv_bias": True, "tied": True},
}
X = torch.randint(9, (2, 12), generator=torch.Generator().manual_seed(1))


def network(kind: str = "grouped", **changes: object) -> Llama:
    torch.manual_seed(0)
    shape: dict = {"inputs": 9, "outputs": 8, "length": 12, "width": 16, "depth": 2, "heads": 4} | SHAPES[kind] | changes
    made = Llama(**shape)
    with torch.no_grad():
        for weight in made.parameters():
            weight.add_(0.3 * torch.randn(weight.shape))
    return made.eval()


@pytest.mark.parametrize("kind", SHAPES)
@torch.no_grad()
def test_it_computes_at_where_only_and_is_built_again_from_its_configuration(kind: str) -> None:
    made = network(kind)
    where = torch.rand(X.shape, generator=torch.Generator().manual_seed(2)) < 0.3
    assert made(X).shape == (2, 12, 8)
    assert torch.allclose(made(X, where=where), made(X)[where], atol=1e-5)
    again = Llama(**made.config)
    again.load_state_dict(made.state_dict())
    assert torch.equal(again(X), made(X))


@pytest.mark.parametrize("kind", SHAPES)
@torch.no_grad()
def test_a_causal_one_sees_only_what_is_before_and_its_cache_gives_the_same_answers(kind: str) -> None:
    made = network(kind, causal=True)
    whole, changed = made(X), X.clone()
    changed[:, 6] = (changed[:, 6] + 1) % 9
    moved = (made(changed) != whole).any(-1).any(0)
    assert not moved[:6].any() and moved[6:].all()
    cache = KVCache()
    parts = [made(X[:, a:b], cache=cache) for a, b in ((0, 5), (5, 6), (6, 7), (7, 12))]
    assert torch.allclose(torch.cat(parts, 1), whole, atol=1e-5)
    assert cache.keys_values[0][0].shape[1] == made.shape.kv_heads
    cache = KVCache()
    made(X[:, :5], cache=cache)
    cache.frozen = True
    assert torch.equal(made(X[:, 5:8], cache=cache), made(X[:, 5:8], cache=cache)) and cache.length == 5


@pytest.mark.parametrize("kind", SHAPES)
@torch.no_grad()
def test_with_an_attention_mask_nothing_else_is_seen_by_one_bit(kind: str) -> None:
    """Blocks of four, each seeing itself and those before it, in one layer and by its reach in two."""
    block = torch.arange(12) // 4
    mask = block[:, None] >= block[None, :]
    made = network(kind)
    out = made(X, attention_mask=mask)
    for key in range(12):
        changed = X.clone()
        changed[:, key] = (X[:, key] + 1) % 9
        moved = (made(changed, attention_mask=mask) != out).any(-1).any(0)
        assert torch.equal(moved, mask[:, key])
    lower = torch.ones(12, 12, dtype=torch.bool).tril()
    assert torch.allclose(made(X, attention_mask=lower), network(kind, causal=True)(X), atol=1e-5)


@torch.no_grad()
def test_blocks_after_a_cached_past_equal_the_whole_with_its_mask() -> None:
    made, block = network(), torch.arange(12) // 4
    whole = made(X, attention_mask=block[:, None] >= block[None, :])
    cache = KVCache()
    parts = [made(X[:, a : a + 4], cache=cache) for a in (0, 4, 8)]
    assert torch.allclose(torch.cat(parts, 1), whole, atol=1e-5)


@torch.no_grad()
def test_positions_turn_queries_and_keys_and_nothing_but_their_distance_counts() -> None:
    made = network(length=100)
    assert torch.allclose(made(X, positions=torch.arange(12) + 60), made(X), atol=1e-4)
    assert not torch.allclose(made(X, positions=torch.arange(12) * 2), made(X), atol=1e-3)
    slow = network(length=100, rotary_factors=[2.0] * 3)
    assert torch.allclose(slow(X, positions=torch.arange(12) * 2), made(X), atol=1e-4)


def test_mistakes_are_said() -> None:
    for fields, words in {
        "heads=4 kv_heads=3": "heads must be a multiple of its kv_heads",
        "heads=3": "width must be a multiple of its heads",
        "head_width=3": "head_width must be even",
        "rotary_factors=[1.0]": "rotary_factors must be 2 numbers, found 1",
        "norm_eps=0": "norm_eps must be a number > 0",
        "depth=0": "depth must be a whole number ≥ 1, found 0",
        "tied=True outputs=10": "a tied head needs outputs ≤ inputs",
    }.items():
        changes = {name: eval(value) for name, value in (setting.split("=") for setting in fields.split())}
        with pytest.raises(ValueError, match=words):
            network("plain", **changes)
    with pytest.raises(ValueError, match="at most 12 tokens, found 13"):
        network()(torch.zeros(1, 13, dtype=torch.long))


@pytest.mark.parametrize("method", ["mdlm", "ar"])
def test_it_trains_from_scratch_and_is_saved_and_loaded(method: str, tmp_path: Path) -> None:
    model = unnoise.Model.build(method, length=16, size="nano", network="llama:kv_heads=1,qk_norm=true,tied=true")
    assert isinstance(model.network, Llama) and model.network.shape.causal == (method == "ar")
    before = {name: weight.clone() for name, weight in model.weights().items()}
    unnoise.train(model, ["the cat sat on the mat"] * 20, steps=2, batch=2, dropout=0.1)
    assert sum(not torch.equal(before[name], weight) for name, weight in model.weights().items()) > 8
    model.save(tmp_path / "m")
    again = unnoise.load(tmp_path / "m")
    assert again.generate(1, seed=3) == model.generate(1, seed=3)
    assert again.score("the cat sat").nats == model.score("the cat sat").nats
