"""The choices of the method table: schedule and sampling grid, training objective, learning rate of the process."""

import math
from typing import Any

import pytest
import torch

import unnoise
from unnoise.method_table import Method
from unnoise.objective import Elbo, Hybrid
from unnoise.process import Masked
from unnoise.sampler.sampler_base import GridSampler
from unnoise.training.optim import optimizers
from unnoise.training.training_options import TrainingOptions

COSINE = [1 - math.cos(math.pi / 2 * i / 8) for i in range(9)]  # share of tokens that is unmasked after step i of 8
LINEAR = [i / 8 for i in range(9)]
UNMASKED = {
    "md4": COSINE,
    "md4:schedule=cosine": COSINE,
    "md4:schedule=poly3": [1 - (1 - i / 8) ** 3 for i in range(9)],
    "md4:offset=1e-4": COSINE,
    "genmd4": COSINE,
    "mdlm": LINEAR,
    "d3pm-absorb": LINEAR,
}


def sampler_of(method: Method, steps: int = 8) -> GridSampler:
    sampler = method.sampler.with_nfe(steps)
    assert isinstance(sampler, GridSampler)
    return sampler


@pytest.mark.parametrize("name", UNMASKED)
def test_each_step_unmasks_the_tokens_of_the_paper(name: str) -> None:
    """1 − (1 − α_s)/(1 − α_1) of the method's schedule at the times of its sampler, once, not the cosine of a cosine."""
    method = unnoise.method(name)
    process = method.process(27)
    assert isinstance(process, Masked)
    times = torch.tensor([*sampler_of(method).times(), 0.0], dtype=torch.float64)
    noise = process.schedule.noise(times)
    noise = noise[:, 0] if noise.dim() == 2 else noise
    shares = 1 - noise / noise[0]
    assert shares.tolist() == pytest.approx(UNMASKED[name], abs=2e-3)


@pytest.mark.parametrize("name", ["md4", "md4:schedule=cosine"])
def test_md4_unmasks_few_tokens_first_as_its_figure_shows(name: str) -> None:
    """8 steps of 256 positions: 5 15 24 32 39 44 48 50 tokens, counted in samples."""
    method = unnoise.method(name)
    process = method.process(3)
    even = math.log(1 / 3)

    def denoiser(x_t: torch.Tensor, t: torch.Tensor, where: torch.Tensor | None = None) -> unnoise.MeanPrediction:
        shape = x_t.shape if where is None else (int(where.sum()),)
        return unnoise.MeanPrediction(torch.full((*shape, 3), even))

    rows = 200
    states = [
        frame.x
        for frame in unnoise.sample_frames(process, denoiser, batch=rows, length=256, sampler=sampler_of(method), seed=0)
    ]
    masked = torch.tensor([float((x == process.mask).sum()) / rows for x in states])
    masked = masked if len(masked) == 9 else torch.cat([torch.tensor([256.0]), masked])
    assert [round(count) for count in (-masked.diff()).tolist()] == pytest.approx([5, 15, 24, 32, 39, 44, 48, 50], abs=1)


def test_d3pm_with_uniform_noise_trains_its_bound() -> None:
    """Train the bound by default and the hybrid loss if it is chosen, with every value of `loss`."""
    plain, multinomial = unnoise.method("d3pm-uniform"), unnoise.method("multinomial")
    process = plain.process(4)
    assert type(plain.objective(process)) is Elbo and plain.fast_objective is None
    x = torch.tensor([[0, 1, 2, 3], [3, 3, 0, 1]])

    def denoiser(x_t: torch.Tensor, t: torch.Tensor, where: torch.Tensor | None = None) -> unnoise.MeanPrediction:
        logits = torch.sin(torch.arange(16.0, dtype=torch.float64).view(4, 4))[x_t] + t[:, None, None]
        return unnoise.MeanPrediction(torch.log_softmax(logits if where is None else logits[where], -1))

    for a, b in ((plain.objective, multinomial.objective), (plain.bound, multinomial.bound)):
        nats = [make(process)(denoiser, x, torch.Generator().manual_seed(0)) for make in (a, b)]
        assert torch.equal(*nats)
    hybrid = unnoise.method("d3pm-uniform:hybrid=0.01")
    objective = hybrid.objective(process)
    assert isinstance(objective, Hybrid) and objective.weight == 0.01 and hybrid.fast_objective is None


def process_rates(optimizer: str, **options: Any) -> dict[str, float]:
    """Return the learning rate of each parameter of genmd4's process for a choice of `process_lr` and `optimizer`."""
    module = torch.nn.ModuleDict({"network": torch.nn.Linear(3, 3), "objective": unnoise.PerToken(5)})
    found = {id(weight): name for name, weight in module.named_parameters()}
    made = optimizers(module, TrainingOptions(optimizer=optimizer, **options))  # type: ignore[arg-type]
    rates = {found[id(w)]: group["lr"] for one in made for group in one.param_groups for w in group["params"]}
    assert len(rates) == len(found)
    return rates


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_the_process_has_its_own_learning_rate_with_each_optimizer(optimizer: str) -> None:
    other = {"adam_lr": 0.002, "lr": 0.002}
    rates = process_rates(optimizer, process_lr=0.3, **other)
    assert rates["objective.theta"] == 0.3 and rates["network.bias"] == 0.002
    assert process_rates(optimizer, **other)["objective.theta"] == 0.002


def exponents_after(steps: int, **options: Any) -> torch.Tensor:
    torch.manual_seed(0)
    model = unnoise.Model.build("genmd4", codec=unnoise.codec("text8"), length=16, size="nano")
    text = "the cat sat on the mat and the dog ran to the hat " * 40
    unnoise.train(model, text, steps=steps, batch=4, loss="paper", eval_windows=4, warmup=0.0, cooldown=0.0, **options)
    schedule = model.process.schedule
    assert isinstance(schedule, unnoise.PerToken)
    return schedule.exponents().detach()


def test_genmd4_learns_its_exponents_by_default() -> None:
    """Adam moves a parameter by about one learning rate a step: 12 steps reach far beyond the network's rate."""
    moved = (exponents_after(12) - 1).abs().max()
    still = (exponents_after(12, process_lr=1e-5) - 1).abs().max()
    assert moved > 0.05 and still < 1e-3
