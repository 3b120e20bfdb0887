"""The pointer: its formula, who is copied from, and that every method can have one."""

import math
from itertools import pairwise

import pytest
import torch

import unnoise
from unnoise.model.init import started_from
from unnoise.network.base import Cache
from unnoise.network.transformer import Transformer, normalise
from unnoise.network.visibility import block_visibility

X = torch.randint(11, (3, 24), generator=torch.Generator().manual_seed(1))


def network(**changes: object) -> Transformer:
    torch.manual_seed(0)
    shape: dict = {"inputs": 11, "outputs": 10, "length": 24, "width": 32, "depth": 2, "heads": 2, "pointer": True} | changes
    made = Transformer(**shape)
    with torch.no_grad():
        for weight in made.parameters():
            weight.add_(0.3 * torch.randn(weight.shape))
    return made


def test_it_is_the_sum_over_the_tokens_that_are_seen() -> None:
    """p(v) ∝ e^{o_v} + Σ_{j: x_j = v} e^{a_j}, one number after another."""
    made = network()
    kept = {}
    made.pointer.register_forward_hook(lambda module, inputs, output: kept.update(inputs=inputs, output=output))  # type: ignore
    with torch.no_grad():
        made(X)
        output, asked, states = kept["inputs"][:3]
        pointer = made.pointer
        assert pointer is not None
        q, k = normalise(pointer.query(asked)), normalise(pointer.key(states))
        for row, position in ((0, 0), (1, 7), (2, 23)):
            terms = {v: [math.exp(output[row, position, v])] for v in range(10)}
            level = float(pointer.level(asked[row, position]))
            for j in range(24):
                if int(X[row, j]) < 10:  # 10 is the mask
                    score = float(q[row, position] @ k[row, j]) / math.sqrt(q.shape[-1])
                    terms[int(X[row, j])].append(math.exp(score + level))
            expected = torch.tensor([math.log(sum(terms[v])) for v in range(10)])
            assert torch.allclose(kept["output"][row, position], expected, atol=1e-4)
            assert any(len(terms[v]) > 2 for v in range(10))


def test_only_what_is_visible_is_copied() -> None:
    """With queries, keys and head at zero, p(v) ∝ 1 + how often v is seen."""
    for causal in (False, True):
        made = Transformer(inputs=11, outputs=10, length=24, width=32, depth=2, heads=2, pointer=True, causal=causal)
        with torch.no_grad():
            made.pointer.query.weight.zero_()  # type: ignore
            found = made(X).exp()
        for i in (0, 11, 23):
            seen = X[:, : i + 1] if causal else X
            counts = torch.stack([torch.bincount(row[row < 10], minlength=10) for row in seen])
            assert torch.allclose(found[:, i], 1.0 + counts, rtol=1e-4)
    present = torch.arange(24) < torch.tensor([24, 5, 1])[:, None]
    with torch.no_grad():
        made = Transformer(inputs=11, outputs=10, length=24, width=32, depth=2, heads=2, pointer=True)
        made.pointer.query.weight.zero_()  # type: ignore
        found = made(X, present=present)[:, 0].exp()
        assert torch.allclose(found.sum(1), 10.0 + (present & (X < 10)).sum(1), rtol=1e-4)
        mask, places = block_visibility(12, 4, X.device)
        found = made(X, attention_mask=mask, positions=places).exp()
        assert torch.allclose(found.sum(-1), 10.0 + (mask & (X < 10)[:, None]).sum(-1), rtol=1e-4)
        assert torch.allclose(made(X, block=4), made(X, attention_mask=mask, positions=places), atol=1e-5)


def test_at_where_only_and_with_a_cache() -> None:
    where = torch.rand(X.shape, generator=torch.Generator().manual_seed(2)) < 0.3
    made = network()
    assert torch.allclose(made(X, where=where), made(X)[where], atol=1e-5)
    gaps = network(gaps=True)
    assert torch.allclose(gaps(X, where=where, gaps=True)[0], gaps(X)[where], atol=1e-5)
    made = network(causal=True)
    cache = Cache()
    parts = [made(X[:, a:b], cache=cache) for a, b in pairwise((0, 5, 6, 7, 12, 13))]
    assert torch.allclose(torch.cat(parts, 1), made(X)[:, :13], atol=1e-4)
    cache.store = False
    again = [made(X[:, 13:15], cache=cache) for _ in range(2)]
    assert torch.equal(*again) and torch.allclose(again[0], made(X)[:, 13:15], atol=1e-4)


def test_scores_of_any_size_are_finite() -> None:
    made = network()
    with torch.no_grad():
        made.pointer.level.bias.fill_(1e4)  # type: ignore
        assert torch.isfinite(made(X)).all()


def test_a_state_of_numbers_has_nothing_to_copy() -> None:
    with pytest.raises(ValueError, match="a network with a pointer reads tokens, not numbers"):
        network()(torch.zeros(2, 4, 11))


@pytest.mark.parametrize("method", ["mdlm", "ar", "bd3lm:block=4", "flexmdm", "sedd-uniform", "ardm"])
def test_every_method_over_tokens_can_have_one(method: str) -> None:
    texts = ["the cat sat on the mat", "a dog sat in the sun", "the sun is in the sky"] * 20
    made = unnoise.Model.build(method, codec="text8", length=24, size="nano", network="transformer:pointer=true")
    report = unnoise.train(made, texts, steps=3, eval_windows=4)
    assert math.isfinite(report.bits) and len(made.generate(1, steps=6)) == 1


def test_blocks_are_written_alike_with_and_without_a_cache() -> None:
    made = unnoise.Model.build("bd3lm:block=4", codec="text8", length=24, size="nano", network="transformer:pointer=true")
    with torch.no_grad():
        for weight in made.network.parameters():
            weight.add_(0.2 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(3)))
    assert made.generate(2, sampler="block", seed=1) == made.generate(2, sampler="block:cache=false", seed=1)


def test_weights_without_a_pointer_are_gone_on_from() -> None:
    source = unnoise.Model.build("ar", codec="text8", length=24, size="nano")
    model = started_from(source, "mdlm", network="transformer:pointer=true")
    assert model.network.config["pointer"] and torch.equal(model.network.head.weight, source.network.head.weight)  # type: ignore
    with pytest.raises(ValueError, match="a model that starts from the weights of a transformer cannot have a ddit"):
        started_from(source, "mdlm", network="ddit:width=128")
    with pytest.raises(ValueError, match="unexpected keyword argument 'pointers'"):
        started_from(source, "mdlm", network="transformer:pointers=true")
