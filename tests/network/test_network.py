"""Networks: `where`, causality, cache and time; and the Muon optimizer."""

import pytest
import torch

from unnoise import Linear, Masked
from unnoise.network.attention import KVCache, attend
from unnoise.network.transformer import SIZES, Transformer, TransformerConfig
from unnoise.training.optim import Muon, optimizers, orthogonal, split


def network(**changes: object) -> Transformer:
    torch.manual_seed(0)
    shape: dict = {"inputs": 11, "outputs": 10, "length": 24, "width": 32, "depth": 2, "heads": 2} | changes
    made = Transformer(**shape)
    with torch.no_grad():  # the predictions of a fresh network are uniform: its last layers start at zero
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
    cache = KVCache()
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


def test_each_weight_has_one_optimizer_and_a_module_may_lack_either_kind() -> None:
    made = network(time=True)
    both = optimizers(made)
    assert [type(optimizer) for optimizer in both] == [Muon, torch.optim.Adam]
    held = [id(weight) for optimizer in both for group in optimizer.param_groups for weight in group["params"]]
    assert sorted(held) == sorted(id(weight) for weight in made.parameters())
    assert [type(optimizer) for optimizer in optimizers(torch.nn.Embedding(3, 4))] == [torch.optim.Adam]
    assert [type(optimizer) for optimizer in optimizers(torch.nn.Sequential(torch.nn.Linear(3, 4, bias=False)))] == [Muon]


def test_muons_step_is_orthogonal_and_longer_for_tall_matrices() -> None:
    """W ← W − lr·√max(1, n/m)·orthogonal(G): only the length of an orthogonal gradient changes."""
    for n, m in ((8, 2), (2, 8), (3, 3)):
        gradient = torch.linalg.qr(torch.randn(max(n, m), min(n, m), generator=torch.Generator().manual_seed(0)))[0]
        gradient = gradient if n >= m else gradient.T
        weight = torch.nn.Parameter(torch.zeros(n, m))
        weight.grad = gradient.clone()
        Muon([weight], lr=0.1).step()
        share = torch.linalg.svdvals(-weight.detach() / (0.1 * max(1.0, n / m) ** 0.5))
        assert ((share > 0.6) & (share < 1.3)).all()
        assert torch.allclose(
            torch.nn.functional.normalize(-weight.detach().flatten(), dim=0), gradient.flatten() / min(n, m) ** 0.5
        )


SMALL = {"inputs": 9, "outputs": 8, "length": 12, "width": 16, "taps": 5}


def block_mask(length: int, block: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return block diffusion's attention mask for x_t ⊕ x_0 and the position of each entry: [2L, 2L], [2L]."""
    place = torch.arange(length).repeat(2)
    number, noisy = place // block, torch.arange(2 * length) < length
    q, k = number[:, None], number[None, :]
    both_noisy, both_clean = noisy[:, None] & noisy[None, :], ~noisy[:, None] & ~noisy[None, :]
    mask = (both_noisy & (q == k)) | (noisy[:, None] & ~noisy[None, :] & (k < q)) | (both_clean & (k <= q))
    return mask, place


@pytest.mark.parametrize("time", [False, True])
@torch.no_grad()
def test_with_an_attention_mask_nothing_else_is_seen_not_even_by_the_convolution(time: bool) -> None:
    made = network(**SMALL, time=time)
    mask, place = block_mask(12, 4)
    generator = torch.Generator().manual_seed(1)
    x = torch.randint(9, (1, 24), generator=generator)
    t = torch.rand(1, 24, generator=generator) if time else None
    out = made(x, t, attention_mask=mask, positions=place)
    for key in range(24):
        changed = x.clone()
        changed[0, key] = (x[0, key] + 1) % 9
        moved = (made(changed, t, attention_mask=mask, positions=place) != out).any(-1)[0]
        reach = mask.double()
        for _ in range(4):  # through two layers of convolution and attention
            reach = ((reach @ mask.double()) > 0).double()
        assert not (moved & (reach[:, key] == 0)).any()
        assert moved[key] and (moved & (torch.arange(24) != key)).any() == bool(mask[:, key].sum() > 1)


@torch.no_grad()
def test_a_full_mask_is_no_mask() -> None:
    made = network(**SMALL)
    x = torch.randint(9, (2, 12), generator=torch.Generator().manual_seed(1))
    assert torch.allclose(made(x), made(x, attention_mask=torch.ones(12, 12, dtype=torch.bool)), atol=1e-5)
    # a causal network's taps lie behind a position, so that it equals the other only with a convolution of one tap
    one, other = network(**SMALL | {"taps": 1}), network(**SMALL | {"taps": 1}, causal=True)
    lower = torch.ones(12, 12, dtype=torch.bool).tril()
    assert torch.allclose(one(x, attention_mask=lower), other(x), atol=1e-5)


@torch.no_grad()
def test_each_position_may_have_its_own_time() -> None:
    made = network(**SMALL, time=True)
    x = torch.randint(9, (2, 12), generator=torch.Generator().manual_seed(1))
    t = torch.tensor([0.2, 0.9])
    assert torch.allclose(made(x, t), made(x, t[:, None].expand(2, 12)), atol=1e-6)
    mixed = t[:, None].expand(2, 12).clone()
    mixed[:, 3] = 0.5
    assert not torch.allclose(made(x, t)[:, 3], made(x, mixed)[:, 3], atol=1e-4)


@torch.no_grad()
def test_a_cache_that_is_only_read_stays_as_it_is() -> None:
    made = network(**SMALL, causal=True)
    x = torch.randint(8, (2, 12), generator=torch.Generator().manual_seed(1))
    cache = KVCache()
    made(x[:, :5], cache=cache)
    cache.frozen = True
    peeked = made(x[:, 5:8], cache=cache)
    assert cache.length == 5 and torch.equal(peeked, made(x[:, 5:8], cache=cache))
    assert torch.allclose(peeked, made(x[:, :8])[:, 5:], atol=1e-5)


def test_times_of_positions_in_a_process() -> None:
    process = Masked(5, Linear())
    x = torch.zeros(200, 3, dtype=torch.long)
    t = torch.tensor([0.0, 0.5, 1.0]).expand(200, 3)
    masked = (process.corrupt(x, t, torch.Generator().manual_seed(0)) == 5).double().mean(0)
    assert masked[0] == 0 and masked[2] == 1 and 0.4 < masked[1] < 0.6


@pytest.mark.parametrize("kind", ["all", "causal", "mask"])
def test_attention_in_bfloat16_is_that_in_float32(kind: str) -> None:
    """Values and gradients of the plain products that a CPU trains with, to what bfloat16 can hold."""
    generator = torch.Generator().manual_seed(0)
    tensors = [torch.randn(2, 3, 20, 16, generator=generator) for _ in range(3)]
    mask = torch.rand(1, 1, 20, 20, generator=generator) < 0.5
    mask[..., 0] = True
    options = {"all": {}, "causal": {"is_causal": True}, "mask": {"attn_mask": mask}}[kind]
    results = []
    for dtype in (torch.float32, torch.bfloat16):
        q, k, v = (one.clone().to(dtype).requires_grad_() for one in tensors)
        y = attend(q, k, v, **options)
        assert y.dtype == dtype
        y.float().square().sum().backward()
        results.append([y.detach().float(), *(one.grad.float() for one in (q, k, v) if one.grad is not None)])
    assert len(results[0]) == len(results[1]) == 4
    for exact, found in zip(*results, strict=True):
        assert float((found - exact).abs().max()) < 0.03 * float(exact.abs().max())
