"""DDPM as a method: what a network reads and returns, models of images and of text, and the commands."""

import json
import math
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import unnoise
from unnoise import Ddpm, cosine_betas, linear_betas, sqrt_betas
from unnoise.cli.main import main
from unnoise.data import Codec, Pixels
from unnoise.training.costs import head_bytes

BETAS = [0.1, 0.35, 0.2, 0.6, 0.85]
TARGETS = ("eps", "x0", "mean")


def test_a_network_sees_the_size_of_a_value_and_each_level() -> None:
    process = Ddpm(17, BETAS)
    assert process.inputs == 12 and process.frequencies.tolist() == pytest.approx([math.pi * 16 / 2**j for j in range(5)])
    z = torch.tensor([[[0.3], [-1.7]]])
    seen = process.observe(z)
    assert torch.allclose(
        seen[0, 1],
        torch.tensor([-1.7, 1.0, *(f(-1.7 * math.pi * 2**j) for f in (math.sin, math.cos) for j in (4, 3, 2, 1, 0))]),
    )
    assert Ddpm(9, BETAS, embed="fixed", width=3).observe(torch.zeros(1, 2, 3)).tolist() == [[[0, 0, 0, 1]] * 2]


def nano(name: str = "ddpm", codec: Codec | None = None, labels: int = 0) -> unnoise.Model:
    model = unnoise.Model.build(name, codec or Pixels((2, 2), 4), length=4, width=16, depth=1, heads=2, labels=labels)
    with torch.no_grad():
        for weight in model.network.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel())))
    return model


def test_the_output_of_a_network_is_the_target() -> None:
    z, t = torch.randn(2, 4, 1), torch.tensor([0.2, 0.75])
    outputs = {}
    for target in TARGETS:
        model = nano(f"ddpm:steps=20,target={target}")
        assert isinstance(model.process, Ddpm) and model.process.embed == "values"
        outputs[target] = model.denoiser(z, t).value
        assert torch.allclose(model.network(model.process.observe(z), t), model.denoiser.vectors(z, t))
    assert torch.allclose(outputs["eps"], outputs["x0"])
    beta = linear_betas(20)[torch.tensor([3, 14])].float()
    assert torch.allclose(outputs["mean"], z + beta.sqrt()[:, None, None] * outputs["eps"])


def test_guidance_extrapolates_the_prediction() -> None:
    model, z, t = nano(labels=3), torch.randn(2, 4, 1), torch.tensor([0.2, 0.75])
    free, labelled = (model.denoiser.condition(label)(z, t).value for label in (None, 1))
    assert not torch.allclose(free, labelled)
    assert torch.allclose(model.denoiser.condition(1, 2.5)(z, t).value, free + 2.5 * (labelled - free))


def test_text_has_embeddings_and_images_have_values() -> None:
    text, image = nano(codec=unnoise.codec("chars", ["abc"])), nano()
    for model, embed, table in ((text, "fixed", sqrt_betas(1000)), (image, "values", linear_betas(1000))):
        assert isinstance(model.process, Ddpm) and model.process.embed == embed and torch.equal(model.process.betas, table)
    chosen = nano("ddpm:embed=learned,loss=elbo,schedule=cosine,width=5,steps=9,variance=beta").process
    assert isinstance(chosen, Ddpm) and (chosen.embed, chosen.width, chosen.variance) == ("learned", 5, "beta")
    assert torch.equal(chosen.betas, cosine_betas(9))


def test_symbols_that_no_text_holds_are_not_drawn() -> None:
    codec = unnoise.codec("chars", ["abcd"])
    codec.unused = [1, 2]
    drawn = nano("ddpm:steps=5", codec).generate(40, length=4, seed=0)
    assert set("".join(drawn)) == {"a", "d"}


@pytest.mark.parametrize("name", ["ddpm:steps=6", "ddpm:steps=6,embed=learned,loss=elbo,target=x0"])
def test_a_saved_model_is_the_same_model(tmp_path: Path, name: str) -> None:
    model = nano(name)
    model.save(tmp_path / "model")
    again = unnoise.load(tmp_path / "model")
    x = torch.randint(4, (6, 4), generator=torch.Generator().manual_seed(0))
    assert torch.equal(model.nats(x, 2), again.nats(x, 2))
    assert np.array_equal(model.draw(3, steps=6), again.draw(3, steps=6))


def test_the_plan_counts_the_numbers_of_a_vector_and_not_the_vocabulary() -> None:
    few, many = (head_bytes(unnoise.method("ddpm:width=8"), vocab) for vocab in (27, 50_257))
    assert few == many == head_bytes(unnoise.method("gaussian"), 8)


def test_a_method_with_a_table_of_ones_own() -> None:
    ours = replace(unnoise.method("ddpm"), image_process=lambda vocab: Ddpm(vocab, betas=BETAS, target="x0"))
    model = unnoise.Model.build(ours, Pixels((2, 2), 4), length=4, size="nano")
    assert isinstance(model.process, Ddpm) and model.process.betas.tolist() == BETAS


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ddpm:target=score", "the target of ddpm is eps or x0 or mean, found 'score'"),
        ("ddpm:schedule=quadratic", "the schedule of ddpm is auto, linear, cosine or sqrt"),
        ("ddpm:loss=fast", "the loss of ddpm is simple or elbo"),
        ("ddpm:variance=3", "the variance of ddpm is beta or posterior, found 3"),
        ("ddpm:embed=none", "the embed of ddpm is auto, values, fixed or learned, found None"),
        ("ddpm:embed=learned", "learn them with loss=elbo"),
        ("ddpm:steps=0", "a whole number of steps from 1 to 100,000, found 0"),
        ("ddpm:width=0", "a width of at least one number"),
    ],
)
def test_a_wrong_option_is_one_sentence(name: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(shlex.split(f"train {name} --data sotu --size nano --steps 1 --out {tmp_path / 'run'}")) == 2
    error = capsys.readouterr().err
    assert words in error and len(error.strip().splitlines()) == 1 and not (tmp_path / "run").exists()


@pytest.fixture
def squares(tmp_path: Path) -> Path:
    """Write a file of images of one grey each."""
    random = np.random.default_rng(0)
    arrays = {
        name: (random.integers(2, size=(count, 1, 1)) * 255 * np.ones((1, 3, 3))).astype(np.uint8)
        for name, count in (("train", 60), ("test", 12))
    }
    np.savez(tmp_path / "squares.npz", **arrays)
    return tmp_path / "squares.npz"


def test_the_commands_work_on_images(squares: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(line: str) -> str:
        assert main(shlex.split(line)) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    out = tmp_path / "run"
    run(f"train ddpm:steps=50 --data {squares} --size nano --steps 12 --batch 8 --eval-windows 4 --out {out}")
    found = json.loads(run(f"eval --model {out} --data {squares} --split test --samples 4 --json"))
    assert math.isfinite(found["bits_per_char"]) and found["bits_per_char"] > 0
    run(f"generate --model {out} --num-samples 3 --steps 8 --sampler ddpm:variance=posterior --out {tmp_path / 'drawn.png'}")
    assert (tmp_path / "drawn.png").read_bytes().startswith(b"\x89PNG")
    assert "ddpm:steps=50" in run(f"info --model {out}")
    run(f"train ddpm:steps=50 --data {squares} --size nano --steps 14 --batch 8 --eval-windows 4 --out {out} --resume")
    table = json.loads(run(f"compare ddpm:steps=20 mdlm --data {squares} --size nano --steps 2 --eval-windows 4 --json"))
    assert len(table) >= 1


def test_the_commands_work_on_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, text = tmp_path / "run", tmp_path / "text.txt"
    text.write_text("the cat sat on the mat and the dog ran to the hat " * 200)
    for line in (
        f"train ddpm:target=x0,steps=40 --data {text} --length 16 --size nano --steps 4 --eval-windows 4 --out {out}",
        f"generate --model {out} --num-samples 2 --length 16 --steps 10",
        f"score abc --model {out} --samples 2",
        f'infill "the [MASK][MASK]t" --model {out} --steps 8',
        f'noise "the cat" --model {out}',
        'noise "the cat" --method ddpm',
    ):
        code = main(shlex.split(line))
        captured = capsys.readouterr()
        assert code == 0 and captured.out, (line, captured.err)


def test_the_studio_draws_its_images(tmp_path: Path) -> None:
    pytest.importorskip("starlette")
    from starlette.testclient import TestClient

    from studio_server import client_of
    from unnoise.apps.studio import make_app

    model = nano("ddpm:steps=9", labels=3)
    model.save(tmp_path / "drawn")
    client: TestClient = client_of(make_app([tmp_path / "drawn"]))
    body = {"images": 3, "steps": 5, "seed": 3, "label": "1", "guidance_scale": 2}
    answer = client.post("/api/images", json=body)
    assert answer.status_code == 200, answer.text
    *states, cost = [json.loads(line) for line in answer.text.splitlines()]
    codec = model.codec
    assert isinstance(codec, Pixels)
    drawn = [codec.decode_image(row) for row in states[-1]["rows"]]
    assert np.array_equal(drawn, model.draw(3, steps=5, seed=3, label="1", guidance_scale=2.0))
    assert len(states) == 6 and states[-1]["t"] == 0 and cost["calls"] >= 5
