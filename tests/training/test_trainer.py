"""Training: it learns, it repeats, and being killed changes nothing."""

import json
import os
import random
import signal
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import forked
import unnoise
from unnoise import CrossEntropy, Model
from unnoise.cli.main import main
from unnoise.data import Text8
from unnoise.data.corpus import Corpus
from unnoise.method_table import methods
from unnoise.model.io import init_from
from unnoise.training import parallel as allocator
from unnoise.training.callbacks import Tracker
from unnoise.training.optim import WeightAverage, learning_rate_factor
from unnoise.training.run import prepare_run, split_stages
from unnoise.training.trainer import DivergedError, TrainingRun
from unnoise.training.training_options import RunOptions, TrainingOptions

TEXT = "the cat sat on the mat and the dog sat on the log while the rat ran round the hat " * 120
TOKENS = torch.from_numpy(Text8().encode(TEXT))


def nano(name: str = "mdlm") -> Model:
    return Model.build(name, Text8(), length=32, width=32, depth=1, heads=2)


@pytest.mark.parametrize("name", methods())
def test_every_method_learns(name: str) -> None:
    model = nano(name)
    steps = 240 if name == "csm" else 60  # a squared loss learns the bound slowly
    run = TrainingRun(model, TOKENS, TrainingOptions(steps=steps, loss="fast", batch=8, eval_windows=8))
    before = model.bits_per_char(run.valid_texts, None, 48)
    report = run.run()
    after = model.bits_per_char(run.valid_texts, None, 48)
    assert report.finished and report.steps == steps and report.tokens == steps * 8 * 32
    assert after.bits < before.bits - 0.3, (before, after)
    assert all(torch.isfinite(weight).all() for weight in model.network.parameters())


def test_texts_of_unequal_length() -> None:
    """Train on sentences of 3 and of 11 letters: padding is not counted, and samples have these lengths."""
    text = "ab. " * 300 + "abcabcabca. " * 300
    source = Corpus("sentences", {"train": [text], "valid": [text]}, "unequal")
    model = Model.build("flexmdm", source.codec("auto", segment="sentences"), length=16, width=32, depth=1, heads=2)
    report = unnoise.train(model, source, steps=120, loss="fast", batch=16, eval_windows=60)
    assert 120 * 16 * 3 < report.tokens < 120 * 16 * 11 and (report.tokens - 120 * 16 * 3) % 8 == 0
    assert report.bits < report.bits_before - 0.3
    lengths = torch.tensor([float(len(text)) for text in model.generate(n=80, steps=32)])
    assert abs(float(lengths.mean()) - 7) < 2.5


def test_the_learned_schedule_moves() -> None:
    model = nano("genmd4")
    before = model.process.schedule.theta.detach().clone()
    unnoise.train(model, TOKENS, steps=20, loss="fast", batch=8, eval_windows=4)
    assert float((model.process.schedule.theta.detach() - before).abs().max()) > 1e-3


def test_a_run_repeats() -> None:
    weights = []
    for _ in range(2):
        model = nano()
        unnoise.train(model, TOKENS, steps=5, batch=4, eval_windows=4)
        weights.append(model.weights())
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    other = nano()
    unnoise.train(other, TOKENS, steps=5, batch=4, eval_windows=4, seed=1)
    assert any(not torch.equal(weights[0][name], value) for name, value in other.weights().items())


def test_an_objective_of_ones_own() -> None:
    model = nano()
    report = unnoise.train(model, TOKENS, steps=30, batch=8, objective=CrossEntropy(model.process, start=0.2))
    assert report.bits < report.bits_before


def test_accumulation_and_averaged_weights(tmp_path: Path) -> None:
    model = nano()
    unnoise.train(model, TOKENS, steps=10, batch=4, accumulate=2, ema_decay=0.9, out=tmp_path, eval_windows=4)
    state = load_file(next(tmp_path.glob("checkpoints/step-00000010/*.safetensors")))
    saved = load_file(tmp_path / "model.safetensors")
    assert torch.equal(saved["network.head.bias"], state["average/network.head.bias"])
    assert not torch.equal(saved["network.head.bias"], state["weight/network.head.bias"])


def test_the_average_forgets_the_first_weights() -> None:
    """With a decay of 0.9999 and no warm-up, nine tenths of the average after 1,000 steps would be the first weights."""
    module = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.constant_(module.weight, 100.0)
    average = WeightAverage(module, 0.9999)
    wanted = 0.0
    for step in range(1000):
        now = float(step < 50)  # the weights move from 1 to 0
        torch.nn.init.constant_(module.weight, now)
        average.update()
        decay = min(0.9999, (1 + step) / (10 + step))
        wanted = now if step == 0 else decay * wanted + (1 - decay) * now
    assert float(average.weights["weight"]) == pytest.approx(wanted) and wanted < 1e-3
    with average.applied():
        assert module.weight.item() == pytest.approx(wanted)
    assert module.weight.item() == 0.0


def test_the_learning_rate_rises_and_falls() -> None:
    options = TrainingOptions(steps=100, warmup=0.1, cooldown=0.5)
    rates = [learning_rate_factor(i / 100, options) for i in range(101)]
    assert rates[0] < 0.1 and rates[10] == 1 and rates[50] == 1 and rates[100] == 0
    assert rates[75] == pytest.approx(0.5)


def test_how_it_is_computed_changes_no_result() -> None:
    """Parts, recomputed activations and deterministic kernels: the same to rounding; bfloat16 nearly."""
    plain = losses_of()
    for options in ({"accumulate": 3}, {"device_batch": 1}, {"checkpoint_activations": True}, {"deterministic": True}):
        assert losses_of(**options) == pytest.approx(plain, rel=1e-5), options
    low = losses_of(precision="bfloat16")
    assert low != plain and low == pytest.approx(plain, rel=0.02)


def test_a_run_leaves_the_network_and_torch_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, int]] = []

    class Glibc:
        def mallopt(self, parameter: int, value: int) -> None:
            calls.append((parameter, value))

        def malloc_trim(self, keep: int) -> None: ...

    monkeypatch.setattr(allocator, "glibc", Glibc)
    model = nano()
    for _ in range(2):
        unnoise.train(model, TOKENS, steps=2, batch=2, eval_windows=2, checkpoint_activations=True, deterministic=True)
    assert not any("forward" in vars(module) for module in model.network.modules())
    assert not torch.are_deterministic_algorithms_enabled()
    assert dict(calls) == allocator.DEFAULTS and set(allocator.KEEP.items()) < set(calls)


def test_a_run_adds_no_filter_of_warnings(tmp_path: Path) -> None:
    before = list(warnings.filters)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        options = TrainingOptions(steps=2, batch=2, eval_windows=2)
        TrainingRun(nano(), TOKENS, options, tmp_path).run()
        assert TrainingRun(nano(), TOKENS, options, tmp_path).resume()
    assert not any("torch.distributed is disabled" in str(one.message) for one in caught)
    assert warnings.filters == before and not any(one[1] and "disabled" in one[1].pattern for one in warnings.filters)


def losses_of(**options: Any) -> list[float]:
    run = TrainingRun(nano(), TOKENS, TrainingOptions(steps=6, batch=4, **options))
    return [run.step() for _ in range(6)]


def test_a_profile_and_a_tracker(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    tracker = Tracker("tensorboard", tmp_path, {"steps": 8})
    unnoise.train(nano(), TOKENS, steps=8, batch=4, out=tmp_path, eval_windows=4, profile=2, callbacks=[tracker])
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    log = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    logged = [line["grad_norm"] for line in log if "grad_norm" in line]
    assert [event.value for event in events.Scalars("grad_norm")] == pytest.approx(logged) and len(logged) == 8
    assert len(events.Scalars("valid_bits_per_char")) == 2
    assert "aten::mm" in (tmp_path / "profile.txt").read_text()
    assert json.loads((tmp_path / "profile.json").read_text())["traceEvents"]
    with pytest.raises(ValueError, match="no tracker 'paper'"):
        Tracker("paper", tmp_path, {})
    with pytest.raises(ValueError, match="--track wandb needs the package wandb"):
        Tracker("wandb", tmp_path, {})


def test_the_log_and_the_notes(tmp_path: Path) -> None:
    unnoise.train(nano(), TOKENS, steps=6, batch=4, out=tmp_path, eval_every=3, eval_windows=4)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "loss_bits" in line] == [1, 2, 3, 4, 5, 6]
    assert [line["step"] for line in lines if "stderr" in line] == [0, 3, 6]
    assert json.loads((tmp_path / "config.json").read_text())["notes"]["steps"] == 6


def test_resuming_in_the_middle_gives_the_same_bits(tmp_path: Path) -> None:
    options = TrainingOptions(steps=8, batch=4, save_every=3, eval_windows=4, ema_decay=0.5)
    whole = TrainingRun(nano(), TOKENS, options, tmp_path / "whole")
    whole.run()
    first = TrainingRun(nano(), TOKENS, options, tmp_path / "parts")
    report = first.run(stop=lambda: first.done >= 5)
    assert not report.finished and report.steps == 5
    second = TrainingRun(nano(), TOKENS, options, tmp_path / "parts")
    assert second.resume() and second.done == 5
    second.run()
    for file in ("model.safetensors",):
        assert (tmp_path / "whole" / file).read_bytes() == (tmp_path / "parts" / file).read_bytes()
    log = [json.loads(line)["step"] for line in (tmp_path / "parts" / "log.jsonl").read_text().splitlines() if "loss" in line]
    assert log == list(range(1, 9))


def test_a_loss_that_is_not_a_number_stops_the_run(tmp_path: Path) -> None:
    model = nano()
    run = TrainingRun(model, TOKENS, TrainingOptions(steps=10, batch=4, save_every=2, eval_windows=4), tmp_path)
    good = run.step

    def bad() -> float:
        if run.done == 5:
            with torch.no_grad():
                model.network.head.bias.fill_(torch.nan)
        return good()

    run.step = bad
    with pytest.raises(DivergedError, match=r"the loss became nan with a gradient of norm .* at step 9"):
        run.run()  # after three steps that were left out
    log = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in log if line.get("skipped")] == [6, 7, 8]
    assert torch.isfinite(unnoise.load(tmp_path).network.head.bias).all()  # the last good checkpoint


def test_mistakes() -> None:
    for options, words in (
        ({"steps": 1, "minutes": 1.0}, "either steps or minutes"),
        ({"steps": 0}, "steps must be ≥ 1"),
        ({"minutes": -1.0}, "minutes must be > 0"),
        ({"steps": 1, "batch": 0}, "batch must be ≥ 1"),
        ({"steps": 1, "ema_decay": 1.0}, r"ema_decay must lie in \[0, 1\)"),
        ({"steps": 1, "save_every": 0}, "save_every must be ≥ 1"),
        ({"steps": 1, "keep": 0}, "keep must be ≥ 1"),
        ({"steps": 1, "device_batch": 2, "accumulate": 2}, "either device_batch or accumulate"),
        ({"steps": 1, "precision": "float8"}, "precision must be auto, float32 or bfloat16"),
    ):
        with pytest.raises(ValueError, match=words):
            TrainingOptions(**options)
    with pytest.raises(ValueError, match="either steps or minutes"):
        unnoise.train(nano(), TOKENS)
    with pytest.raises(ValueError, match="has no option 'stpes': did you mean 'steps'"):
        unnoise.train(nano(), TOKENS, stpes=3)  # pyright: ignore[reportCallIssue]


def test_a_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    options = TrainingOptions(steps=3, batch=4, eval_windows=4)
    TrainingRun(nano(), TOKENS, options, tmp_path).run()
    path = next(tmp_path.glob("checkpoints/*/*.safetensors"))
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(ValueError, match="corrupted or truncated"):
        TrainingRun(nano(), TOKENS, options, tmp_path).resume()


def test_killed_at_any_moment_it_ends_with_the_same_bits(tmp_path: Path) -> None:
    """SIGKILL at five random moments, --resume each time: identical weights to the uninterrupted run."""
    (tmp_path / "text.txt").write_text(TEXT)
    steps = "150"
    command = ["-m", "unnoise", "train", "mdlm", "--data", str(tmp_path / "text.txt"), "--steps", steps]
    command += ["--width", "32", "--depth", "1", "--heads", "2", "--length", "32", "--batch", "4", "--save-every", "4"]
    command += ["--eval-windows", "8", "--json", "--out"]
    environment = os.environ | {"UNNOISE_CACHE": str(tmp_path / "cache")}
    assert forked.run([*command, str(tmp_path / "whole")], env=environment).returncode == 0
    chance = random.Random(0)
    states = tmp_path / "killed" / "checkpoints"
    kills = 0
    while kills < 5:
        process = forked.start([*command, str(tmp_path / "killed"), "--resume"], env=environment)
        before = set(states.glob("*/run.json"))
        while process.is_alive() and set(states.glob("*/run.json")) <= before:
            time.sleep(0.005)  # let it get past its first checkpoint, then strike at a random moment
        time.sleep(chance.uniform(0, 0.1))
        if process.is_alive():
            process.kill()
            kills += 1
        process.join()
        if process.exitcode != -signal.SIGKILL:
            assert process.exitcode == 0
            break
    assert kills >= 3
    assert forked.run([*command, str(tmp_path / "killed"), "--resume"], env=environment).returncode == 0
    whole, killed = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "killed"))
    assert whole.keys() == killed.keys()
    assert all(torch.equal(whole[name], killed[name]) for name in whole)


@pytest.mark.parametrize("name", ["multinomial:importance=true,steps=20", "mdlm:importance=true", "gaussian:learned=true"])
def test_a_method_with_options_resumes_to_the_same_bits(name: str, tmp_path: Path) -> None:
    """Save the losses that an objective has recorded with the run's state."""
    options = TrainingOptions(steps=40, batch=16, eval_windows=4, loss="paper")

    def run(folder: str) -> TrainingRun:
        model = unnoise.Model.build(name, width=16, depth=1, heads=2, length=8)
        return TrainingRun(model, TOKENS, options, tmp_path / folder)

    run("whole").run()
    first = run("parts")
    first.run(stop=lambda: first.done >= 30)
    second = run("parts")
    assert second.resume()
    second.run()
    assert (tmp_path / "whole" / "model.safetensors").read_bytes() == (tmp_path / "parts" / "model.safetensors").read_bytes()
    assert unnoise.load(tmp_path / "whole").method.name == name


def test_a_model_starts_from_the_weights_of_another() -> None:
    first = Model.build("ar", "text8", length=16, width=32, depth=2, heads=2)
    unnoise.train(first, ["the cat sat on the mat and sang"] * 40, steps=30)
    model = init_from(first, "bd3lm:block=2", length=24)
    before, now = first.network.state_dict(), model.network.state_dict()
    assert before.keys() == now.keys() and model.length == 24
    for name, weight in now.items():
        if not name.endswith("conv.weight"):
            assert torch.equal(weight, before[name])
    conv, causal = now["blocks.0.conv.weight"], before["blocks.0.conv.weight"]
    assert torch.equal(conv[:5], causal[4:]) and not conv[5:].any()  # taps −4…0 stay where they were, those ahead are new
    fresh = Model.build("bd3lm:block=2", "text8", length=16, width=32, depth=2, heads=2)
    texts = ["the cat sat on the mat and sang"] * 40
    assert unnoise.train(model, texts, steps=6, loss="fast").bits < unnoise.train(fresh, texts, steps=6, loss="fast").bits
    with pytest.raises(ValueError, match="must have its codec"):
        init_from(first, "mdlm", unnoise.codec("bytes"))


def test_stages_are_runs_before_the_run() -> None:
    options = RunOptions(method="bd3lm", steps=100, stages="ar=0.4; bd3lm:block=1=0.2", width=64, codec="bytes")
    (one, first), (two, second), (last, out) = split_stages(options, Path("out"))
    assert (one.method, one.steps, one.width, one.codec, one.init) == ("ar", 40, 64, "bytes", None)
    assert (two.method, two.steps, two.width, two.codec, two.init) == ("bd3lm:block=1", 20, None, "auto", str(first))
    assert (last.method, last.steps, last.init, last.stages, out) == ("bd3lm", 40, str(second), "", Path("out"))
    assert split_stages(replace(options, stages=""), Path("out")) == [(replace(options, stages=""), Path("out"))]
    for wrong in ("ar", "ar=1", "ar=0.6;ar=0.5", "=0.5", "ar=x"):
        with pytest.raises(ValueError, match="stages are methods with fractions"):
            split_stages(replace(options, stages=wrong), Path("out"))


def test_a_run_in_stages_from_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("the cat sat on the mat and sang\n" * 60)
    line = ["train", "bd3lm:block=4", "--data", str(tmp_path / "texts.txt"), "--out", str(tmp_path / "run"), "--size", "nano"]
    line += [
        "--length",
        "32",
        "--steps",
        "8",
        "--stages",
        "ar=0.5",
        "--segment",
        "documents",
        "--codec",
        "chars",
        "--batch",
        "4",
    ]
    assert main(line) == 0
    assert unnoise.load(tmp_path / "run" / "stages" / "1-ar").method.name == "ar"
    model = unnoise.load(tmp_path / "run")
    assert model.method.name == "bd3lm:block=4" and model.whole_texts and model.notes["steps"] == 4
    assert main([*line, "--resume"]) == 0
    assert main(["train", "--resume", "--out", str(tmp_path / "run"), "--steps", "6"]) == 0
    assert unnoise.load(tmp_path / "run").notes["steps"] == 6


def test_a_folder_with_a_model_and_no_run_is_left_alone(tmp_path: Path) -> None:
    """Start no run in the folder of a converted model, or of a run whose checkpoints were deleted."""
    (tmp_path / "text.txt").write_text(TEXT)
    options = RunOptions(method="mdlm", data=str(tmp_path / "text.txt"), steps=2, size="nano", length=16, eval_windows=2)
    nano().save(tmp_path / "model")
    before = {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()}
    for resume in (False, True):
        with pytest.raises(ValueError, match="holds a model but no checkpoint to resume from: choose another --out"):
            prepare_run(options, tmp_path / "model", resume)
    assert {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()} == before
    (tmp_path / "model" / "checkpoints").mkdir()  # a run that was killed before its first checkpoint was whole
    assert prepare_run(options, tmp_path / "model", resume=True).done == 0


def test_a_run_from_a_model_has_its_length(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    source = nano()
    source.save(tmp_path / "model")
    options = {"method": source.method.name, "data": str(tmp_path / "text.txt"), "steps": 2, "init": str(tmp_path / "model")}
    assert prepare_run(RunOptions(**options), tmp_path / "run").model.length == source.length != 256
    assert prepare_run(RunOptions(**options, length=24), tmp_path / "other").model.length == 24
    assert RunOptions(method="mdlm").length == 256
