"""Optimizer features of published runs: AdamW and its groups, learning rate schedules, dropout."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import unnoise
from unnoise.network.layers import Dropout
from unnoise.rng import RowGenerator
from unnoise.training.optim import adamw_groups, learning_rate_factor, optimizers
from unnoise.training.trainer import TrainingRun
from unnoise.training.training_options import TrainingOptions

TOKENS = torch.randint(27, (4000,), generator=torch.Generator().manual_seed(0))


def run_of(method: str = "mdlm", out: Path | None = None, **options: Any) -> TrainingRun:
    model = unnoise.Model.build(method, "text8", length=16, width=16, depth=2, heads=2)
    chosen = {"steps": 6, "loss": "fast", "batch": 4, "eval_windows": 4, "optimizer": "adamw", **options}
    return TrainingRun(model, TOKENS, TrainingOptions(**chosen), out)


# ---- AdamW ------------------------------------------------------------------------------------------------------------


def test_adamw_is_torchs_on_the_same_gradients() -> None:
    options = TrainingOptions(steps=3, optimizer="adamw", lr=0.01, beta2=0.98, weight_decay=0.1, weight_decay_on="all")
    ours, theirs = (torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)) for _ in range(2))
    theirs.load_state_dict(ours.state_dict())
    (mine,) = optimizers(ours, options)
    reference = torch.optim.AdamW(theirs.parameters(), lr=0.01, betas=(0.9, 0.98), weight_decay=0.1)
    for step in range(3):
        for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            one.grad = torch.full_like(one, math.sin(step)) * torch.arange(one.numel()).view(one.shape)
            other.grad = one.grad.clone()
        mine.step()
        reference.step()
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.allclose(one, other, rtol=1e-6, atol=1e-7)
    assert not torch.allclose(ours[0].weight, torch.zeros(4, 3))


def test_what_decays_and_at_which_rate() -> None:
    run = run_of("gaussian:learned=true", lr=0.1, process_lr=0.5, weight_decay=0.2)
    names = {id(weight): name for name, weight in run.learned.named_parameters()}
    every_group = [group for optimizer in run.optimizers for group in optimizer.param_groups]
    held = [{names[id(weight)] for weight in group["params"]} for group in every_group]
    assert [(group["initial_lr"], group["weight_decay"]) for group in every_group] == [
        (0.1, 0.2),
        (0.1, 0),
        (0.5, 0),
    ]
    decayed, kept, learned_by_process = held
    assert {"network.head.weight", "network.blocks.0.up.weight", "network.blocks.1.conv.weight"} <= decayed
    assert {"network.head.bias", "network.embed.weight", "network.time_embed.0.bias"} <= kept
    assert "objective.process.embedding" in learned_by_process and not any("network" in name for name in learned_by_process)
    assert set().union(*held) == set(names.values()) and sum(map(len, held)) == len(names)
    everything = adamw_groups(run.learned, TrainingOptions(weight_decay=0.2, weight_decay_on="all"))
    assert [len(group["params"]) for groups in everything for group in groups] == [
        len(decayed) + len(kept),
        len(learned_by_process),
    ]
    assert (
        adamw_groups(torch.nn.ReLU(), TrainingOptions())
        == []
        == optimizers(torch.nn.ReLU(), TrainingOptions(optimizer="adamw"))
    )


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_run_with_adamw_resumes_to_the_same_bits(dropout: float, tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "dropout": dropout,
        "weight_decay": 0.1,
        "lr_schedule": "cosine",
        "warmup_steps": 2,
        "ema_decay": 0.5,
    }
    run_of(out=tmp_path / "whole", **options).run()
    first = run_of(out=tmp_path / "parts", **options)
    first.run(stop=lambda: first.done >= 3)
    second = run_of(out=tmp_path / "parts", **options)
    assert second.resume() and second.done == 3
    second.run()
    assert (tmp_path / "whole" / "model.safetensors").read_bytes() == (tmp_path / "parts" / "model.safetensors").read_bytes()
    with pytest.raises(ValueError, match=r"has optimizer adamw, not muon"):
        run_of(out=tmp_path / "parts", **{**options, "optimizer": "muon", "weight_decay": 0.0}).resume()


# ---- learning rates ---------------------------------------------------------------------------------------------------


def rates(steps: list[int], total: int = 1000, **options: Any) -> list[float]:
    chosen = TrainingOptions(steps=total, **options)
    return [learning_rate_factor(step / total, chosen) for step in steps]


def test_shapes_of_the_learning_rate() -> None:
    """As the papers' code has them, but that step i counts as i + 1 in the warm-up."""
    w, total = 100, 1000
    plaid = rates([0, 49, 99, 100, 550, 1000], warmup_steps=w, cooldown=1 - w / total)
    assert plaid == pytest.approx([0.01, 0.5, 1, 1, 0.5, 0])
    md4 = rates([99, 100, 325, 550, 775, 1000], warmup_steps=w, cooldown=1 - w / total, lr_schedule="cosine")
    assert md4 == pytest.approx([1, 1, *(0.5 * (1 + math.cos(math.pi * part)) for part in (0.25, 0.5, 0.75)), 0])
    d3pm = rates([9, 99, 100, 400, 1000], warmup_steps=w, lr_schedule="inverse-sqrt")
    assert d3pm == pytest.approx([0.1, 1, 1, 0.5, math.sqrt(0.1)])
    mdlm = rates([0, 99, 500, 999], warmup_steps=w, lr_schedule="constant")
    assert mdlm == pytest.approx([0.01, 1, 1, 1])
    epochs = 50  # × 0.99 each
    multinomial = rates([0, 20, 500, 1000], warmup_steps=1, lr_schedule="exponential", lr_final=0.99**epochs)
    assert multinomial == pytest.approx([1, 0.99, 0.99**25, 0.99**50])
    assert rates([0, 10, 500], warmup=0.02) == pytest.approx([0.05, 0.55 * 0.99, 0.5])  # the default


def test_shares_and_steps_of_a_warm_up() -> None:
    assert rates([400], warmup=0.1, lr_schedule="inverse-sqrt") == pytest.approx([0.5])
    with pytest.raises(ValueError, match="warmup_steps needs a run counted in steps"):
        run_of(steps=None, minutes=1.0, warmup_steps=5)
    with pytest.raises(ValueError, match=r"weight_decay is for the optimizer adamw, found 0\.1 with muon"):
        run_of(optimizer="muon", weight_decay=0.1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"optimizer": "sgd"}, "optimizer must be muon or adamw, found 'sgd'"),
        (
            {"lr_schedule": "square"},
            "lr_schedule must be linear, cosine, exponential, inverse-sqrt or constant, found 'square'",
        ),
        ({"weight_decay_on": "biases"}, "weight_decay_on must be matrices or all"),
        ({"weight_decay": -1.0}, "weight_decay must be ≥ 0"),
        ({"dropout": 1.0}, r"dropout must lie in \[0, 1\)"),
        ({"beta2": 1.0}, r"beta2 must lie in \[0, 1\)"),
        ({"lr_final": 0.0}, r"lr_final must lie in \(0, 1\]"),
        ({"lr": 0.0}, "lr must be > 0"),
        ({"process_lr": -1.0}, "process_lr must be > 0"),
        ({"warmup_steps": 0}, "warmup_steps must be ≥ 1"),
    ],
)
def test_mistakes(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        TrainingOptions(steps=1, **options)


# ---- dropout ----------------------------------------------------------------------------------------------------------


def test_what_is_dropped_belongs_to_the_row() -> None:
    x = torch.ones(6, 9, 10)
    whole = Dropout(0.25, RowGenerator(3, torch.arange(6)).next_keys())
    for rows in torch.arange(6).split(4):
        part = Dropout(0.25, RowGenerator(3, rows, 6).next_keys())
        assert torch.equal(part(x[rows], 5), whole(x, 5)[rows])
    assert torch.equal(whole(x[:, :4], 5), whole(x, 5)[:, :4])  # padding at the end changes nothing before it
    generator = RowGenerator(3, torch.arange(6))
    assert not torch.equal(generator.next_keys(), generator.next_keys()) and not torch.equal(whole(x, 4), whole(x, 5))


@pytest.mark.parametrize("rate", [0.02, 0.1, 0.5])
def test_a_share_is_dropped_and_the_mean_stays(rate: float) -> None:
    keys = RowGenerator(0, torch.arange(64)).next_keys()
    dropped = Dropout(rate, keys)(torch.ones(64, 32, 30), 0)
    zero = (dropped == 0).double()
    deviation = math.sqrt(rate * (1 - rate) / zero.numel())
    assert abs(float(zero.mean()) - rate) < 4 * deviation
    assert dropped.unique().tolist() == pytest.approx([0, 1 / (1 - rate)])
    assert abs(float(dropped.double().mean()) - 1) < 4 * deviation / (1 - rate)
    for axis in ((0, 1), (0, 2), (1, 2)):  # of every feature, position and row alike
        share = zero.mean(axis)
        count = zero.numel() / share.numel()
        assert float((share - rate).abs().max()) < 5.5 * math.sqrt(rate * (1 - rate) / count)
    neighbours = torch.corrcoef(torch.stack([zero[..., :-1].flatten(), zero[..., 1:].flatten()]))[0, 1]
    assert abs(float(neighbours)) < 0.02


@pytest.mark.parametrize(
    "method", ["mdlm", "genmd4", "sedd-absorb", "multinomial", "flexmdm", "gaussian:self_condition=true", "bfn", "ar"]
)
def test_dropout_is_in_training_alone(method: str) -> None:
    run = run_of(method, dropout=0.4, lr=0.01, loss="paper")
    found: list[Any] = []
    run.model.network.register_forward_pre_hook(lambda _, inputs, words: found.append(words.get("dropout")), with_kwargs=True)
    run.evaluate()
    assert found and not any(found)
    found.clear()
    run.step()
    assert found and all(dropout.rate == 0.4 and len(dropout.keys) == 4 for dropout in found)
    assert len({tuple(dropout.keys.tolist()) for dropout in found}) == len(found)  # another draw at each call


def test_the_network_drops_in_each_branch() -> None:
    """Drop features of a block's output, never of the residual stream."""
    network = run_of().model.network
    torch.manual_seed(0)
    for weight in network.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    x, keys = TOKENS[:32].view(2, 16), RowGenerator(0, torch.arange(2)).next_keys()
    plain, dropped, again = (network(x, dropout=dropout) for dropout in (None, Dropout(0.5, keys), Dropout(0.5, keys)))
    assert torch.equal(dropped, again) and not torch.allclose(plain, dropped, rtol=0.1)
    assert torch.equal(network(x[1:], dropout=Dropout(0.5, keys[1:])), dropped[1:])
    nothing = network(x, dropout=Dropout(1 - 2**-16, keys))
    for name, weight in network.named_parameters():
        if name.endswith(("attention.out.weight", "down.weight")):
            torch.nn.init.zeros_(weight)
    assert torch.equal(network(x), nothing)


def test_a_network_of_ones_own_must_take_dropout() -> None:
    class Table(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.config: dict[str, Any] = {}
            self.table = torch.nn.Embedding(28, 27)

        def forward(self, x: Tensor, t: Tensor | None = None, where: Tensor | None = None) -> Tensor:
            return self.table(x)

    model = unnoise.Model.build("mdlm", "text8", length=16, network=Table())
    with pytest.raises(ValueError, match="needs a network whose forward takes 'dropout'"):
        unnoise.train(model, TOKENS, steps=1, batch=2, eval_windows=2, dropout=0.1)
