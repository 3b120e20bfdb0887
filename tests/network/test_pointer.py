"""The pointer: its formula, who is copied from, and that every method can have one."""

import math
from itertools import pairwise
from pathlib import Path

import pytest
import torch

import unnoise
from unnoise.cli.main import main
from unnoise.model.io import init_from
from unnoise.network.attention import KVCache, block_visibility
from unnoise.network.layers import normalize
from unnoise.network.transformer import Transformer

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
        q, k = normalize(pointer.query(asked)), normalize(pointer.key(states))
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


def test_gradients_are_those_of_the_formula(double: None) -> None:
    """Also where a token stands in a text twice: all outputs and gradients beside a plain sum over one-hot tokens."""
    made = network()
    kept = {}
    made.pointer.register_forward_hook(lambda module, inputs, output: kept.update(inputs=inputs))  # type: ignore
    found = made(X)
    output, asked, states = kept["inputs"][:3]
    pointer = made.pointer
    assert pointer is not None
    q, k = normalize(pointer.query(asked)), normalize(pointer.key(states))
    scores = q @ k.transpose(1, 2) / math.sqrt(q.shape[-1]) + pointer.level(asked)
    tokens = torch.nn.functional.one_hot(X, 11)[..., :10].to(scores)
    plain = (output.exp() + scores.exp() @ tokens).log()
    weights = torch.randn(found.shape, generator=torch.Generator().manual_seed(4))
    parameters = list(made.parameters())
    ours = torch.autograd.grad((found * weights).sum(), parameters, retain_graph=True)
    theirs = torch.autograd.grad((plain * weights).sum(), parameters)
    assert torch.allclose(found, plain, atol=1e-12)
    assert all(torch.allclose(one, other, atol=1e-10) for one, other in zip(ours, theirs, strict=True))


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
    cache = KVCache()
    parts = [made(X[:, a:b], cache=cache) for a, b in pairwise((0, 5, 6, 7, 12, 13))]
    assert torch.allclose(torch.cat(parts, 1), made(X)[:, :13], atol=1e-4)
    cache.frozen = True
    again = [made(X[:, 13:15], cache=cache) for _ in range(2)]
    assert torch.equal(*again) and torch.allclose(again[0], made(X)[:, 13:15], atol=1e-4)


def test_scores_of_any_size_are_exact() -> None:
    """With c far above every output a position copies alone; far below, not at all; and learns in both."""
    made = network()
    same = torch.zeros_like(X)
    for level, x in ((1e4, X), (-1e4, X), (1e4, same), (200.0, same)):
        with torch.no_grad():
            made.pointer.level.bias.fill_(level)  # type: ignore
        found = made(x)
        chances = found.softmax(-1)
        assert torch.isfinite(found).all()
        if level > 0:
            there = torch.nn.functional.one_hot(x, 11)[..., :10].any(1, keepdim=True)
            assert torch.allclose((chances * there).sum(-1), torch.ones(1), atol=1e-5)
        (gradient,) = torch.autograd.grad(found.logsumexp(-1).sum(), made.pointer.level.bias)  # type: ignore
        assert float(gradient) == pytest.approx(72.0 if level > 0 else 0.0, abs=1e-2)  # d log Σ e^{o'} / dc


def test_rows_may_leave_the_cache() -> None:
    made, cache = network(causal=True), KVCache()
    made(X[:, :6], cache=cache)
    cache.select_rows(torch.tensor([2, 0]))
    assert torch.allclose(made(X[[2, 0], 6:9], cache=cache), made(X[[2, 0]])[:, 6:9], atol=1e-4)
    nowhere = torch.zeros_like(X[:2, 9:10], dtype=torch.bool)
    assert made(X[[2, 0], 9:10], where=nowhere, cache=cache).shape == (0, 10)
    assert torch.allclose(made(X[[2, 0], 10:11], cache=cache), made(X[[2, 0]])[:, 10:11], atol=1e-4)


def test_nothing_of_a_block_is_seen_before_it_is_written() -> None:
    made = network()
    text = X[:, :12].clamp_max(9)
    other = torch.where(torch.arange(12) >= 8, (text + 1) % 10, text)
    one, two = (made(torch.cat([X[:, :12], clean], 1), block=4) for clean in (text, other))
    assert torch.equal(one[:, :12], two[:, :12])


def test_a_state_of_numbers_has_nothing_to_copy() -> None:
    with pytest.raises(ValueError, match="a pointer needs tokens, found a state of real numbers"):
        network()(torch.zeros(2, 4, 11))


@pytest.mark.parametrize("method", ["gaussian", "bfn", "flexmdm:layout=end"])
def test_a_method_that_cannot_have_one_says_so(method: str) -> None:
    with pytest.raises(ValueError, match="this method needs a network with pointer = False, found transformer:pointer=true"):
        unnoise.Model.build(method, codec="text8", length=24, size="nano", network="transformer:pointer=true")
    source = unnoise.Model.build("mdlm", codec="text8", length=24, size="nano", network="transformer:pointer=true")
    assert init_from(source, method).network.config["pointer"] is False


def test_a_switch_is_true_or_false() -> None:
    with pytest.raises(ValueError, match="a network's pointer must be true or false, found 'no'"):
        unnoise.Model.build("mdlm", codec="text8", length=24, size="nano", network="transformer:pointer=no")


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
    model = init_from(source, "mdlm", network_fields="transformer:pointer=true")
    assert model.network.config["pointer"] and torch.equal(model.network.head.weight, source.network.head.weight)  # type: ignore
    with pytest.raises(ValueError, match="a model that starts from the weights of a transformer cannot have a ddit"):
        init_from(source, "mdlm", network_fields="ddit:width=128")
    for fields in ("transformer:width=32", "transformer:heads=4", "transformer:depth=3", "transformer:pointer=false"):
        with pytest.raises(ValueError, match=f"can only add to its network, and {fields} does not"):
            init_from(source, "mdlm", network_fields=fields)
    with pytest.raises(ValueError, match="has no field 'pointers'; did you mean 'pointer'"):
        init_from(source, "mdlm", network_fields="transformer:pointers=true")


def test_it_is_kept_on_the_disk_and_begun_from_there(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("the cat sat on the mat and the dog sat in the sun " * 40)
    shape = ["--data", str(tmp_path / "text.txt"), "--steps", "3", "--eval-windows", "4", "--length", "24", "--json"]
    assert main(["train", "mdlm", *shape, "--size", "nano", "--out", str(tmp_path / "first")]) == 0
    more = ["--init", str(tmp_path / "first"), "--network", "transformer:pointer=true", "--out", str(tmp_path / "second")]
    assert main(["train", "mdlm", *shape, *more]) == 0
    model = unnoise.load(tmp_path / "second")
    assert model.network.config["pointer"] and model.generate(1, steps=4) == unnoise.load(tmp_path / "second").generate(
        1, steps=4
    )
    model.save(tmp_path / "small", dtype="int8")
    assert unnoise.load(tmp_path / "small").network.config["pointer"]
