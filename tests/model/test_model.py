"""Model: build, save, load, write, score; for every method."""

import itertools
import json
import math
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import unnoise
from toy import Toy, texts
from unnoise import Model
from unnoise.data import Characters, Text8
from unnoise.data.texts import Windows
from unnoise.method_table import method, methods
from unnoise.model.generate import Template
from unnoise.process.state import OPEN_GAP
from unnoise.sampler_table import sampler_names

FIXED = [name for name in methods() if not method(name).process(2).variable_length]


def nano(name: str = "mdlm", length: int = 12, codec=None, seed: int = 0) -> Model:
    """Return a small model with random weights, so that all predictions differ."""
    model = Model.build(name, codec or Text8(), length=length, width=16, depth=1, heads=2, seed=seed)
    with torch.no_grad():
        for weight in model.network.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel())))
    return model


@pytest.mark.parametrize("name", [name for name in methods() if name not in ("ar", "ardm", "bd3lm")])  # by token, or block
def test_steps_are_network_calls_at_most(name: str) -> None:
    model, calls = nano(name), 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    model.network.register_forward_pre_hook(count)
    for steps in (2, 5):
        calls = 0
        model.generate(n=2, steps=steps, seed=1)
        assert 1 <= calls <= steps
    calls = 0
    if name != "flexmdm":
        assert model.generate(n=1, steps=1) and calls == 1


@pytest.mark.parametrize("name", FIXED)
def test_every_method_writes_fills_in_and_scores(name: str) -> None:
    model = nano(name)
    drawn = model.generate(n=2, steps=6, seed=1)
    assert drawn == model.generate(n=2, steps=6, seed=1) and drawn != model.generate(n=2, steps=6, seed=2)
    assert [len(text) for text in drawn] == [12, 12]
    filled = model.infill("ab[MASK][MASK]c[MASK]", n=3, steps=6)
    assert len(filled) == 3 and all(text[:2] == "ab" and text[4] == "c" and len(text) == 6 for text in filled)
    whole = model.complete("he", "lo", length=10, steps=6)
    assert whole[0].startswith("he") and whole[0].endswith("lo") and len(whole[0]) == 10
    score = model.score("hello wor", samples=16)
    assert math.isfinite(score.nats) and score.exact == (name == "ar") and score.windows == 1
    assert abs(score.bits_per_char - score.nats / 9 / math.log(2)) < 1e-9
    assert (score.stderr == 0) == (score.exact or score.enumerated)


@pytest.mark.parametrize("name", FIXED)
def test_the_chain_ends_where_generate_does(name: str) -> None:
    model = nano(name)
    steps = list(model.chain(steps=6, seed=3))
    assert steps[-1].text == model.generate(steps=6, seed=3)[0]
    assert steps[0].t == 1 and steps[-1].t == 0
    assert all(len(step.confidences) == len(step.tokens) == len(step.fresh) == 12 for step in steps)
    changed = [[new != old for new, old in zip(b.tokens, a.tokens, strict=True)] for a, b in itertools.pairwise(steps)]
    assert [step.fresh for step in steps[1:]] == changed and not any(steps[0].fresh)
    assert all(0 <= c <= 1 for step in steps for c in step.confidences)
    assert "·" not in steps[-1].text


@pytest.mark.parametrize("sampler", sampler_names())
def test_samplers_by_name(sampler: str) -> None:
    names = {"left-to-right": "ar", "gaussian": "gaussian", "ddim": "gaussian", "flow": "bfn", "ddpm": "ddpm"}
    names |= {"insertion": "flexmdm", "insertion-confidence": "flexmdm", "block": "bd3lm"}
    model = nano(names.get(sampler, "mdlm"))
    text = model.generate(sampler=sampler, steps=4, temperature=0.7, top_p=0.9)[0]
    assert len(text) <= 12 if model.process.variable_length else len(text) == 12


def test_temperature_reaches_the_methods_own_sampler() -> None:
    model = nano("ar")
    cold = model.generate(n=4, temperature=0.0, seed=5)
    assert len(set(cold)) == 1 and len(set(model.generate(n=4, seed=5))) > 1


def test_a_model_of_variable_length_chooses_how_much_to_write() -> None:
    model = nano("flexmdm", length=24)
    texts = model.generate(n=12, steps=20, seed=1)
    assert texts == model.generate(n=12, steps=20, seed=1) and len({len(text) for text in texts}) > 2
    assert all(len(text) <= 24 for text in texts)
    assert all(len(text) <= 5 for text in model.generate(n=6, length=5, steps=20))
    filled = model.infill("the [GAP] sat [MASK]n t[GAP]e mat", n=60, steps=21)
    assert all(re.fullmatch(r"the [a-z ]* sat [a-z ]n t[a-z ]*e mat", text) for text in filled)
    assert len({len(text) for text in filled}) > 1 and all(len(text) <= 24 for text in filled)
    assert all(text.startswith("he") and text.endswith("lo") for text in model.complete("he", "lo", n=3, steps=9))
    score = model.score("hello wor", samples=16)
    assert math.isfinite(score.nats) and not score.exact and score.stderr


def test_the_chain_shows_insertions_as_they_happen() -> None:
    model = nano("flexmdm", length=24)
    steps = list(model.chain(steps=30, seed=3, template="ab[GAP]cd"))
    assert steps[0].text == "abcd" and steps[-1].text == model.infill("ab[GAP]cd", steps=30, seed=3)[0]
    for before, after in itertools.pairwise(steps):
        kept = [token for token, fresh in zip(after.tokens, after.fresh, strict=True) if not fresh]
        assert len(after.tokens) >= len(before.tokens) and after.text.startswith("ab") and after.text.endswith("cd")
        rest = iter(before.tokens)
        assert all(token in rest for token in kept)  # what is not new stood there before, in this order
    grown = [after for before, after in itertools.pairwise(steps) if len(after.tokens) > len(before.tokens)]
    assert grown and all(any(step.fresh) for step in grown)


@pytest.mark.parametrize("name", methods())
def test_saving_and_loading_changes_nothing(name: str, tmp_path: Path) -> None:
    model = nano(name)
    model.save(tmp_path / "m")
    again = unnoise.load(tmp_path / "m")
    assert sorted(p.name for p in (tmp_path / "m").iterdir()) == ["config.json", "model.safetensors"]
    assert again.config() == model.config()
    assert again.generate(steps=5) == model.generate(steps=5)
    assert again.score("abc", samples=4) == model.score("abc", samples=4)


def test_a_header_of_any_length_is_no_pickle(tmp_path: Path) -> None:
    """Safetensors files begin with the length of their header, whose first byte may equal a pickle's."""
    nano().save(tmp_path)
    weights = (tmp_path / "model.safetensors").read_bytes()
    size = int.from_bytes(weights[:8], "little")
    padded = size + (0x80 - size) % 256
    header = weights[8 : 8 + size].ljust(padded)
    (tmp_path / "model.safetensors").write_bytes(padded.to_bytes(8, "little") + header + weights[8 + size :])
    assert (tmp_path / "model.safetensors").read_bytes()[0] == 0x80
    assert unnoise.load(tmp_path).generate(steps=2) == nano().generate(steps=2)


def test_bits_are_counted_by_the_character_not_by_the_token() -> None:
    """Uniform predictions need log₂ 27 bits per token: at 2.5 characters per token, log₂ 27 / 2.5 bits per character."""
    model = Model.build("ar", Text8(), length=8, width=16, depth=1, heads=2)
    texts = Windows(torch.randint(27, (400,), generator=torch.Generator().manual_seed(0)), 8, characters=2.5)
    bits = model.bits_per_char(texts, 10, 1).bits
    assert bits == pytest.approx(math.log2(27) / 2.5, rel=1e-5)


def test_a_template_knows_what_came_into_each_blank() -> None:
    made = Template.parse("a[MASK][GAP]b[GAP]", Text8())
    assert made == Template(["a", "b", ""], [range(1, 3), range(4, 5)], [0, -1, OPEN_GAP, 1, OPEN_GAP])
    assert made.filled([0, 1, 2, 2, 3, 4, 4]) == [[1, 2, 3], [5, 6]] and made.filled([0, 1, 3]) == [[1], []]
    assert made.woven(["xy", "z"]) == "axybz"
    assert Template.between("ab", [-1, -1], "c", Text8()) == Template(["ab", "c"], [range(2, 4)], [0, 1, -1, -1, 2])


@pytest.mark.parametrize("method", ["mdlm", "flexmdm"])
def test_a_chain_tells_where_its_tokens_belong(method: str) -> None:
    model = Model.build(method, Text8(), length=20, width=16, depth=1, heads=2)
    text = "the [GAP] sat[MASK]on" if method == "flexmdm" else "the [MASK][MASK] sat[MASK]on"
    *_, last = model.chain(template=text, steps=12, seed=5)
    filled = [model.codec.decode([last.ids[i] for i in places]) for places in model.template(text).filled(last.places)]
    assert model.template(text).woven(filled) == model.infill(text, steps=12, seed=5)[0]


def test_infilling_is_the_models_exact_conditional() -> None:
    """Through the whole Model: the law of a filled blank, by enumeration over all texts and orders, and by drawing."""
    letters = Characters("abc")
    model = nano("mdlm", length=3, codec=letters, seed=4)
    toy = Toy(3, 3)
    everything = texts(3, 3)
    joint = torch.zeros(len(everything), dtype=torch.float64)
    x = torch.full_like(everything, 3)
    x[:, 1] = 2  # given: ?c?
    with torch.no_grad():
        for order in ((0, 2), (2, 0)):
            canvas, log_p = x.clone(), torch.zeros(len(everything), dtype=torch.float64)
            for i in order:
                log_p += model.denoiser(canvas, torch.zeros(len(x))).values[:, i].gather(1, everything[:, i : i + 1])[:, 0]
                canvas[:, i] = everything[:, i]
            joint += 0.5 * log_p.exp()
    joint = torch.where(everything[:, 1] == 2, joint, 0.0)
    assert abs(float(joint.sum()) - 1) < 1e-5
    drawn = model.infill("[MASK]c[MASK]", n=20_000, sampler="first-hitting")
    counts = torch.bincount(toy.index(torch.tensor([["abc".index(c) for c in text] for text in drawn])), minlength=27)
    from toy import chi_square

    assert chi_square(counts, joint / joint.sum()) > 1e-4


def test_the_exact_likelihood_of_ar_sums_to_one() -> None:
    model = nano("ar", length=3, codec=Characters("abc"))
    nats = model.nats(texts(3, 3))[0]
    assert abs(float((-nats).exp().sum()) - 1) < 1e-5


def test_the_bound_of_a_model_lies_above_its_likelihood() -> None:
    """mdlm is time-free, so −log p is the mean over all orders of reveals: enumerable on texts of two letters."""
    model = nano("mdlm", length=2, codec=Characters("abc"))
    x = texts(3, 2)
    p = torch.zeros(9, dtype=torch.float64)
    with torch.no_grad():
        for order in ((0, 1), (1, 0)):
            canvas, log_p = torch.full_like(x, 3), torch.zeros(9, dtype=torch.float64)
            for i in order:
                log_p += model.denoiser(canvas, torch.zeros(9)).values[:, i].gather(1, x[:, i : i + 1])[:, 0]
                canvas[:, i] = x[:, i]
            p += 0.5 * log_p.exp()
    draws = model.nats(x, draws=3000)
    bound, error = draws.mean(0), draws.std(0) / 3000**0.5
    assert (bound > -p.log() - 4 * error).all()
    assert (bound < -p.log() + 0.7).all()


def test_a_long_text_is_scored_in_windows_and_says_so() -> None:
    model = nano("ar")
    whole = model.score("abcdefghijklm nopqrstuvwxyz")
    assert whole.windows == 3 and whole.characters == 27
    parts = [model.score(part).nats for part in ("abcdefghijkl", "m nopqrstuvw", "xyz")]
    assert abs(whole.nats - sum(parts)) < 1e-4
    both = model.score(["abc", "defgh"])
    assert abs(both.nats - model.score("abc").nats - model.score("defgh").nats) < 1e-4


def test_the_end_of_a_text() -> None:
    model = nano("mdlm", codec=Text8(end=True))
    with torch.no_grad():
        model.network.head.bias[27] += 2.0
    drawn = model.generate(n=8, steps=12)
    assert any(len(text) < 12 for text in drawn)


def test_a_masked_model_needs_few_evaluations() -> None:
    """1,000 steps, length 256, batch 8: at most 256 × 8 sequence evaluations, counted."""
    model = nano("mdlm", length=256)
    asked = 0
    inner = model.network.forward

    def counted(x, *rest, **more):
        nonlocal asked
        asked += len(x)
        return inner(x, *rest, **more)

    model.network.forward = counted
    model.generate(n=8, steps=1000)
    assert 8 * 100 < asked <= 8 * 256


def spoil(folder: Path, **changes: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))


def truncate(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def reshape(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["network.head.bias"] = torch.zeros(5)
    save_file(weights, folder / "model.safetensors")


def lose(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["network.head.bias"]
    save_file(weights, folder / "model.safetensors")


def pickle(folder: Path) -> None:
    torch.save({"a": torch.zeros(3)}, folder / "model.safetensors")


def only_pickle(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model.pt")


DAMAGE = {
    "truncated": (truncate, r"model.safetensors does not fit .* corrupted or truncated"),
    "a wrong shape": (reshape, r"network.head.bias has shape \[5\], not \[27\]"),
    "a missing weight": (lose, r"network.head.bias is missing"),
    "an unknown method": (lambda f: spoil(f, method="mdml"), r"unknown method 'mdml': did you mean 'mdlm'"),
    "no configuration": (lambda f: (f / "config.json").unlink(), r"holds no model: config.json is missing"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), r"model.safetensors is missing"),
    "a pickle": (pickle, r"it is a pickle, which unnoise does not open"),
    "nothing but a pickle": (only_pickle, r"model.pt is a pickle, which unnoise does not open"),
    "broken json": (lambda f: (f / "config.json").write_text("{"), r"config.json is damaged"),
    "another format": (lambda f: spoil(f, format="x"), r"is not a configuration that this version of unnoise can read"),
    "no network": (lambda f: spoil(f, network={}), r"does not describe a model of this version"),
    "an unknown codec": (lambda f: spoil(f, codec={"kind": "morse"}), r"unknown codec 'morse'"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_model_is_refused_in_a_sentence(damage: str, tmp_path: Path) -> None:
    nano().save(tmp_path)
    act, words = DAMAGE[damage]
    act(tmp_path)
    with pytest.raises(ValueError, match=words) as caught:
        unnoise.load(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: m.generate(n=0), "number of samples must be ≥ 1"),
        (lambda m: m.generate(length=13), "1 to 12 tokens, found 13"),
        (lambda m: m.generate(sampler="magic"), "unknown sampler 'magic': did you mean 'margin'"),
        (lambda m: m.generate(steps=0), "steps must be a whole number from 1 to 1,000,000"),
        (lambda m: m.generate(temperature=-1), "temperature must be 0, or lie between"),
        (lambda m: m.infill("no blanks"), r"mark each blank token with \[MASK\]"),
        (lambda m: m.infill("the [GAP] sat"), r"\[GAP\] stands for any number of tokens, which mdlm cannot choose"),
        (lambda m: m.infill("a" * 12 + "[MASK]"), "at most 12 tokens, found 13"),
        (lambda m: m.complete("a" * 12), "nothing is left to sample in a length of 12"),
        (lambda m: m.score(""), "no text to score"),
        (lambda m: m.score("abc", samples=0), "at least 1 sample"),
        (lambda m: Model.build("mdml"), "unknown method 'mdml'"),
        (lambda m: Model.build("mdlm", size="huge"), "unknown size 'huge'"),
        (lambda m: unnoise.load("/nowhere"), "there is no model in /nowhere"),
    ],
)
def test_mistakes(call, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call(nano())


def test_a_score_model_refuses_samplers_that_need_a_mean() -> None:
    with pytest.raises(ValueError, match="sedd-absorb cannot sample with ancestral: use one of predictor-corrector, tweedie"):
        nano("sedd-absorb").generate(sampler="ancestral", steps=3)


def test_small_files_of_a_folder_are_kept(tmp_path: Path) -> None:
    model = nano("mdlm")
    model.extra_files = {"words.gz": b"\x1f\x8b\x00", "notes.txt": b"a note\n"}
    model.save(tmp_path / "one")
    (tmp_path / "one" / "log.jsonl").write_text("{}\n")
    again = unnoise.load(tmp_path / "one")
    assert again.extra_files == model.extra_files
    again.save(tmp_path / "two")
    assert (tmp_path / "two" / "words.gz").read_bytes() == b"\x1f\x8b\x00" and not (tmp_path / "two" / "log.jsonl").exists()


def test_a_bundled_model_is_loaded_by_its_name() -> None:
    model = unnoise.load("wiki")
    assert model.method.name == "mdlm" and "words.txt.gz" in model.extra_files
    assert model.score("the united states of america", samples=16).bits_per_char < 3


def test_what_could_stand_at_a_position() -> None:
    model = nano("mdlm")
    found = model.candidates([0, 27, 2], 1, 0.5, most=27)
    assert sum(p for _, p in found) == pytest.approx(1, abs=1e-5) and found == sorted(found, key=lambda pair: -pair[1])
    assert model.candidates([0, 1, 2], 1, 0.5)[0] == ("b", 1.0)  # what stands there is carried over
    for ids, place, words in (([0, 1], 2, "no position 2"), ([0, 28], 0, "lie between 0 and 27")):
        with pytest.raises(ValueError, match=words):
            model.candidates(ids, place, 0.5)
    with pytest.raises(ValueError, match="has no noised tokens"):
        nano("gaussian").candidates([0], 0, 0.5)


def test_the_table_says_which_methods_ignore_time() -> None:
    for name in methods():
        assert nano(name).network.shape.time == (not method(name).time_free)
