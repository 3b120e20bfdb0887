"""Several processes train like one: the same texts and noise to the last bit, and the same losses up to rounding."""

import json
import os
import random
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.multiprocessing.spawn import start_processes

import forked
import unnoise
from unnoise import distributed
from unnoise.cli.workers import free_port
from unnoise.rng import RowGenerator, seed_of
from unnoise.training.checkpointing import collect_state
from unnoise.training.optim import orthogonal, orthogonal_each, owners
from unnoise.training.parallel import local, whole
from unnoise.training.trainer import TrainingRun
from unnoise.training.training_options import TrainingOptions

TEXT = "the cat sat on the mat while a dog barked at the moon and seven birds sang in the old tree. " * 40
METHODS = {"mdlm": "fast", "genmd4": "paper", "sedd-uniform": "paper", "gaussian:learned=true": "paper"}
STEPS = 20


def run_of(method: str, loss: str, **options: Any) -> TrainingRun:
    model = unnoise.Model.build(method, codec="text8", length=16, width=16, depth=2, heads=2)
    tokens = torch.from_numpy(unnoise.codec("text8").encode(TEXT))
    return TrainingRun(model, tokens, TrainingOptions(**{"steps": STEPS, "eval_windows": 80, "loss": loss, **options}))


def results(options: dict[str, Any], methods: int = len(METHODS)) -> dict[str, Any]:
    """Train the first methods; return losses, held-out bits, the gradient of the last step, and the bytes in memory."""
    found = {}
    for method, loss in list(METHODS.items())[:methods]:
        run = run_of(method, loss, **options)
        losses = [run.step() for _ in range(STEPS)]
        gradients = {name: weight.grad for name, weight in run.learned.named_parameters() if weight.grad is not None}
        gradient = torch.cat([one.flatten() for one in whole(gradients).values()])
        kept = [local(value).nbytes for name, value in collect_state(run).items() if name.startswith(("weight", "moment"))]
        found[method] = {
            "losses": losses,
            "bits": run.evaluate(),
            "gradient": gradient,
            "tokens": run.tokens,
            "bytes": sum(kept),
        }
    return found


def worker(number: int, world: int, port: int, folder: str, options: dict[str, Any], methods: int) -> None:
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(number), "WORLD_SIZE": str(world)}
    with distributed.process_group(torch.device("cpu")):
        assert (distributed.rank(), distributed.world()) == (number, world)
        assert torch.equal(distributed.gathered(distributed.rank_rows(11)), torch.arange(11))
        matrices = [torch.randn(n, m, generator=torch.Generator().manual_seed(n)) for n, m in ((4, 6), (8, 3), (5, 5))]
        alone = [orthogonal(matrix) for matrix in matrices]
        assert all(torch.allclose(one, other) for one, other in zip(orthogonal_each(matrices), alone, strict=True))
        found = results(options, methods)
        if number == 0:
            torch.save(found, Path(folder) / "found.pt")
    assert distributed.world() == 1


@pytest.fixture(scope="module")
def alone() -> dict[str, Any]:
    return results({})


@pytest.mark.parametrize(
    ("world", "methods", "options"),
    [
        (2, 4, {"accumulate": 2}),
        (2, 4, {"shard": True, "checkpoint_activations": True}),
        pytest.param(3, 1, {}, marks=pytest.mark.long),
        pytest.param(4, 3, {"device_batch": 1}, marks=pytest.mark.long),
        pytest.param(4, 3, {"shard": True}, marks=pytest.mark.long),
    ],
)
def test_any_number_of_processes_trains_alike(
    alone: dict[str, Any], world: int, methods: int, options: dict[str, Any], tmp_path: Path
) -> None:
    arguments = (world, free_port(), str(tmp_path), options, methods)
    start_processes(worker, arguments, world, start_method="forkserver")
    together = torch.load(tmp_path / "found.pt", weights_only=True)
    assert len(together) == methods
    for method, found in together.items():
        wanted = alone[method]
        assert found["losses"] == pytest.approx(wanted["losses"], rel=1e-5), method
        assert found["bits"] == pytest.approx(wanted["bits"], rel=1e-5) and found["tokens"] == wanted["tokens"]
        assert torch.allclose(found["gradient"], wanted["gradient"], rtol=1e-5, atol=1e-5 * float(wanted["gradient"].norm()))
        if options.get("shard"):  # each has its part of weights and moments
            assert found["bytes"] <= {2: 0.6, 4: 0.35}[world] * wanted["bytes"], method
        else:
            assert found["bytes"] == wanted["bytes"]


KILLS = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "kills.py"))


@pytest.mark.long
def test_killed_processes_are_resumed_by_another_number_of_them(tmp_path: Path) -> None:
    """One process of two, then the group; resumed with and without shards: the losses are those of a run undisturbed."""
    (tmp_path / "text.txt").write_text(KILLS["TEXT"])
    assert KILLS["start"](tmp_path, "undisturbed", 24, 2, False).wait() == 0
    KILLS["struck"](tmp_path, "killed", 2, 24, KILLS["WAYS"][:2], random.Random(0))
    undisturbed, killed = (KILLS["losses"](tmp_path / name) for name in ("undisturbed", "killed"))
    assert len(killed) == 24 and KILLS["apart"](undisturbed, killed) < 1e-5


def test_a_batch_in_parts_is_the_same_batch() -> None:
    """Row r's numbers, and the time that falls to it, do not depend on which rows are computed with it."""
    from unnoise.objective.times import stratified

    seed = seed_of(3, 14)
    whole, parts = RowGenerator(seed, torch.arange(6)), [RowGenerator(seed, rows, 6) for rows in torch.arange(6).split(4)]
    device = torch.device("cpu")
    assert torch.equal(stratified(6, device, whole), torch.cat([stratified(len(part.rows), device, part) for part in parts]))
    assert torch.equal(whole.uniform((6, 5)), torch.cat([part.uniform((len(part.rows), 5)) for part in parts]))
    assert float(whole.uniform(())) == float(parts[0].uniform(())) == float(parts[1].uniform(()))
    assert len({seed_of(0, 1), seed_of(1, 0), seed_of(0, 2), seed_of(0), seed_of(2**62, 1)}) == 5


def test_tasks_are_shared_out_by_their_cost() -> None:
    assert owners([5, 1, 1, 1, 1, 1], 2) == [0, 1, 1, 1, 1, 1]
    assert sorted(owners([1] * 7, 3)) == [0, 0, 0, 1, 1, 2, 2] and owners([], 2) == []


@pytest.mark.long
def test_the_command_line_trains_with_workers_and_goes_on_with_another_number_of_them(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    shape = ["--size", "nano", "--length", "16", "--eval-windows", "4", "--json", "--data", "text.txt"]

    def train(out: str, workers: int, steps: int, *more: str) -> dict[str, Any]:
        line = ["-m", "unnoise", "train", "mdlm", *shape, "--out", out, "--workers", str(workers)]
        line += ["--steps", str(steps), *more]
        done = forked.run(line, cwd=tmp_path)
        assert done.returncode == 0 and len(done.stdout.splitlines()) == 1, done.stderr
        return json.loads(done.stdout)

    assert train("two", 2, 4)["steps"] == 4
    assert train("two", 1, 6, "--resume")["steps"] == 6
    assert unnoise.load(tmp_path / "two").generate(steps=2)
    line = ["-m", "unnoise", "train", "mdlm", *shape, "--out", "three", "--workers", "2", "--batch", "1"]
    done = forked.run(line, cwd=tmp_path)
    assert done.returncode == 2 and done.stderr == "unnoise: 2 processes cannot share a batch of 1 sequences\n"
