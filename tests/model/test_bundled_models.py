"""Models as they are shipped: small weights, recommended sampling options, cards, and how they are made."""

import importlib.util
import json
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from safetensors.torch import load_file, save_file

import unnoise
from unnoise.checkpoint.format import (
    CARD,
    SCALE,
    card_description,
    card_lines,
    narrowed,
    packed,
    read_config,
    read_tensors,
    widened,
)
from unnoise.cli.main import main, parse
from unnoise.evaluation.dataset import CardFacts, model_card, shaded
from unnoise.model.io import without_weights
from unnoise.model.sampling_options import SamplingOptions
from unnoise.sampler import Ancestral, Confidence

ROOT = Path(__file__).parents[2]
TEXT = "the cat sat on the mat while a dog barked at the moon and seven birds sang in the old tree " * 40


def nano(method: str = "mdlm") -> unnoise.Model:
    model = unnoise.Model.build(method, codec="text8", length=16, width=16, depth=1, heads=2)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.network.parameters():
            weight.copy_(0.3 * torch.randn(weight.shape, generator=generator))
    return model


def run(line: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = main(shlex.split(line))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


# ---- weights on the disk ------------------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.floats(-8, 4))
def test_int8_is_within_half_a_level_of_each_row(seed: int, size: float) -> None:
    w = torch.randn(5, 3, 4, generator=torch.Generator().manual_seed(seed)) * 10**size
    w[2] = 0
    weights, about = narrowed({"w": w, "v": w[0, 0]}, "int8")
    assert weights["w"].dtype == torch.int8 and weights["v"].dtype == torch.float16 and about == {"dtype": "int8"}
    again = widened(weights, about)
    scale = w.flatten(1).abs().amax(1) / 127
    assert ((again["w"] - w).flatten(1).abs() <= scale[:, None] * 0.50001).all()
    assert again["w"].dtype == torch.float32 and not again["w"][2].any()
    assert (again["v"].float() - w[0, 0]).abs().max() <= max(float(w[0, 0].abs().max()) * 2**-11, 2**-25)


@pytest.mark.parametrize(
    ("dtype", "relative", "bytes_each"), [("float16", 2**-11, 2), ("bfloat16", 2**-8, 2), ("float32", 0, 4)]
)
def test_a_round_trip_in_floating_point(dtype: str, relative: float, bytes_each: int, tmp_path: Path) -> None:
    model = nano()
    model.save(tmp_path, dtype=dtype)
    again = unnoise.load(tmp_path)
    for name, value in model.weights().items():
        found = again.weights()[name]
        assert found.dtype == torch.float32
        assert ((found - value).abs() <= relative * value.abs() + 2**-25 * bool(relative)).all(), name
    assert (
        sum(value.nbytes for value in load_file(tmp_path / "model.safetensors").values()) == bytes_each * model.num_parameters
    )


def test_the_bundled_model_is_hardly_worse_in_few_bits(tmp_path: Path) -> None:
    """Bits per character of the same text under the same noise."""
    model = unnoise.load("digits")  # whose weights lie there as float16
    pixels = unnoise.corpus("digits")
    x = model.texts(pixels, "test").windows(16)
    exact = model.nats(x)
    for dtype, most in (("float16", 0.001), ("int8", 0.01)):
        model.save(tmp_path / dtype, dtype=dtype)
        found = unnoise.load(tmp_path / dtype).nats(x)
        assert abs(float((found - exact).mean())) / (x.shape[1] * np.log(2)) < most, dtype
    sizes = [(tmp_path / dtype / "model.safetensors").stat().st_size for dtype in ("float16", "int8")]
    assert sizes[1] < 0.53 * sizes[0] < 0.53 * 2.02 * model.num_parameters


def test_int8_is_refused_unless_it_is_announced_and_has_its_scales(tmp_path: Path) -> None:
    nano().save(tmp_path, dtype="int8")
    path = tmp_path / "model.safetensors"
    about, mapped = read_tensors(path)
    tensors = {key: value.clone() for key, value in mapped.items()}  # the file is written anew below
    name = "network.head.weight"
    assert unnoise.load(tmp_path).generate(steps=2)

    def damaged(change: dict[str, Any], words: str, **said: Any) -> None:
        kept = {key: value for key, value in (tensors | change).items() if value is not None}
        path.write_bytes(packed(kept, {key: value for key, value in (about | said).items() if value is not None}))
        with pytest.raises(ValueError, match=words):
            unnoise.load(tmp_path)

    damaged({}, "whole numbers", dtype=None)
    damaged({}, "'int4', which this version of unnoise cannot read", dtype="int4")
    damaged({name + SCALE: None}, f"the weight {name} is int8 and has no scales")
    damaged({name + SCALE: torch.ones(3)}, r"and its scales \[3\]")
    damaged({name: None}, "belong to no weight")
    damaged({name: tensors[name].float()}, "has scales, so it must be int8")
    with pytest.raises(ValueError, match="scales of the weight w hold numbers that are not finite"):
        widened({"w": torch.ones(2, 2, dtype=torch.int8), "w" + SCALE: torch.tensor([1, torch.nan])}, {"dtype": "int8"})
    save_file(tensors, path)  # nothing is said about the file
    with pytest.raises(ValueError, match="whole numbers"):
        unnoise.load(tmp_path)


def test_a_precision_that_cannot_hold_the_weights(tmp_path: Path) -> None:
    model = nano()
    with torch.no_grad():
        next(model.network.parameters()).fill_(1e6)
    with pytest.raises(ValueError, match="too large for float16: such a model is not saved"):
        model.save(tmp_path, dtype="float16")
    with pytest.raises(ValueError, match="float32, float16, bfloat16 or int8, found 'int4'"):
        model.save(tmp_path, dtype="int4")
    assert not list(tmp_path.iterdir())
    model.save(tmp_path, dtype="bfloat16")
    assert unnoise.load(tmp_path)


# ---- recommended sampling options ---------------------------------------------------------------------------------------


def test_recommended_options_hold_wherever_none_is_given() -> None:
    own = {"sampler": "confidence:by=margin", "steps": 5, "temperature": 0.5, "top_p": 0.9}
    model = nano()
    plain = model.generate(2, seed=3)
    model.sampling = own  # pyright: ignore
    assert model.generate(2, seed=3) == model.generate(2, seed=3, **own) != plain  # pyright: ignore
    for call in (
        lambda **options: model.infill("the [MASK][MASK][MASK][MASK] sat", 2, **options),
        lambda **options: model.complete("the ", "", 16, 2, **options),
        lambda **options: [step.text for step in model.chain(**options)],
    ):
        assert call() == call(**own) != call(sampler="ancestral", steps=128, temperature=1.0, top_p=1.0)

    def resolved(**given: Any) -> Any:
        return model.sampling_options(given).resolve(model.method.sampler)  # pyright: ignore

    assert resolved() == Confidence(steps=5, by="margin", temperature=0.5, top_p=0.9)
    assert resolved(temperature=1.0) == Confidence(steps=5, by="margin", temperature=1.0, top_p=0.9)
    assert resolved(sampler="ancestral", steps=9) == Ancestral(steps=9, temperature=0.5, top_p=0.9)
    assert resolved(sampler="ancestral:temperature=0.7,steps=3") == Ancestral(steps=3, temperature=0.7, top_p=0.9)
    assert resolved(sampler=Ancestral(steps=7)) == Ancestral(steps=7)  # an object is given with all that it has
    assert not model.sampling_options({}).keeps_distribution(model.method.sampler)
    assert SamplingOptions().keeps_distribution(model.method.sampler)


@pytest.mark.parametrize(
    ("sampling", "words"),
    [
        ([], "a table of some of sampler, steps"),
        ({"temprature": 1}, "'temprature' cannot be recommended"),
        ({"seed": 1}, "'seed' cannot be recommended"),
        ({"steps": 0}, "steps must be a whole number from 1 to 1,000,000, found 0"),
        ({"steps": 2.5}, "steps must be a whole number"),
        ({"steps": True}, "steps must be a whole number"),
        ({"temperature": "hot"}, "temperature must be a number, found 'hot'"),
        ({"temperature": -1}, "temperature must be 0, or lie between"),
        ({"temperature": float("nan")}, "temperature must be 0, or lie between"),
        ({"top_p": 0}, r"top_p must lie in \(0, 1\]"),
        ({"sampler": "nonsense"}, "unknown sampler 'nonsense'"),
        ({"sampler": "remasking:rat=1"}, "did you mean 'rate'"),
        ({"sampler": "left-to-right"}, "mdlm cannot sample with"),
    ],
)
def test_recommended_options_that_cannot_be_used_are_one_sentence(sampling: Any, words: str, tmp_path: Path) -> None:
    model = nano()
    model.save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"sampling": sampling}))
    with pytest.raises(ValueError, match=words) as raised:
        unnoise.load(tmp_path)
    assert "config.json recommends sampling options that cannot be used" in str(raised.value)
    if sampling:
        model.sampling = sampling
        with pytest.raises(ValueError, match=words):
            model.save(tmp_path)


def test_what_a_model_recommends_is_said_and_can_be_undone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = nano()
    model.sampling = {"temperature": 0.9, "top_p": 0.95, "steps": 4}
    model.save(tmp_path / "m")
    assert unnoise.load(tmp_path / "m").sampling == {"steps": 4, "temperature": 0.9, "top_p": 0.95}
    code, out, err = run(f"generate --model {tmp_path / 'm'}", capsys)
    used, back = "steps 4, temperature 0.9, top-p 0.95", "(to sample its own distribution: --temperature 1 --top-p 1)"
    assert code == 0 and err == f"using the recommended sampling options of the model: {used} {back}\n" and "--- 2" in out
    assert run(f"generate --model {tmp_path / 'm'} --temperature 1 --top-p 1 --steps 4", capsys)[2] == ""
    assert run(f"generate --model {tmp_path / 'm'} --temperature 1 --top-p 1", capsys)[2].endswith(
        "options of the model: steps 4\n"
    )
    assert run(f"generate --model {tmp_path / 'm'} --temperature 0", capsys)[2].endswith("options of the model: steps 4\n")
    for flags, kept in (("", False), ("--temperature 1", False), ("--temperature 1 --top-p 1", True)):
        for command, key in (("generate", "keeps_distribution"), ("infill 'the [MASK] sat'", "exact")):
            code, out, err = run(f"{command} --model {tmp_path / 'm'} --json {flags}", capsys)
            assert code == 0 and json.loads(out)[key] is kept and not err
    assert "recommends steps 4, temperature 0.9, top_p 0.95" in run(f"info {tmp_path / 'm'}", capsys)[1]


def test_a_run_that_goes_on_keeps_what_was_recommended(tmp_path: Path) -> None:
    model = nano()
    model.sampling = {"temperature": 0.8}
    model.save(tmp_path)
    assert without_weights(tmp_path, read_config(tmp_path)).sampling == {"temperature": 0.8}  # what a resumed run begins with


# ---- unnoise convert ----------------------------------------------------------------------------------------------------


def test_convert(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = nano()
    model.card = "# m\n\nA small model.\n"
    model.save(tmp_path / "m")
    sampling = "sampler=remasking:rate=0.05,grid=cosine,temperature=0.9"
    code, out, _ = run(f"convert {tmp_path / 'm'} --out {tmp_path / 'small'} --dtype int8 --sampling {sampling}", capsys)
    assert (
        code == 0
        and "as int8" in out
        and "recommended sampling: sampler remasking:rate=0.05,grid=cosine, temperature 0.9" in out
    )
    small = unnoise.load(tmp_path / "small")
    assert small.sampling == {"sampler": "remasking:rate=0.05,grid=cosine", "temperature": 0.9}
    assert small.card == model.card and (tmp_path / "small" / CARD).read_text() == model.card
    line = f"convert {tmp_path / 'small'} --out {tmp_path / 'plain'} --sampling none --json"
    found = json.loads(run(line, capsys)[1])
    assert found["sampling"] == {} and found["dtype"] == "float32" and found["parameters"] == model.num_parameters
    assert not unnoise.load(tmp_path / "plain").sampling


def test_converting_changes_only_the_sampling_options_that_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = nano()
    model.sampling = {"temperature": 0.9, "top_p": 0.95, "steps": 4}
    model.save(tmp_path / "m")
    code, out, _ = run(f"convert {tmp_path / 'm'} --out {tmp_path / 'n'} --sampling top_p=1.0,steps=8 --json", capsys)
    assert code == 0 and json.loads(out)["sampling"] == {"steps": 8, "temperature": 0.9, "top_p": 1.0}


def test_mistakes_of_convert(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nano().save(tmp_path / "m")
    mistakes = {
        f"{tmp_path / 'm'}": "--out",
        f"{tmp_path / 'm'} --out {tmp_path / 'm'}": "already holds a model",
        f"{tmp_path / 'm'} --out {tmp_path / 'm' / 'config.json'}": "is a file: give a folder",
        f"{tmp_path / 'nothing'} --out {tmp_path / 'x'}": "there is no model in",
        f"{tmp_path / 'm'} --out {tmp_path / 'x'} --dtype int4": "float16, float32, int8, found 'int4'",
        f"{tmp_path / 'm'} --out {tmp_path / 'x'} --sampling hot": "some of sampler, steps, temperature, top_p as in steps=64",
        f"{tmp_path / 'm'} --out {tmp_path / 'x'} --sampling steps=many": "steps must be a whole number, found 'many'",
        f"{tmp_path / 'm'} --out {tmp_path / 'x'} --sampling top_p=2": "top_p must lie in",
    }
    for line, words in mistakes.items():
        code, out, err = run(f"convert {line}", capsys)
        assert code == 2 and words in err and err.count("\n") == 1 and not out, (line, err)
    assert not (tmp_path / "x").exists()


# ---- cards --------------------------------------------------------------------------------------------------------------


def test_every_bundled_model_has_a_card_that_ls_and_info_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    described = json.loads(run("ls --json", capsys)[1])["descriptions"]
    listed = run("ls", capsys)[1]
    for folder in (ROOT / "src" / "unnoise" / "models").iterdir():
        card = (folder / CARD).read_text(encoding="utf-8")
        assert card.startswith(f"# {folder.name}\n\n") and described[folder.name] == card_description(card) in listed
        rows = dict(line.split(": ", 1) for line in card_lines(card) if ": " in line)
        image = json.loads((folder / "config.json").read_text(encoding="utf-8"))["codec"]["kind"] == "pixels"
        for wanted in ("data", "license of the data", "training", f"held-out bits per {'dimension' if image else 'character'}"):
            assert wanted in rows, f"the card of {folder.name} lacks {wanted}"
        assert "unnoise train" in card and "Unselected samples" in card and ("██" if image else "    6  ") in card
        assert (ROOT / "docs" / "models" / f"{folder.name}.md").read_text(encoding="utf-8") == card
    out = run("info --model wiki", capsys)[1]
    assert str(Path("models") / "wiki" / CARD) in out and "license of the data: CC BY-SA" in out


def test_a_card_says_what_was_measured(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    model = nano("ar")
    model.notes, model.sampling = {"steps": 1200, "seconds": 90.0}, {"temperature": 0.5}
    facts = CardFacts(
        "m", "A small model.", "a few animals", "public domain", ["unnoise train ar", "unnoise train ar --resume"]
    )
    source = unnoise.corpus(str(tmp_path / "text.txt"))
    card = model_card(model, facts, source, windows=4)
    bits = model.bits_per_char(model.texts(source, "test"), 4, 1).bits
    assert f"| held-out bits per character | {bits:.3f} ± " in card and "over 4 windows of the test part (exact)" in card
    assert (
        "| training | 1,200 steps, 2 minutes, the last of 2 stages |" in card
        and "| recommended sampling | temperature 0.5 |" in card
    )
    assert "    unnoise train ar\n    unnoise train ar --resume\n" in card
    for i, text in enumerate(model.generate(6), 1):  # in their original order
        assert f"    {i}  {text.split()[0]}" in card.replace(f"{i}   ", f"{i}  ")
    model.card = card
    model.save(tmp_path / "m")
    assert unnoise.load(tmp_path / "m").card == card
    (tmp_path / "m" / CARD).write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="is not UTF-8 text"):
        unnoise.load(tmp_path / "m")
    (tmp_path / "m" / CARD).write_bytes(b"a" * (2**20 + 1))
    with pytest.raises(ValueError, match="larger than a card may be"):
        unnoise.load(tmp_path / "m")


def test_images_in_shades() -> None:
    images = np.array([[[0, 255], [128, 0]], [[255, 255], [0, 64]]], dtype=np.uint8)
    assert shaded(images) == "  ██  ████\n▒▒      ░░"


# ---- how they are made --------------------------------------------------------------------------------------------------


def recipes() -> Any:
    spec = importlib.util.spec_from_file_location("shipped_models", ROOT / "benchmarks" / "models.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_recipes_of_all_shipped_models_can_be_typed() -> None:
    models = recipes()
    bundled = {folder.name for folder in (ROOT / "src" / "unnoise" / "models").iterdir()}
    assert bundled <= {shipped.name for shipped in models.MODELS}
    for shipped in models.MODELS:
        for command in shipped.commands("path/to", "runs"):
            assert parse(shlex.split(command)[1:]).folder.parent == Path("runs")


def test_a_shipped_model_is_made_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models = recipes()
    (tmp_path / "text.txt").write_text(TEXT)
    stage = models.Stage("ar", "--size nano --length 16 --eval-windows 2 --steps 2")
    shipped = models.ShippedModel(
        "m",
        "A small model.",
        "{data}/text.txt",
        "a few animals",
        "public domain",
        (stage,),
        "int8",
        "temperature=0.9",
        windows=2,
    )
    for _ in range(2):  # the second time nothing is trained
        assert models.make(shipped, tmp_path, tmp_path / "runs", tmp_path / "out") == 0
    assert "the run already finished (2 steps)" in capsys.readouterr().err
    found = unnoise.load(tmp_path / "out" / "m")
    assert found.method.name == "ar" and found.sampling == {"temperature": 0.9}
    assert "unnoise train ar --data path/to/text.txt --out runs/m-1" in found.card
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["m"]


def test_a_stage_knows_the_one_before() -> None:
    models = recipes()
    stages = (models.Stage("ar", "--steps 2"), models.Stage("mdlm", "--steps 3 --codec {before}"))
    commands = models.ShippedModel("m", "", "{data}/text8", "", "", stages).commands("path/to", "runs")
    assert commands == [
        "unnoise train ar --data path/to/text8 --out runs/m-1 --steps 2",
        "unnoise train mdlm --data path/to/text8 --out runs/m-2 --steps 3 --codec runs/m-1",
    ]
