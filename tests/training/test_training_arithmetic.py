"""The arithmetic of a training step, each part against the same computation in plain lines: Muon, clipping, averages, the loss
of a batch, the order of the texts, steps that are left out, labels that are dropped."""

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from unnoise import Model
from unnoise.data import Bpe, Text8
from unnoise.data.corpus import Corpus
from unnoise.denoiser import Denoiser
from unnoise.model.likelihood import bits_per_char
from unnoise.objective import Objective
from unnoise.process.state import PAD
from unnoise.rng import RowGenerator, seed_of
from unnoise.training.callbacks import Callback, StepReport
from unnoise.training.datasets import load_datasets
from unnoise.training.optim import Muon, optimizers, orthogonal, owners
from unnoise.training.parallel import BatchLoss, clip_gradients
from unnoise.training.trainer import DivergedError, TrainingRun
from unnoise.training.training_options import TrainingOptions

TEXT = "the cat sat on the mat and the dog sat on the log while the rat ran round the hat " * 40
TOKENS = torch.from_numpy(Text8().encode(TEXT))


def nano(name: str = "mdlm", **fields: Any) -> Model:
    return Model.build(name, Text8(), **{"length": 16, "width": 16, "depth": 1, "heads": 2, **fields})


def run_of(model: Model | None = None, data: Any = TOKENS, out: Path | None = None, **options: Any) -> TrainingRun:
    objective, labels = options.pop("objective", None), options.pop("labels", None)
    chosen = TrainingOptions(**{"steps": 6, "loss": "fast", "batch": 4, "eval_windows": 4, **options})
    return TrainingRun(model or nano(), data, chosen, out, objective=objective, labels=labels)


def weights_of(run: TrainingRun) -> dict[str, Tensor]:
    return {name: weight.detach().clone() for name, weight in run.learned.named_parameters()}


# ---- Muon -------------------------------------------------------------------------------------------------------------


def newton_schulz(g: np.ndarray) -> np.ndarray:
    """Five iterations by the singular values alone: U·p(p(…p(S/‖S‖)))·Vᵀ with p(s) = 3.4445 s − 4.7750 s³ + 2.0315 s⁵."""
    u, s, v = np.linalg.svd(g, full_matrices=False)
    s = s / np.sqrt((s**2).sum())
    for _ in range(5):
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    return (u * s) @ v


@pytest.mark.parametrize("shape", [(5, 5), (4, 6), (3, 9), (8, 2)])
def test_orthogonal_is_a_polynomial_of_the_singular_values(shape: tuple[int, int]) -> None:
    g = np.random.default_rng(0).normal(size=shape)
    assert np.allclose(orthogonal(torch.from_numpy(g)).numpy(), newton_schulz(g), atol=1e-5)


@pytest.mark.parametrize("shape", [(5, 5), (4, 6), (8, 2)])
def test_four_steps_of_muon_by_hand(shape: tuple[int, int]) -> None:
    """m ← μm + (1 − μ)g with μ = min(0.95, 0.85 + 3·10⁻⁴·step), then g + μ(m − g), orthogonalised, times lr·√max(1, n/m)."""
    generator = np.random.default_rng(1)
    w, m = generator.normal(size=shape), np.zeros(shape)
    weight = torch.nn.Parameter(torch.from_numpy(w.copy()))
    muon = Muon([weight], lr=0.1)
    for step in range(1, 5):
        g = generator.normal(size=shape)
        weight.grad = torch.from_numpy(g.copy())
        muon.step()
        mu = min(0.95, 0.85 + 3e-4 * step)
        m = mu * m + (1 - mu) * g
        w = w - 0.1 * math.sqrt(max(1, shape[0] / shape[1])) * newton_schulz((1 - mu) * g + mu * m)
        assert np.allclose(weight.detach().numpy(), w, atol=1e-5)


def test_the_momentum_of_muon_rises_to_its_end() -> None:
    """After 333 steps μ is 0.95 and stays: m of a gradient that is 1 at first and then 0 decays by it."""
    weight = torch.nn.Parameter(torch.zeros(2, 2, dtype=torch.float64))
    muon, expected = Muon([weight], lr=1e-9), 0.0
    for step in range(1, 341):
        weight.grad = torch.full((2, 2), float(step > 330), dtype=torch.float64)
        muon.step()
        mu = min(0.95, 0.85 + 3e-4 * step)
        expected = mu * expected + (1 - mu) * float(step > 330)
    assert float(muon.state[weight]["momentum_buffer"][0, 0]) == pytest.approx(expected, rel=1e-6)


def test_rates_and_memories_of_the_two_optimizers() -> None:
    module = torch.nn.ModuleDict({"body": torch.nn.Linear(3, 4), "head": torch.nn.Linear(4, 5), "one": torch.nn.Linear(4, 1)})
    muon, adam = optimizers(module, TrainingOptions(steps=1, muon_lr=0.5, adam_lr=0.25, beta2=0.7))
    assert [group["lr"] for group in muon.param_groups] == [0.5]
    assert [(group["lr"], group["betas"]) for group in adam.param_groups] == [(0.25, (0.9, 0.7))]
    assert [id(weight) for weight in muon.param_groups[0]["params"]] == [id(module["body"].weight)]  # no head, no single row


def test_matrices_are_shared_out_by_their_cost() -> None:
    assert owners([5, 4, 3, 3], 2) == [0, 1, 1, 0] and owners([1, 1, 8], 2) == [1, 1, 0]


# ---- clipping ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0.01, 1.0, 50.0])
def test_gradients_are_clipped_as_by_torch(size: float) -> None:
    ours, theirs = (torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)) for _ in range(2))
    for number, (one, other) in enumerate(zip(ours.parameters(), theirs.parameters(), strict=True)):
        one.grad = size * torch.randn(one.shape, generator=torch.Generator().manual_seed(number))
        other.grad = one.grad.clone()
    norm = clip_gradients(ours, 1.5)
    assert norm == pytest.approx(float(torch.nn.utils.clip_grad_norm_(theirs.parameters(), 1.5)), rel=1e-6)
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert one.grad is not None and other.grad is not None and torch.allclose(one.grad, other.grad, rtol=1e-6)
    after = math.sqrt(sum(float(weight.grad.square().sum()) for weight in ours.parameters() if weight.grad is not None))
    assert after == pytest.approx(min(norm, 1.5), rel=1e-5)


# ---- the loss of a batch -----------------------------------------------------------------------------------------------


class Watching(Objective):
    """Nats that are Σ of the squared weights times the row's number of tokens; keeps what it is given."""

    def __init__(self, weight: Tensor):
        super().__init__()
        self.weight = weight
        self.batches: list[Tensor] = []
        self.labels: list[Tensor | None] = []
        self.draws: list[Tensor] = []
        self.progress: list[float] = []
        self.learned = 0

    def forward(self, denoiser: Denoiser, x: Tensor, generator: Any = None) -> Tensor:
        self.batches.append(x)
        self.labels.append(getattr(denoiser, "label", None))
        self.draws.append(generator.uniform((len(x),)))
        return self.weight.square().sum() * (x != PAD).sum(1)

    def set_progress(self, progress: float) -> None:
        self.progress.append(progress)

    def after_step(self) -> None:
        self.learned += 1


def watched(data: Any = TOKENS, model: Model | None = None, **options: Any) -> tuple[TrainingRun, Watching]:
    model = model or nano()
    weight = model.network.head.bias
    with torch.no_grad():
        weight.copy_(torch.linspace(-1, 1, len(weight)))
    objective = Watching(weight)
    return run_of(model, data, objective=objective, **options), objective


def test_the_gradient_is_of_the_loss_of_a_token() -> None:
    """Σ of the rows' nats over the tokens of the batch, padding not counted: here Σw² whatever the texts, with gradient 2w."""
    rows = torch.full((40, 16), PAD)
    for i, row in enumerate(rows):
        row[: 3 + i % 7] = i % 5
    for data, accumulate in ((TOKENS, None), (rows, None), (rows, 2)):
        run, objective = watched(data, nano("flexmdm") if data is rows else None, max_grad_norm=1e9, accumulate=accumulate)
        before = objective.weight.detach().clone()
        assert run.step() == pytest.approx(float(before.square().sum()), rel=1e-6)
        assert objective.weight.grad is not None and torch.allclose(objective.weight.grad, 2 * before, rtol=1e-5)
        assert run.grad_norm == pytest.approx(float(2 * before.norm()), rel=1e-5)
        assert run.tokens == sum(int((x != PAD).sum()) for x in objective.batches)
        run.step()  # and gradients do not add up from step to step
        assert torch.allclose(objective.weight.grad, 2 * (before + (objective.weight - before)), rtol=0.1, atol=0.1)
        assert run.grad_norm < 1.5 * float(2 * before.norm())


def test_a_batch_is_read_in_the_parts_that_are_asked_for() -> None:
    for options, sizes in (({}, [8]), ({"accumulate": 3}, [3, 3, 2]), ({"device_batch": 5}, [5, 3])):
        run, objective = watched(batch=8, **options)
        run.step()
        assert [len(x) for x in objective.batches] == sizes
        assert torch.equal(torch.cat(run.parts()), torch.arange(8))


def test_each_text_once_in_an_epoch_and_other_noise_in_every_step() -> None:
    rows = torch.arange(12)[:, None].expand(12, 16).contiguous()
    data = torch.cat([rows, rows[:1]])  # of which 95 per cent, 12 rows, are trained on
    run, objective = watched(data, batch=4, seed=3)
    for _ in range(6):
        run.step()
    first, second = torch.cat(objective.batches)[:, 0].split(12)
    assert first.sort().values.tolist() == second.sort().values.tolist() == list(range(12))
    assert first.tolist() != second.tolist()
    for step, draws in enumerate(objective.draws):
        assert torch.equal(draws, RowGenerator(seed_of(3, step), torch.arange(4)).uniform((4,)))
    assert len(set(torch.cat(objective.draws).tolist())) == 24
    other, reordered = watched(data, batch=4, seed=4)
    for _ in range(3):
        other.step()
    assert torch.cat(reordered.batches)[:, 0].tolist() != first.tolist()


def test_the_curriculum_follows_the_run_where_it_is_asked_for() -> None:
    run, objective = watched(steps=4)
    plain, still = watched(steps=4, curriculum=False)
    for _ in range(4):
        run.step()
        plain.step()
    assert objective.progress == [0, 0.25, 0.5, 0.75] and still.progress == [1.0] * 4


def test_rates_follow_the_shape() -> None:
    run, _ = watched(steps=4, warmup=1e-3)
    assert run.optimizers
    for left in (1.0, 0.75, 0.5, 0.25):
        for optimizer in run.optimizers:
            assert [group["lr"] / group["initial_lr"] for group in optimizer.param_groups] == pytest.approx([left])
        run.step()


# ---- steps that are left out -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_a_step_that_is_not_a_number_changes_nothing(what: str) -> None:
    run, objective = watched(ema_decay=0.5, max_skipped_steps=2)
    run.step()
    before, average, learned = weights_of(run), {k: v.clone() for k, v in run.average.weights.items()}, objective.learned  # pyright: ignore
    good = objective.forward

    def bad(denoiser: Denoiser, x: Tensor, generator: Any = None) -> Tensor:
        nats = good(denoiser, x, generator)
        return nats * math.nan if what == "loss" else nats + (objective.weight - objective.weight.detach()).sum().sqrt() * 0

    objective.forward = bad  # pyright: ignore
    for step in range(2):
        run.step()
        assert run.bad == step + 1
    assert run.done == 3 and objective.learned == learned == 1
    assert all(torch.equal(weight, before[name]) for name, weight in run.learned.named_parameters())
    assert all(torch.equal(weight, average[name]) for name, weight in run.average.weights.items())  # pyright: ignore
    with pytest.raises(DivergedError, match=f"the loss became {'nan' if what == 'loss' else '[0-9]'}"):
        run.step()
    objective.forward = good  # pyright: ignore
    run.bad = 2
    run.step()
    assert run.bad == 0 and objective.learned == 2
    assert not all(torch.equal(weight, before[name]) for name, weight in run.learned.named_parameters())


# ---- averaged weights --------------------------------------------------------------------------------------------------


def test_the_average_of_a_run_is_what_is_evaluated_saved_and_left(tmp_path: Path) -> None:
    """ŵ ← dŵ + (1 − d)w with d = min(0.8, (1 + n)/(10 + n)); the first step's weights are where it begins."""
    run = run_of(out=tmp_path, steps=5, eval_every=2, ema_decay=0.8, muon_lr=0.1, adam_lr=0.05)
    wanted: dict[str, Tensor] = {}
    step = run.step

    def stepped() -> float:
        nats = step()
        decay = min(0.8, run.done / (9 + run.done)) if wanted else 0.0
        for name, weight in run.learned.named_parameters():
            wanted[name] = decay * wanted.get(name, 0.0) + (1 - decay) * weight.detach().double()
        return nats

    run.step = stepped
    live: list[dict[str, Tensor]] = []

    class Evaluated(Callback):
        def on_evaluation(self, report: Any) -> None:
            live.append(weights_of(run))

    report = run.run([Evaluated()])
    averaged = {name: weight.detach().clone() for name, weight in run.model.network.named_parameters()}
    assert all(torch.allclose(weight.double(), wanted[f"network.{name}"], atol=1e-6) for name, weight in averaged.items())
    assert any(not torch.allclose(live[-1][f"network.{name}"], weight, atol=1e-3) for name, weight in averaged.items())
    saved = load_file(tmp_path / "model.safetensors")
    assert all(torch.equal(saved[f"network.{name}"], weight) for name, weight in averaged.items())
    found = bits_per_char(run.model, run.valid_texts, 4, 2, 0)  # of the averaged weights, which the model has now
    assert report.bits == pytest.approx(found.bits, rel=1e-6)
    run.model.network.load_state_dict(
        {name.removeprefix("network."): weight for name, weight in live[-1].items()}, strict=False
    )
    assert abs(bits_per_char(run.model, run.valid_texts, 4, 2, 0).bits - report.bits) > 1e-4


# ---- what is reported --------------------------------------------------------------------------------------------------


def test_the_loss_is_logged_in_bits_of_a_character() -> None:
    codec = Bpe.train([TEXT], 300)
    tokens = torch.from_numpy(codec.encode(TEXT))
    model = Model.build("mdlm", codec, length=16, width=16, depth=1, heads=2)
    run = run_of(model, tokens, steps=3)
    reports: list[StepReport] = []
    nats: list[float] = []
    step = run.step
    run.step = lambda: nats.append(step()) or nats[-1]

    class Kept(Callback):
        def on_step(self, report: StepReport) -> None:
            reports.append(report)

    run.run([Kept()])
    each = len(codec.decode(tokens[: len(tokens)])) / len(tokens)
    assert each > 1.5 and run.train_texts.characters == pytest.approx(each, rel=1e-6)
    bits = [value / math.log(2) / each for value in nats]
    assert [report.loss_bits for report in reports] == pytest.approx(bits, rel=1e-6)
    smooth = bits[0]
    for value, report in zip(bits, reports, strict=True):
        smooth = value if report.step == 1 else 0.95 * smooth + 0.05 * value
        assert report.smooth_bits == pytest.approx(smooth, rel=1e-6)


# ---- labels ------------------------------------------------------------------------------------------------------------


def test_a_tenth_of_the_labels_is_kept_from_the_network() -> None:
    model = nano(labels=("a", "b", "c"))
    objective = Watching(model.network.head.bias)
    loss = BatchLoss(model, objective)
    label = torch.arange(4000) % 3
    loss(torch.zeros(4000, 16, dtype=torch.long), label, RowGenerator(0, torch.arange(4000)))
    (given,) = objective.labels
    assert given is not None
    dropped = given == 3  # the number of labels stands for none
    assert torch.equal(given[~dropped], label[~dropped])
    assert abs(float(dropped.double().mean()) - 0.1) < 4 * math.sqrt(0.09 / 4000)
    for kind in range(3):
        assert abs(float(dropped[label == kind].double().mean()) - 0.1) < 4 * math.sqrt(0.09 / 1333)
    loss(torch.zeros(4000, 16, dtype=torch.long), None, RowGenerator(0, torch.arange(4000)))
    assert objective.labels[1] is None


# ---- what is held out --------------------------------------------------------------------------------------------------


def test_what_is_trained_on_and_what_is_held_out() -> None:
    model = nano()
    train, valid = load_datasets(torch.arange(1000) % 27, model)
    assert (len(train.tokens), len(valid.tokens)) == (950, 50)  # pyright: ignore
    long = torch.zeros(3_000_000, dtype=torch.uint8)
    train, valid = load_datasets(long, model)
    assert (len(train.tokens), len(valid.tokens)) == (2_900_000, 100_000)  # pyright: ignore
    source = Corpus("three", {"train": ["a" * 60], "valid": ["b" * 60], "test": ["c" * 60]}, "held out")
    train, valid = load_datasets(source, model)
    assert train.windows().unique().tolist() == [0] and valid.windows().unique().tolist() == [1]
    source = replace(source, documents={name: source.documents[name] for name in ("train", "test")})
    assert load_datasets(source, model)[1].windows().unique().tolist() == [2]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("UNNOISE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
    yield


def test_the_notes_of_a_run(tmp_path: Path) -> None:
    report = run_of(out=tmp_path, steps=2).run()
    notes = json.loads((tmp_path / "config.json").read_text())["notes"]
    assert notes["steps"] == 2 and notes["valid_bits_per_char"] == report.bits == report.curve[-1][1]
