"""Denoising: the prediction and the samples of x_0 given a text x_t, against the posterior by enumeration."""

import itertools
import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import unnoise
from exact_models import LETTERS, text_of
from toy import Exact, Toy, chi_square, sampler_law, total_variation
from unnoise import Ancestral, Linear, Process, TweedieLeaping, Uniform
from unnoise.cli.main import main
from unnoise.data import Characters
from unnoise.model.denoise import Denoised
from unnoise.process import Masked
from unnoise.sampler.metropolis import conditionals, site_posteriors

AT = 0.3


class ExactNetwork(nn.Module):
    """The exact prediction of a toy as a network's output; the process is set once the model is built."""

    def __init__(self, toy: Toy, kind: str, states: int):
        super().__init__()
        self.toy, self.kind = toy, kind
        self.config = {"inputs": states, "outputs": toy.vocab}
        self.exact: Exact | None = None

    def forward(self, x: Tensor, t: Tensor, where: Tensor | None = None) -> Tensor:
        assert self.exact is not None
        values = self.exact(x, t, where)
        return values.values[..., : self.toy.vocab]  # pyright: ignore[reportAttributeAccessIssue]


def exact_model(toy: Toy, method: unnoise.Method | str, kind: str) -> unnoise.Model:
    entry = unnoise.method(method) if isinstance(method, str) else method
    entry = replace(entry, time_free=False)
    network = ExactNetwork(toy, kind, entry.process(toy.vocab).inputs)
    model = unnoise.Model.build(entry, Characters(LETTERS[: toy.vocab]), length=toy.length, network=network)
    for exponents in model.process.parameters():  # of genmd4: a mask then says something about its token
        exponents.data += torch.arange(toy.vocab)
    network.exact = Exact(toy, model.process, kind)
    return model


def marginal_method() -> unnoise.Method:
    return replace(unnoise.method("udlm"), process=lambda vocab: Uniform(vocab, Linear(), reverse="marginal"))


def posterior(toy: Toy, process: Process, x_t: Tensor, t: float) -> Tensor:
    """p(x_0 | x_t) over all texts of the toy: [N]."""
    joint = toy.likelihoods(process, x_t[None], torch.tensor([t])).prod(-1)[0] * toy.p
    return joint / joint.sum()


def channel(toy: Toy) -> Process:
    """Return the channel of random errors: linear uniform noise, at t = ε."""
    return Uniform(toy.vocab, Linear())


def check_against(marginals: Tensor, y: Tensor, found: Denoised) -> int:
    """Compare a prediction with the marginals [L, K] of the posterior; return the number of its edits."""
    assert found.text == text_of(marginals.argmax(-1))
    changed = (marginals.argmax(-1) != y).nonzero()[:, 0].tolist()
    assert [edit.position for edit in found.edits] == [edit.start for edit in found.edits] == changed
    for edit in found.edits:
        assert (edit.old, edit.new) == (LETTERS[y[edit.position]], found.text[edit.position])
        assert edit.probability == pytest.approx(marginals[edit.position].max().item(), abs=1e-9)
    return len(changed)


# ---- uniform and hybrid noise -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        (marginal_method(), "mean"),
        ("multinomial", "leave-one-out"),
        ("d3pm-uniform", "leave-one-out"),
        ("udlm", "leave-one-out"),
        ("gidd", "leave-one-out"),
        ("sedd-uniform:scaled=false", "score"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_the_prediction_is_the_mode_of_the_exact_posterior(method: unnoise.Method | str, kind: str, double: None) -> None:
    toy = Toy(3, 3, seed=1)
    model = exact_model(toy, method, kind)
    at = 0.7 if "multinomial" in str(method) or "d3pm" in str(method) else AT
    edits = 0
    for y in toy.x:
        marginals = toy.posterior_mean(model.process, y[None], torch.tensor([at]))[0]
        edits += check_against(marginals, y, model.denoise(text_of(y), at)[0])
    assert edits > 3  # the posterior differs from the text often enough to be seen


@pytest.mark.parametrize(
    ("method", "kind", "sampler"),
    [
        ("udlm", "leave-one-out", Ancestral),
        ("gidd", "leave-one-out", Ancestral),
        ("sedd-uniform:scaled=false", "score", TweedieLeaping),
    ],
)
def test_samples_follow_the_exact_posterior_as_steps_grow(method: str, kind: str, sampler, double: None) -> None:
    toy, t = Toy(3, 2, seed=0), 0.6
    model = exact_model(toy, method, kind)
    process, y = model.process, torch.tensor([2, 1])
    exact, states = Exact(toy, process, kind), process.states
    start = torch.zeros(states**2, dtype=torch.float64)
    start[toy.index(y, states)] = 1
    truth = posterior(toy, process, y, t)

    def law(steps: int) -> Tensor:
        times = sampler(steps=steps).times(t)

        def kernel(s: float | None, at: float):
            def probabilities(x: Tensor) -> Tensor:
                ats = torch.full(x.shape, at, dtype=torch.float64)
                prediction = exact(x, ats[:, 0])
                if s is None:
                    clean = prediction.clean(process, x, ats).exp()  # pyright: ignore[reportAttributeAccessIssue]
                    return torch.nn.functional.pad(clean, (0, states - toy.vocab))
                return prediction.reverse(process, x, torch.full_like(ats, s), ats).exp()  # pyright: ignore[reportAttributeAccessIssue]

            return probabilities

        kernels = [kernel(s, at) for at, s in zip(times, [*times[1:], None], strict=True)]
        end = sampler_law(toy, process, start, kernels)
        return end[toy.index(toy.x, states)]

    distances = [total_variation(law(steps), truth) for steps in (1, 4, 16, 64)]
    assert all(later < earlier for earlier, later in itertools.pairwise(distances)), distances
    assert distances[-1] < 0.01 < distances[0] / 4, distances
    drawn = model.denoise(text_of(y), t, n=4000, steps=4, seed=3)
    counts = torch.bincount(
        torch.tensor([int(toy.index(torch.tensor([LETTERS.index(c) for c in one.text]))) for one in drawn]), minlength=9
    )
    assert chi_square(counts, law(4)) > 1e-3
    marginals = toy.posterior_mean(process, y[None], torch.tensor([t]))[0]
    for one in drawn[:50]:
        for edit in one.edits:
            expected = float(marginals[edit.position, LETTERS.index(edit.new)])
            assert edit.probability == pytest.approx(expected, abs=1e-9)


# ---- masked models: random errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["mdlm", "genmd4:power=1.7", "sedd-absorb:scaled=false"])
def test_the_conditional_of_one_token_given_the_others_is_exact(method: str, double: None) -> None:
    toy, rate = Toy(3, 3, seed=2), 0.4
    model = exact_model(toy, method, "score" if "sedd" in method else "mean")
    process = model.process
    assert isinstance(process, Masked)
    noise = channel(toy)
    for y in toy.x:
        found = torch.cat(list(site_posteriors(model.denoiser, process, y, rate, 2))).exp()
        likelihood = toy.likelihoods(noise, y[None], torch.tensor([rate]))[0]  # q(y^i | x^i): [N, L]
        for i in range(toy.length):
            others = [j for j in range(toy.length) if j != i]
            joint = likelihood[:, i] * toy.p * (toy.x[:, others] == y[others]).all(-1)
            truth = toy.marginals(joint[None], i)[0]
            assert torch.allclose(found[i], truth / truth.sum(), atol=1e-9)
        check_against(found, y, model.denoise(text_of(y), rate)[0])


def test_the_prediction_is_the_exact_posterior_where_positions_are_independent(double: None) -> None:
    toy, rate = Toy(3, 3, seed=4), 0.5
    product = toy.p.new_ones(len(toy.x))
    for i in range(3):
        product = product * toy.marginals(toy.p[None], i)[0][toy.x[:, i]]
    toy.p = product
    model = exact_model(toy, "mdlm", "mean")
    edits = 0
    for y in toy.x:
        marginals = toy.posterior_mean(channel(toy), y[None], torch.tensor([rate]))[0]
        edits += check_against(marginals, y, model.denoise(text_of(y), rate)[0])
    assert edits > 3


@pytest.mark.parametrize("method", ["mdlm", "genmd4:power=1.7"])
def test_gibbs_samples_follow_the_exact_posterior_as_sweeps_grow(method: str, double: None) -> None:
    toy, rate = Toy(3, 2, seed=0), 0.6
    model = exact_model(toy, method, "mean")
    process, y = model.process, torch.tensor([2, 1])
    assert isinstance(process, Masked)
    truth = posterior(toy, channel(toy), y, rate)

    def law(sweeps: int) -> Tensor:
        chain = torch.zeros(len(toy.x), dtype=torch.float64)
        chain[toy.index(y)] = 1
        for _ in range(sweeps):
            for i in range(toy.length):
                where = torch.zeros_like(toy.x, dtype=torch.bool)
                where[:, i] = True
                p = conditionals(model.denoiser, process, toy.x, y.expand_as(toy.x), where, rate).exp()
                moved = torch.zeros_like(chain)
                for k in range(toy.vocab):
                    there = toy.x.clone()
                    there[:, i] = k
                    moved = moved.index_add(0, toy.index(there), chain * p[:, k])
                chain = moved
        return chain

    assert torch.allclose(law(60), truth, atol=1e-9)
    assert total_variation(law(1), truth) > 0.02 > total_variation(law(4), truth)
    drawn = model.denoise(text_of(y), rate, n=4000, steps=1, seed=5)
    numbers = [int(toy.index(torch.tensor([LETTERS.index(c) for c in one.text]))) for one in drawn]
    assert chi_square(torch.bincount(torch.tensor(numbers), minlength=9), law(1)) > 1e-3


# ---- texts ------------------------------------------------------------------------------------------------------------


def untrained(method: str, length: int = 16) -> unnoise.Model:
    return unnoise.Model.build(method, width=16, depth=1, heads=2, length=length)


@pytest.mark.parametrize("method", ["udlm", "mdlm", "gidd", "sedd-uniform", "csm"])
def test_a_long_text_is_denoised_in_windows(method: str) -> None:
    model, text = untrained(method), "the cat sat on the mat and the dog sat on the log"
    (one,) = model.denoise(text, 0.5)
    assert one.windows == 4 and len(one.text) == len(text) and one.read is None
    changed = [i for i, (a, b) in enumerate(zip(text, one.text, strict=True)) if a != b]
    assert [edit.start for edit in one.edits] == changed
    samples = model.denoise(text, 0.5, n=3, steps=1, seed=7)
    assert len({sample.text for sample in samples}) == 3
    assert [sample.text for sample in model.denoise(text, 0.5, n=2, steps=1, seed=7)] == [s.text for s in samples[:2]]
    assert model.denoise(text, 0.5, n=1, steps=1, seed=8)[0].text != samples[0].text
    for sample in samples:
        where = [i for i, (a, b) in enumerate(zip(text, sample.text, strict=True)) if a != b]
        assert [edit.start for edit in sample.edits] == [edit.position for edit in sample.edits] == where and where[-1] > 40
    shares: list[float] = []
    model.denoise(text, 0.5, n=2, steps=2, on_progress=shares.append)
    assert shares[-1] == 1 and shares == sorted(shares)


def test_the_replaced_share_is_the_processs_own(double: None) -> None:
    text = "the cat sat on"
    assert untrained("udlm:eps=0").denoise(text, 0.2)[0].replaced == pytest.approx(0.2 * 26 / 27, abs=1e-6)
    assert untrained("mdlm").denoise(text, 0.2)[0].replaced == pytest.approx(0.2 * 26 / 27)
    model = untrained("gidd")
    row = model.process.transition(None, torch.tensor(0.2))[3]
    assert model.denoise(text, 0.2)[0].replaced == pytest.approx(float(1 - row[3] / row[:27].sum()))


def test_what_the_alphabet_lacks_is_said() -> None:
    (one,) = untrained("udlm").denoise("A cat, 1 dog", 0.01)
    assert one.read == "a cat one dog" and len(one.text) == len(one.read)


def run(line: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = main(shlex.split(line))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    model, generator = untrained("udlm"), torch.Generator().manual_seed(0)
    for weight in model.network.parameters():
        torch.nn.init.normal_(weight, generator=generator)
    model.save(tmp_path / "udlm")
    code, out, err = run(f"denoise 'the Cat sat' --model {tmp_path}/udlm --at 0.999 --edits", capsys)
    (one,) = model.denoise("the Cat sat", 0.999)
    assert code == 0 and out == f"{one.text}\n" and one.edits
    first, second, *listed = err.splitlines()
    assert first == "the model's codec reads this text as 'the cat sat'"
    assert second == "t = 0.999: 96.1 % of the tokens are assumed to be noise" and len(listed) == len(one.edits)
    code, out, _ = run(f"denoise 'the Cat sat' --model {tmp_path}/udlm --at 0.999 --num-samples 2 --steps 3 --json", capsys)
    found = json.loads(out)
    assert code == 0 and found["read"] == "the cat sat" and found["t"] == 0.999 and found["windows"] == 1
    assert len(found["texts"]) == 2 and found["texts"][0]["edits"][0].keys() == {
        "position",
        "start",
        "old",
        "new",
        "probability",
    }
    monkeypatch.setenv("FORCE_COLOR", "1")
    _, out, _ = run(f"denoise 'the cat sat' --model {tmp_path}/udlm --at 0.999", capsys)
    assert "\x1b[1;4;32m" in out


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("denoise 'the cat' --model wiki-ar", "found ar: use unnoise correct"),
        ("denoise 'the cat' --model stories", "found bd3lm"),
        ("denoise 'the cat' --model digits", "this is a model of images"),
        ("denoise 'the cat' --model wiki --at 0", "a time 0 < t < 1, found 0"),
        ("denoise 'the cat' --model wiki --steps 4", "steps are for samples of x_0"),
        ("denoise '' --model wiki", "there is no text to denoise"),
        ("denoise 'the cat' --model wiki --num-samples -1", "--num-samples must be ≥ 0"),
        ("denoise 'the cat' --model wiki --label x", "trained without labels"),
    ],
)
def test_mistakes(line: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(line, capsys)
    assert code == 2 and not out and err.startswith("unnoise: ") and words in err and err.count("\n") == 1
