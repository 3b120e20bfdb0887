"""log p(answer | prompt): the estimator's mean is the exact bound, the prompt is never noised; the harness gets its answers."""

import importlib.util
import itertools
import json
import math
import shlex
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

import unnoise
from exact_models import text_of, toy_model
from toy import Toy
from unnoise.apps.harness.harness import Continuation, HarnessModel, HarnessOptions, until
from unnoise.apps.harness.tasks import UnnoiseLM, local_task
from unnoise.cli.main import main
from unnoise.data import Bytes, Text8
from unnoise.evaluation.conditional import conditional, greedy
from unnoise.families.block_objective import BlockElbo

HAS_LM_EVAL = importlib.util.find_spec("lm_eval") is not None


def small(method: str, length: int = 8, codec: unnoise.Codec | None = None) -> unnoise.Model:
    model = unnoise.Model.build(method, codec or Text8(), length=length, width=16, depth=1, heads=2)
    with torch.no_grad():
        for weight in model.network.parameters():
            weight.add_(0.4 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel())))
    return model


def prefix(x: Tensor, given: int) -> Tensor:
    return (torch.arange(x.shape[1]) < given).expand(x.shape)


def by_enumeration(model: unnoise.Model, x: Tensor, given: int) -> float:
    """m·E_k (1/k) E_{k of m masked} Σ −log μ, over all sets of masked positions of one text x [1, L]."""
    m = x.shape[1] - given
    total = 0.0
    for count in range(1, m + 1):
        for places in itertools.combinations(range(given, x.shape[1]), count):
            hidden = torch.zeros_like(x, dtype=torch.bool)
            hidden[0, list(places)] = True
            if isinstance(model.bound, BlockElbo):
                ones = torch.ones(x.shape, dtype=torch.float64)
                nats = model.bound.at(model.denoiser, x, hidden, ones, ones)
            else:
                x_t = x.masked_fill(hidden, model.codec.vocab)
                log_p = model.denoiser(x_t, torch.ones(1)).log_probs
                nats = -log_p.gather(-1, x[..., None])[..., 0][hidden].sum()
            total += float(nats) / count / math.comb(m, count)
    return total


@torch.no_grad()
@pytest.mark.parametrize("method", ["mdlm", "ardm", "bd3lm:block=4"])
def test_the_mean_of_the_estimator_is_the_exact_bound(method: str) -> None:
    model = small(method)
    x = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])
    exact = by_enumeration(model, x, 5)
    copies = x.expand(40, -1)
    found = conditional(model, copies, prefix(copies, 5), draws=64)
    error = float(found.nats.std()) / 40**0.5
    assert float(found.nats.mean()) == pytest.approx(exact, abs=4 * error + 1e-5)
    assert 0.6 < float(found.stderr.square().mean().sqrt()) / float(found.nats.std()) < 1.5, "the reported error is the spread"
    assert found.draws.tolist() == [64] * 40 and not found.exact.any()


@torch.no_grad()
@pytest.mark.parametrize("method", ["mdlm", "md4", "sedd-absorb", "genmd4", "udlm", "gidd"])
def test_nothing_given_is_the_models_own_bound(method: str) -> None:
    model = small(method)
    x = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]]).expand(32, -1)
    found = conditional(model, x, torch.zeros_like(x, dtype=torch.bool), draws=64)
    own = model.nats(x, draws=16)
    error = math.hypot(float(found.nats.std()) / 32**0.5, float(own.mean(1).std()) / 4)
    assert float(found.nats.mean()) == pytest.approx(float(own.mean()), abs=5 * error)


@torch.no_grad()
@pytest.mark.parametrize("method", ["ar", "bd3lm:block=1"])
def test_exact_models_are_exact(method: str) -> None:
    model = small(method)
    x = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6], [2, 7, 1, 8, 2, 8, 1, 8]])
    found = conditional(model, x, prefix(x, 3))
    whole, before = model.nats(x)[0], model.nats(x[:, :3])[0]
    assert torch.allclose(found.nats, whole - before, atol=1e-4) and found.exact.all() and found.draws.tolist() == [1, 1]
    with pytest.raises(ValueError, match="all given positions must come before"):
        conditional(model, x, ~prefix(x, 3))


@torch.no_grad()
@pytest.mark.parametrize("method", ["mdlm", "md4", "sedd-absorb", "udlm", "gidd", "bd3lm:block=4"])
def test_the_prompt_is_never_noised(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small(method)
    x = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])
    seen = []
    network = type(model.network)
    forward = network.forward

    def watched(self: torch.nn.Module, tokens: Tensor, *more: object, **options: object) -> Tensor:
        seen.append(tokens[:, :8])
        return forward(self, tokens, *more, **options)

    monkeypatch.setattr(network, "forward", watched)
    conditional(model, x, prefix(x, 5), draws=8)
    read = torch.cat(seen)
    assert (read[:, :5] == x[:, :5]).all() and (read[:, 5:] != x[:, 5:]).any()


@torch.no_grad()
def test_answers_of_one_token_take_one_call() -> None:
    toy = Toy(3, 3)
    asked = HarnessModel(toy_model(toy), HarnessOptions(draws=64))
    for x, p in zip(toy.x, toy.p, strict=True):
        found = asked.loglikelihood([(text_of(x[:2]), text_of(x[2:]))])[0]
        same = (toy.x[:, :2] == x[:2]).all(1)
        assert found.log_p == pytest.approx(math.log(float(p / toy.p[same].sum())), abs=1e-6)
        assert found.exact and found.draws == 1 and found.stderr == 0
        assert found.greedy == (float(p) == float(toy.p[same].max()))


@torch.no_grad()
def test_accuracy_of_an_exact_model_is_what_enumeration_says() -> None:
    """Questions of one token, answers of two: with μ exact, the bound is −log p(answer | question)."""
    toy = Toy(4, 3, seed=5)
    asked = HarnessModel(toy_model(toy), HarnessOptions(draws=512, check_greedy=False))
    right, best = 0, 0
    for question in range(4):
        rows = (toy.x[:, 0] == question).nonzero()[:, 0][::5]
        conditional_p = toy.p[rows] / toy.p[toy.x[:, 0] == question].sum()
        found = asked.loglikelihood([(text_of(toy.x[row, :1]), text_of(toy.x[row, 1:])) for row in rows])
        for one, p in zip(found, conditional_p.tolist(), strict=True):
            assert one.log_p == pytest.approx(math.log(p), abs=6 * one.stderr + 1e-6)
        right += int(torch.tensor([one.log_p for one in found]).argmax()) == int(conditional_p.argmax())
        best += 1
    assert right == best


def surest_first(model: unnoise.Model, x: Tensor, given: int) -> Tensor:
    """Complete a prompt with a masked model, the likeliest token at the most certain position first: [1, L]."""
    x = x.masked_fill(~prefix(x, given), model.codec.vocab)
    block = getattr(model.process, "block", x.shape[1])
    while bool((hidden := x == model.codec.vocab).any()):
        first = int(hidden[0].long().argmax()) // block * block
        log_p = model.denoiser(x, torch.full((1,), 0.5)).log_probs[0]
        places = [i for i in range(first, min(first + block, x.shape[1])) if hidden[0, i]]
        place = max(places, key=lambda i: float(log_p[i].max()))
        x[0, place] = log_p[place].argmax()
    return x


@torch.no_grad()
@pytest.mark.parametrize("method", ["ar", "mdlm", "bd3lm:block=4"])
def test_greedy_is_what_the_model_writes(method: str) -> None:
    model = small(method)
    prompt = torch.from_numpy(model.codec.encode("the cccc"))[None]
    if method == "ar":
        text = HarnessModel(model).generate([Continuation("the", tokens=5)])[0]
        written = torch.from_numpy(model.codec.encode("the" + text))[None]
    else:
        written = surest_first(model, prompt, 3)
    other = written.clone()
    other[0, 6] = (other[0, 6] + 1) % 27
    both = torch.cat([written, other])
    assert greedy(model, both, prefix(both, 3)).tolist() == [True, False]


def test_pairs_shortening_and_stops() -> None:
    asked = HarnessModel(small("ar", codec=Bytes()), HarnessOptions(draws=4))
    assert asked.pair("ab ", "cd") == (list(b"ab"), list(b" cd"))
    long, plain = asked.loglikelihood([("x" * 20, " abc"), ("xxxx", " abc")])
    assert long.shortened and not plain.shortened and long.log_p == pytest.approx(plain.log_p, abs=1e-5)
    with pytest.raises(ValueError, match="an answer has 9 tokens, more than the model's length of 8"):
        asked.loglikelihood([("", "123456789")])
    assert until("one\ntwo", ["\n", "e"]) == "on" and until("one", []) == "one"
    texts = asked.generate([Continuation("ab", tokens=4), Continuation("xy", tokens=4), Continuation("a" * 30, tokens=4)])
    assert [len(text.encode("utf-8", "surrogateescape")) for text in texts] == [4, 4, 4]
    assert asked.generate([Continuation("xy", tokens=4)])[0] == texts[1]
    assert asked.rolling(["abcdefghijkl"])[0].windows == 2


def test_the_kind_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "lambada.jsonl").write_text(json.dumps({"text": "the cat sat"}))
    assert local_task(tmp_path / "lambada.jsonl")["output_type"] == "loglikelihood"
    (tmp_path / "other.jsonl").write_text(json.dumps({"a": 1}))
    with pytest.raises(ValueError, match="needs records with `text`"):
        local_task(tmp_path / "other.jsonl")


# ---- with the harness itself ----------------------------------------------------------------------------------------------


def questions(toy: Toy) -> tuple[list[dict[str, object]], float]:
    """Multiple choice over the toy, some of it with a wrong key; and the accuracy that enumeration gives."""
    records, right = [], 0
    for i, head in enumerate(itertools.product(range(3), repeat=2)):
        same = (toy.x[:, :2] == torch.tensor(head)).all(1)
        best = int(toy.p[same].argmax())
        answer = best if i % 3 else (best + 1) % 3
        right += answer == best
        question = "".join("abc"[token] for token in head)
        records.append({"question": question, "choices": ["a", "b", "c"], "answer": answer})
    return records, right / len(records)


class Request(NamedTuple):
    """Request of the harness, of which only `args` is read."""

    args: tuple[Any, ...]


@torch.no_grad()
def test_answers_to_requests_are_those_of_enumeration() -> None:
    """Send requests as the harness does to the class that it receives, with the toy's exact denoiser."""
    toy = Toy(3, 3)
    asked = UnnoiseLM(toy_model(toy), draws=8)
    records, accuracy = questions(toy)
    right = 0
    for record in records:
        found = asked.loglikelihood([Request((record["question"], choice)) for choice in "abc"])
        same = (toy.x[:, :2] == torch.tensor(["abc".index(letter) for letter in str(record["question"])])).all(1)
        truth = (toy.p[same] / toy.p[same].sum()).log()
        assert [log_p for log_p, _ in found] == pytest.approx(truth.tolist(), abs=1e-6)
        assert [is_greedy for _, is_greedy in found] == [i == int(truth.argmax()) for i in range(3)]
        right += max(range(3), key=lambda i: found[i][0]) == record["answer"]
    assert right / len(records) == accuracy and 0 < accuracy < 1
    assert len(asked.answers) == 27 and all(one.exact for one in asked.answers)


@torch.no_grad()
def test_whole_texts_and_texts_that_go_on_as_the_harness_asks_for_them() -> None:
    toy = Toy(3, 3)
    asked = UnnoiseLM(toy_model(toy), draws=2048)
    found = asked.loglikelihood_rolling([Request((text_of(x),)) for x in toy.x[::7]])
    assert found == pytest.approx(toy.p[::7].log().tolist(), abs=0.1), "with the exact denoiser the bound is the truth"
    best = {int(x[0]): x for x, _ in sorted(zip(toy.x, toy.p.tolist(), strict=True), key=lambda pair: pair[1])}
    options: dict[str, Any] = {"until": ["\n"], "max_gen_toks": 2, "do_sample": False}
    one = {**options, "max_gen_toks": 1}
    for x in toy.x[::5]:
        same = (toy.x[:, :2] == x[:2]).all(1)
        assert asked.generate_until([Request((text_of(x[:2]), one))]) == [text_of(toy.x[same][toy.p[same].argmax(), 2:])]
    texts = asked.generate_until([Request((text_of(x[:1]), options)) for x in best.values()])
    assert all(len(text) == 2 and set(text) <= set("abc") for text in texts)
    stopped = asked.generate_until([Request((text_of(x[:1]), {**options, "until": "abc"[int(x[1])]})) for x in best.values()])
    assert stopped == [until(text, ["abc"[int(x[1])]]) for text, x in zip(texts, best.values(), strict=True)]


@pytest.mark.skipif(not HAS_LM_EVAL, reason="lm_eval is not installed")
def test_the_harness_finds_the_accuracy_of_enumeration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from unnoise.apps.harness.tasks import run_harness

    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    toy = Toy(3, 3)
    records, accuracy = questions(toy)
    (tmp_path / "choices.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    (tmp_path / "last.jsonl").write_text(json.dumps({"text": "ab c"}) + "\n" + json.dumps({"text": "ca b"}) + "\n")
    model = toy_model(toy)
    found = run_harness(model, [str(tmp_path / "choices.jsonl")], HarnessOptions(draws=8))
    assert found["results"]["choices"]["acc,none"] == pytest.approx(accuracy)
    assert found["answers"]["asked"] == 27 and found["answers"]["exact"] == 27
    small("mdlm").save(tmp_path / "model")
    line = f"harness --model {tmp_path / 'model'} --tasks {tmp_path / 'last.jsonl'} --draws 8"
    assert main(shlex.split(line)) == 0
    assert "perplexity" in capsys.readouterr().out


def test_without_the_harness_one_sentence_says_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "lm_eval"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "lm_eval", None)  # as if it were not installed
    small("mdlm").save(tmp_path / "model")
    assert main(shlex.split(f"harness --model {tmp_path / 'model'} --tasks arc_easy")) == 2
    assert "pip install 'unnoise[eval]'" in capsys.readouterr().err
