"""Single parts of networks against plain lines: taps, positions after a cache, time, dropout, kept modulation."""

import math

import pytest
import torch
from torch import nn

from unnoise.network.attention import KVCache, attend, attend_visible, block_visibility, copyable, rotate
from unnoise.network.ddit import AdaLN, Ddit
from unnoise.network.layers import Dropout
from unnoise.network.llama import Llama
from unnoise.network.transformer import Transformer, shift_taps

CPU = torch.device("cpu")


def restless(network: nn.Module) -> nn.Module:
    with torch.no_grad():
        for weight in network.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel())))
    return network.eval()


def test_taps_keep_their_places_when_a_network_looks_both_ways() -> None:
    """Causal taps at −4…0 and others at −2…2 share −2, −1 and 0."""
    weight = torch.arange(1.0, 6.0)[:, None]
    assert shift_taps(weight, causal_before=True, causal=False)[:, 0].tolist() == [3, 4, 5, 0, 0]
    assert shift_taps(weight, causal_before=False, causal=True)[:, 0].tolist() == [0, 0, 1, 2, 3]
    assert torch.equal(shift_taps(weight, True, True), weight) and torch.equal(shift_taps(weight, False, False), weight)


SIZES = {"inputs": 8, "outputs": 7, "length": 12, "width": 16, "depth": 2, "heads": 2, "causal": True}


@pytest.mark.parametrize(
    "make",
    [lambda: Transformer(**SIZES), lambda: Transformer(**SIZES, pointer=True), lambda: Llama(**SIZES), lambda: Ddit(**SIZES)],
)
def test_a_text_in_parts_is_the_text_at_once(make) -> None:
    """One token, then several after a cached past, then one: every output as without a cache."""
    network = restless(make())
    x = torch.randint(7, (2, 9), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        whole, cache = network(x), KVCache()
        parts = [network(part, cache=cache) for part in x.split([1, 4, 3, 1], 1)]
    assert torch.allclose(torch.cat(parts, 1), whole, atol=1e-5)
    with torch.no_grad():
        changed = x.clone()
        changed[:, 5] = (x[:, 5] + 1) % 7
        assert torch.allclose(network(changed)[:, :5], whole[:, :5], atol=1e-6)
        assert not torch.allclose(network(changed)[:, 5], whole[:, 5], atol=1e-4)


def test_attention_after_a_past_by_hand() -> None:
    """Position i of L after n cached ones attends to n + i + 1."""
    q, k, v = (torch.randn(1, 1, n, 4, generator=torch.Generator().manual_seed(n)) for n in (2, 5, 5 + 7))
    v = v[:, :, :5]
    found = attend_visible(q, k, v, True, None)
    for i in range(2):
        scores = (q[0, 0, i] @ k[0, 0, : 4 + i].T) / 2
        assert torch.allclose(found[0, 0, i], scores.softmax(-1) @ v[0, 0, : 4 + i], atol=1e-6)


def test_the_plain_products_are_the_fused_attention() -> None:
    """In bfloat16 with gradients, where the fused kernel is left aside."""
    q, k, v = (torch.randn(2, 2, 6, 16, generator=torch.Generator().manual_seed(n)).bfloat16() for n in range(3))
    for causal in (False, True):
        with torch.no_grad():
            fused = attend(q, k, v, is_causal=causal)
        plain = attend(q, k, v, is_causal=causal)
        assert torch.allclose(plain, fused, atol=3e-2)
        exact = (q.float() @ k.float().transpose(-1, -2)) / 4
        if causal:
            exact = exact.masked_fill(~torch.ones(6, 6, dtype=torch.bool).tril(), -torch.inf)
        assert torch.allclose(plain.float(), exact.softmax(-1) @ v.float(), atol=3e-2)


def test_rotary_positions_turn_forward() -> None:
    """(a, b) at angle θ becomes (a cos θ − b sin θ, b cos θ + a sin θ)."""
    angle = torch.tensor([[0.3], [1.1]])
    x = torch.tensor([1.0, 2.0]).view(1, 1, 1, 1, 2).expand(1, 2, 1, 1, 2)
    found = rotate(x, (angle.cos(), angle.sin()))[0, :, 0, 0]
    for i, theta in enumerate((0.3, 1.1)):
        wanted = [math.cos(theta) - 2 * math.sin(theta), 2 * math.cos(theta) + math.sin(theta)]
        assert found[i].tolist() == pytest.approx(wanted, abs=1e-6)


def test_what_a_copy_may_come_from_after_a_past() -> None:
    wanted = [[True, True, True, False], [True, True, True, True]]
    assert copyable(2, 4, True, None, CPU)[0].tolist() == wanted
    assert copyable(2, 4, False, None, CPU).all()


def test_a_clean_block_sees_itself_and_those_before() -> None:
    mask, places = block_visibility(4, 2, CPU)
    assert places.tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    assert mask[:4, :4].tolist() == [[i // 2 == j // 2 for j in range(4)] for i in range(4)]
    assert mask[:4, 4:].tolist() == [[j // 2 < i // 2 for j in range(4)] for i in range(4)]
    assert not mask[4:, :4].any() and mask[4:, 4:].tolist() == [[j // 2 <= i // 2 for j in range(4)] for i in range(4)]


def test_modulation_of_a_constant_follows_the_weights() -> None:
    """It is computed in every call, and the layer keeps nothing of it, so that threads can share a network."""
    layer, condition = AdaLN(3, 2, 2), torch.ones(3)
    with torch.no_grad():
        for value in (0.5, 1.5, 1.5, -1.0):
            layer.weight.fill_(value)
            layer.bias.fill_(value)
            shift, scale = layer.modulation(condition)
            assert torch.allclose(torch.cat([shift, scale]), torch.full((4,), 4 * value))
    assert vars(layer).keys() == vars(AdaLN(3, 2, 2)).keys()


@pytest.mark.parametrize("labels", [0, 3])
@pytest.mark.parametrize("gradients", [False, True])
def test_a_ddit_keeps_nothing_of_a_call(labels: int, gradients: bool) -> None:
    network = Ddit(**SIZES, labels=labels)
    before = {name: dict(vars(module)) for name, module in network.named_modules()}
    with torch.set_grad_enabled(gradients):
        network(torch.zeros(2, 4, dtype=torch.long))
    assert {name: dict(vars(module)) for name, module in network.named_modules()} == before


@pytest.mark.parametrize("eps", [1e-3, 0.2])
def test_the_time_that_a_ddit_reads_has_its_own_eps(eps: float) -> None:
    """σ(t) = −log(1 − (1 − ε)t)."""
    shape = Ddit(inputs=8, outputs=7, length=12, width=16, depth=1, heads=2, time=True, sigma_eps=eps).shape
    t = torch.tensor([0.0, 0.5, 1.0])
    assert shape.read_time(t).tolist() == pytest.approx([0.0, -math.log(1 - (1 - eps) / 2), -math.log(eps)], rel=1e-5)


def test_every_branch_loses_features_of_its_own() -> None:
    drop, x = Dropout(0.5, torch.arange(4)), torch.ones(4, 10, 30)
    found = torch.stack([drop(x, branch) for branch in range(6)])
    assert set(found.unique().tolist()) == {0.0, 2.0}
    kept = (found > 0).float()
    for one in range(6):
        for other in range(one):
            assert abs(float((kept[one] * kept[other]).mean()) - 0.25) < 0.04  # as independent ones
        assert torch.equal(found[one], drop(x, one))
