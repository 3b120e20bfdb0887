"""Single parts of training against plain numbers: progress of a run, its log, losses that diverge."""

import json
import math
from pathlib import Path

import pytest
import torch

from unnoise import Callback, Model, registry, train
from unnoise.data.texts import Sequences, Windows
from unnoise.training.checkpointing import cut_log
from unnoise.training.trainer import TrainingRun, is_finite_loss
from unnoise.training.training_options import TrainingOptions


def run_of(**options) -> TrainingRun:
    model = Model.build("mdlm", length=8, width=16, depth=1, heads=2)
    return TrainingRun(model, torch.arange(400) % 27, TrainingOptions(batch=4, eval_windows=2, **options))


def test_minutes_have_sixty_seconds() -> None:
    run = run_of(minutes=2.0)
    for seconds, wanted in ((0.0, 0.0), (30.0, 0.25), (120.0, 1.0), (500.0, 1.0)):
        run.seconds = seconds
        assert run.progress == pytest.approx(wanted)
    run = run_of(steps=8)
    run.done, run.seconds = 2, 1000.0
    assert run.progress == 0.25


def test_a_killed_run_keeps_the_log_up_to_its_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps({"step": step}) + "\n" for step in range(1, 9)) + '{"step": 9, "lo')
    cut_log(path, 6)
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [1, 2, 3, 4, 5, 6]


def test_a_loss_that_is_finite_may_have_come_apart_too() -> None:
    assert is_finite_loss(3.0) and is_finite_loss(1e8) and is_finite_loss(-5.0)
    assert not any(map(is_finite_loss, (1.1e8, math.inf, math.nan)))


@pytest.mark.parametrize("parts", [{"accumulate": 3}, {"device_batch": 1}])
def test_the_loss_of_a_step_is_that_of_all_its_parts(parts: dict[str, int]) -> None:
    assert run_of(steps=5, **parts).step() == pytest.approx(run_of(steps=5).step(), rel=1e-6)


@pytest.mark.parametrize(("tokens", "length"), [(20, 5), (23, 5), (24, 5), (7, 5), (101, 10)])
def test_the_windows_of_an_epoch_lie_side_by_side_within_the_stream(tokens: int, length: int) -> None:
    """As many as fit wherever they begin, and every beginning that leaves room for them occurs."""
    stream = Windows(torch.arange(tokens), length)
    starts = set()
    for epoch in range(60):
        x = stream.read(torch.arange(stream.count), torch.full((stream.count,), epoch), 0).x
        assert torch.equal(x.flatten(), torch.arange(stream.count * length) + x[0, 0]) and int(x.max()) < tokens
        starts.add(int(x[0, 0]))
    assert starts == set(range(tokens - stream.count * length + 1))
    assert tokens - stream.count * length < 2 * length
    if tokens >= 2 * length:  # a window may begin at any place of another epoch's
        assert {start % length for start in starts} == set(range(length))


def test_a_place_belongs_to_the_part_that_it_lies_in() -> None:
    rows = Sequences.from_table(torch.tensor([[1, 2, -1], [3, -1, -1], [4, 5, 6]]))
    assert rows.windows().tolist() == [[1, 2, -1], [3, -1, -1], [4, 5, 6]] and rows.mean_length == 2


class Stamp(Callback):
    """Adds a file to every model that is trained."""

    def before_save(self, run: TrainingRun) -> None:
        run.model.extra_files["stamp.txt"] = str(run.done).encode()


def test_a_registered_callback_adds_files_to_every_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._parts["callback"], "stamp", f"{__name__}:Stamp")  # found by its place, as an application's
    model = Model.build("mdlm", length=8, size="nano")
    train(model, ["the cat sat on the mat"] * 20, tmp_path / "run", steps=2, batch=2, eval_windows=2)
    assert model.extra_files["stamp.txt"] == b"2" and "words.txt.gz" in model.extra_files
    assert (tmp_path / "run" / "stamp.txt").read_bytes() == b"2" and (tmp_path / "run" / "words.txt.gz").exists()
    unsaved = Model.build("mdlm", length=8, size="nano")
    train(unsaved, ["the cat sat on the mat"] * 20, steps=1, batch=2, eval_windows=2)
    assert unsaved.extra_files.keys() == {"stamp.txt", "words.txt.gz"}
