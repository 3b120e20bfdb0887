"""The forward process to look at: one coherent path, drawn from q, and the way back from its middle, from p(x_0 | x_t)."""

import itertools
import json
import shlex
from pathlib import Path

import pytest
import torch

import unnoise
from exact_gaussian import ExactGaussian, P, gaussian
from toy import Exact, Toy, chi_square
from unnoise import Ancestral, FirstHitting, GaussianSampler, HybridNoise, Linear, Masked, Process, Uniform
from unnoise.apps.plots.noise import (
    NOISES,
    NoisePath,
    can_denoise_from,
    denoise_from,
    model_path,
    moments,
    noise_named,
    symbol_points,
)
from unnoise.apps.plots.schedules import revealed, schedule_named
from unnoise.cli.main import main
from unnoise.data import codec
from unnoise.model.sampling_options import SamplingOptions
from unnoise.rng import RowGenerator
from unnoise.sampler.sampling import sample_from

TEXT8 = codec("text8")
FOX = "the quick brown fox jumps over the lazy dog"


@pytest.mark.parametrize("name", ["uniform", "absorbing", "nearest-neighbour", "hybrid"])
def test_a_path_is_drawn_from_the_forward_chain(name: str) -> None:
    """Two moments of it, jointly: q(x_s | x_0)·q(x_t | x_s), counted over the positions of a text of one letter."""
    process = noise_named(name, TEXT8)
    assert isinstance(process, Process)
    s, t = 0.3, 0.6
    path = NoisePath(process, TEXT8, [4] * 30_000, [s, t])
    early, late = (state[0] for state in path.states)
    states = process.states
    at = [torch.tensor(time, dtype=torch.float64) for time in (s, t)]
    joint = process.transition(None, at[0])[4][:, None] * process.transition(*at)
    assert chi_square(torch.bincount(early * states + late, minlength=states**2), joint.flatten()) > 1e-3


def test_gaussian_noise_in_two_steps_is_that_in_one(double: None) -> None:
    process = gaussian()
    generator, z_0 = torch.Generator().manual_seed(0), process.table()[torch.zeros(40_000, 1, dtype=torch.long)]
    s, t = (torch.full((40_000,), time) for time in (0.3, 0.6))
    with torch.no_grad():
        z_s = process.noised(z_0, None, s, generator)
        z_t = process.noised(z_s, s, t, generator)
        assert torch.allclose(z_t.mean(0), process.signal(t)[0].sqrt() * z_0[0], atol=0.02)
        assert torch.allclose(z_t.var(0), process.noise(t)[0].expand(1, 2), atol=0.02)
        kept = (process.signal(t) / process.signal(s))[0].sqrt()
        together = ((z_s - z_s.mean(0)) * (z_t - z_t.mean(0))).mean(0)
        assert torch.allclose(together, kept * process.noise(s)[0].expand(1, 2), atol=0.02)
        assert torch.equal(process.nearest(process.table()[None]), torch.arange(3)[None])


def test_later_noise_contains_earlier_noise_and_the_seed_decides() -> None:
    times = [0.0, 0.2, 0.4, 0.8, 1.0]
    tokens = TEXT8.encode(FOX * 3).tolist()
    path = NoisePath(noise_named("absorbing", TEXT8), TEXT8, tokens, times, seed=5)
    texts = path.texts()
    masks = [{i for i, kind in enumerate(one.kinds) if kind == "mask"} for one in texts]
    assert all(a <= b for a, b in itertools.pairwise(masks)) and not masks[0] and len(masks[-1]) == len(tokens)
    assert "".join(texts[0].tokens) == FOX * 3 and [one.changed for one in texts] == [len(one) for one in masks]
    again = NoisePath(noise_named("absorbing", TEXT8), TEXT8, tokens, times, seed=5).texts()
    other = NoisePath(noise_named("absorbing", TEXT8), TEXT8, tokens, times, seed=6).texts()
    assert again == texts and other != texts


def test_neighbours_are_those_of_a_keyboard() -> None:
    process = noise_named("nearest-neighbour", TEXT8)
    assert isinstance(process, Process)
    rates = process.rate(torch.tensor(0.5, dtype=torch.float64))
    beside = {TEXT8.show(i) for i in rates[TEXT8.encode("g")[0]].gt(0).nonzero()[:, 0].tolist()}
    assert {"f", "h"} <= beside <= set("rtyfhvbn")
    assert symbol_points(["a", "é"]).shape == (2, 1) and symbol_points(list("aA;")).shape == (3, 3)


# ---- the way back ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("process", "kind", "sampler"),
    [
        (Masked(3, Linear()), "mean", Ancestral(40)),
        (Masked(3, Linear()), "mean", FirstHitting()),
        (Uniform(3, Linear(), reverse="plug-in"), "leave-one-out", Ancestral(40)),
        (HybridNoise(3, 0.3), "leave-one-out", Ancestral(40)),
    ],
)
def test_the_way_back_of_an_exact_model_is_the_posterior(process: Process, kind: str, sampler, double: None) -> None:
    toy, t = Toy(3, 2, seed=0), 0.5
    x_t = torch.tensor([[2, process.states - 1]])
    posterior = toy.likelihoods(process, x_t, torch.tensor([t])).prod(-1)[0] * toy.p
    state = x_t.expand(2000, 2).contiguous()
    *before, last = sample_from(process, Exact(toy, process, kind), state, t, sampler=sampler, seed=2)
    assert all(0 <= frame.t <= t for frame in before) and last.t == 0
    counts = torch.bincount(toy.index(last.x), minlength=9)
    assert float(0.5 * (counts / 2000 - posterior / posterior.sum()).abs().sum()) < 0.05


def test_gaussian_embeddings_come_back_too(double: None) -> None:
    process = gaussian()
    denoiser, t = ExactGaussian(process), 0.6
    z = 0.4 * process.table()[:1] + torch.tensor([0.1, -0.2])
    posterior = denoiser(z[None], torch.tensor([t])).log_probs.exp()[0, 0].detach()
    state = z.detach().expand(4000, 1, 2).contiguous()
    *_, last = sample_from(process, denoiser, state, t, sampler=GaussianSampler(100), seed=1)
    shares = torch.bincount(last.x[:, 0], minlength=3) / 4000
    assert float(0.5 * (shares - posterior).abs().sum()) < 0.03 and float(0.5 * (P - posterior).abs().sum()) > 0.1


def test_a_model_keeps_what_the_noise_left() -> None:
    model = unnoise.Model.build("mdlm", width=16, depth=1, heads=2, length=48)
    path = model_path(model, FOX, [0.0, 0.5])
    back = list(denoise_from(model, path, SamplingOptions(steps=6)))
    noised = path.texts()[-1]
    for one in back:
        assert all(a == b for a, b, kind in zip(one.ids, noised.ids, noised.kinds, strict=True) if kind == "kept")
    assert back[-1].t == 0 and "mask" not in back[-1].kinds and back[0].t < 0.5
    assert back == list(denoise_from(model, path, SamplingOptions(steps=6)))
    assert [one.t for one in moments(back, [0.25, 0.2, 0.0])] == pytest.approx([0.25, 1 / 6, 0.0])
    assert can_denoise_from(model) and not can_denoise_from(unnoise.Model.build("ar", width=16, depth=1, heads=2, length=8))


# ---- the command -----------------------------------------------------------------------------------------------------


def run(line: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = main(shlex.split(line))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize("name", [*NOISES, "sedd-uniform", "genmd4", "gidd:p_uniform=0.5"])
def test_the_command_for_every_noise(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(f"noise '{FOX}' --method {name} --seed 3 --times 0 0.5 1 --json", capsys)
    found = json.loads(out)
    assert code == 0 and found["noise"] == name and found["seed"] == 3
    first, middle, last = found["texts"]
    assert first["text"] == FOX and set(first["kinds"]) == {"kept"} and [one["t"] for one in found["texts"]] == [0, 0.5, 1]
    changed = [sum(kind != "kept" for kind in one["kinds"]) for one in (middle, last)]
    assert 0 < changed[0] < changed[1] and changed[1] > 36
    assert all(len(one["tokens"]) == len(FOX) for one in found["texts"])


def test_lines_and_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "60")
    code, out, err = run(f"noise '{FOX * 2}' --picture grid.png", capsys)
    assert code == 0 and out.splitlines()[:2] == ["absorbing", f"t = 0.00    0 %  {FOX}"] and "wrote grid.png" in err
    assert out.splitlines()[2] == " " * 17 + FOX and len(out.splitlines()) == 11
    assert Path("grid.png").read_bytes()[:4] == b"\x89PNG"
    code, out, _ = run("noise 'the roman empire' --model wiki --times 0 0.3 0.6 --steps 8 --picture back.svg", capsys)
    assert code == 0 and "and back, by wiki" in out and out.splitlines()[-1].startswith("t = 0.00")
    assert out.splitlines()[0] == "mdlm" and Path("back.svg").read_bytes()[:5] == b"<?xml"
    code, out, _ = run("noise 'It costs 5 £' --codec chars --method uniform --times 0", capsys)
    assert code == 0 and "It costs 5 £" in out


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("noise abc --method unifrm", "unknown noise 'unifrm': did you mean 'uniform'?"),
        ("noise abc --method ar", "ar has no noise that replaces tokens in place"),
        ("noise abc --method bfn", "bfn has no noise that replaces tokens in place"),
        ("noise abc --method gidd:p_uniform=1", "0 ≤ p_uniform < 1"),
        ("noise abc --times 0.5 0.2", "times must rise within [0, 1], found 0.5 0.2"),
        ("noise abc --times 0 2", "times must rise within [0, 1]"),
        ("noise ''", "there is no text to noise"),
        ("noise abc --seed -1", "a seed must lie between 0 and 2^63"),
        ("noise abc --steps 4", "give --model too"),
        ("noise abc --model wiki --method uniform", "a model has its own noise and codec"),
        ("noise abc --model wiki --times 0", "denoising must start at a time 0 < t ≤ 1, found 0"),
        ("noise abc --model wiki-ar", "ar has no noise"),
        (f"noise '{'a' * 257}' --model wiki", "at most 128 tokens, found 256"),
        ("noise abc --codec bytes --method nearest-neighbour", "alphabets of at most 128 symbols"),
        ("noise abc --codec digits", "digits has a codec of images"),
        ("noise abc --codec storys", "or shards), a bundled model"),
        ("noise abc --picture grid.jpg", "expected a file that ends in .png or .svg"),
        ("plot schedule --schedules quadratic", "unknown schedule 'quadratic': use one of linear"),
        ("plot schedule --schedules polynomial:x=2", "the schedule polynomial has no field 'x'; it has w"),
        ("plot schedule --schedules polynomial:w=x", "polynomial:w must be a number, found 'x'"),
        ("plot schedule --schedules md4:offset=x", "md4:offset must be a number, found 'x'"),
        ("noise abc --method gidd:p_uniform=x", "gidd:p_uniform must be a number, found 'x'"),
        ("noise abc --method multinomial:importance=3", "multinomial:importance must be true or false, found 3"),
        ("plot schedule --schedules ar", "ar has no noise schedule to draw"),
        ("plot schedule --schedules linear --steps 0", "--steps must be ≥ 1"),
        ("plot chain --schedules linear", "--schedules are for `unnoise plot schedule` without --model"),
    ],
)
def test_mistakes(line: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(line, capsys)
    assert code == 2 and not out and err.startswith("unnoise: ") and words in err and err.count("\n") == 1


# ---- schedules side by side ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["linear", "cosine", "log-linear", "geometric:hi=9"])
@pytest.mark.parametrize("grid", ["uniform", "cosine"])
def test_the_tokens_of_each_step_are_those_that_a_sampler_reveals(name: str, grid) -> None:
    alpha = schedule_named(name)
    wanted = torch.tensor(revealed(alpha, grid, 8, 20_000))
    schedule = alpha.__self__  # pyright: ignore[reportFunctionMemberAccess]
    process = Masked(3, schedule)
    x = torch.full((1, 20_000), process.mask)
    generator = RowGenerator(0, torch.zeros(1, dtype=torch.long))
    jumps = process.jump_steps(x, x > 0, Ancestral(8, grid).times(), generator)
    assert jumps is not None and float(wanted.sum()) == pytest.approx(20_000)
    assert chi_square(torch.bincount(jumps[0], minlength=8), wanted / wanted.sum()) > 1e-3


def test_schedules_are_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    line = f"plot schedule --schedules linear gidd gaussian --steps 4 --length 8 --out {tmp_path}/schedules.png --json"
    code, out, _ = run(line, capsys)
    found = json.loads(out)
    assert code == 0 and Path(found["out"]).read_bytes()[:4] == b"\x89PNG"
    assert [(one["schedule"], one["grid"]) for one in found["revealed"]][:4] == [
        ("linear", "uniform"),
        ("gidd", "uniform"),
        ("gaussian", "uniform"),
        ("linear", "cosine"),
    ]
    assert found["revealed"][0]["tokens"] == pytest.approx([2] * 4)
