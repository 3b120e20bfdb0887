"""Published checkpoints of the network ddit as others store them: shards, prefixes, averages, tokenizers, masks."""

import copy
import json
import sys
import types
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import unnoise
from ddit_checkpoints import LENGTH, built, copied, hydra, lightning, outputs, refused, same
from unnoise.checkpoint.published.export import CHECKPOINT, export
from unnoise.checkpoint.published.tensor_files import INDEX, PICKLE, WEIGHTS
from unnoise.cli.main import main
from unnoise.data import codec_kind
from unnoise.model.model import Model
from unnoise.network.ddit import Ddit


def test_shards_half_precision_and_prefixes(written: dict[str, Path], tmp_path: Path) -> None:
    folder = copied(written["mdlm"], tmp_path / "a")
    expected = outputs(unnoise.load(folder))
    tensors = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    listed = sorted(tensors)
    shards = {"one.safetensors": listed[:9], "two.safetensors": listed[9:]}
    for file, names in shards.items():
        save_file({name: tensors[name] for name in names}, folder / file)
    (folder / INDEX).write_text(json.dumps({"weight_map": {name: file for file, names in shards.items() for name in names}}))
    assert same(outputs(unnoise.load(folder)), expected)
    (folder / "two.safetensors").unlink()
    with pytest.raises(ValueError, match=r"two\.safetensors is missing"):
        unnoise.load(folder)
    (folder / INDEX).unlink()
    save_file({f"module._orig_mod.{name}": tensor.bfloat16() for name, tensor in tensors.items()}, folder / WEIGHTS)
    half = unnoise.load(folder)
    assert next(half.network.parameters()).dtype == torch.float32
    assert torch.allclose(outputs(half)[0], expected[0], atol=0.5) and not same(outputs(half), expected)
    (folder / WEIGHTS).unlink()
    torch.save(OrderedDict((f"module.{name}", tensor) for name, tensor in tensors.items()), folder / PICKLE)
    assert same(outputs(unnoise.load(folder)), expected)
    torch.save(tensors, folder / PICKLE, _use_new_zipfile_serialization=False)
    assert same(outputs(unnoise.load(folder)), expected)


def test_without_a_tokenizer_texts_are_numbers(written: dict[str, Path], tmp_path: Path) -> None:
    model = unnoise.load(copied(written["mdlm"], tmp_path / "a"))
    assert len(model.generate(1, length=5, steps=2)[0].split()) == 5
    assert model.infill("3[MASK]4", steps=1)[0].split()[::2] == ["3", "4"]
    with pytest.raises(ValueError, match="has no tokenizer"):
        model.score("words")
    with pytest.raises(ValueError, match="0 to 26"):
        model.score("27")


def test_a_codec_is_chosen_where_there_is_no_tokenizer(
    written: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copied(written["mdlm"], tmp_path / "a")
    assert main(f"convert {folder} --codec text8 --out {tmp_path / 'text8'}".split()) == 0
    model = unnoise.load(tmp_path / "text8")
    assert codec_kind(model.codec) == "text8" and set(model.generate(1, length=9)[0]) <= set("abcdefghijklmnopqrstuvwxyz ")
    beside = written["mdlm"] / "tokenizer.json"
    for chosen in (beside, written["mdlm"], str(beside), unnoise.codec("text8")):
        assert unnoise.load(folder, codec=chosen).codec.encode("abc d").tolist() == [0, 1, 2, 26, 3]
    capsys.readouterr()
    for source, codec, words in (
        (folder, "text8-35", "text8-35 has 35 tokens, and the model 27;"),
        (written["mdlm"], "text8", "this model has a tokenizer (tokenizer)"),
        (tmp_path / "text8", "text8", "a model of ours knows its own"),
        (folder, "nothing", "unknown codec 'nothing'"),
        (folder, folder / "config.json", "is not a tokenizer, or damaged"),
    ):
        assert main(f"convert {source} --codec {codec} --out {tmp_path / 'b'}".split()) == 2
        said = capsys.readouterr().err
        assert words in said and len(said.splitlines()) == 1 and not (tmp_path / "b").exists(), said


def test_text8_of_35_tokens_has_its_mask_among_them(tmp_path: Path) -> None:
    """As MDLM's own text8: eight special tokens, of which 4 is the mask, then the letters; no tokenizer beside."""
    model = Model.build("mdlm", unnoise.codec("numbers-34"), LENGTH, width=16, depth=1, heads=2, network="ddit")
    export(model, "mdlm", tmp_path / "theirs")
    again = unnoise.load(tmp_path / "theirs", mask_token=4, codec="text8-35")
    assert again.codec.vocab == 35 and again.codec.encode("a ").tolist() == [8, 34]
    assert again.score("the cat", samples=2).nats > 0
    with pytest.raises(ValueError, match=r"35 tokens, and the model 34; .* give it as mask_token"):
        unnoise.load(tmp_path / "theirs", codec="text8-35")


def test_gpt2_files_beside_the_weights(written: dict[str, Path], tmp_path: Path) -> None:
    folder = copied(written["mdlm"], tmp_path / "a")
    (folder / "vocab.json").write_text(json.dumps({letter: i for i, letter in enumerate("abcdefghijklmnopqrstuvwxyzĠ")}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    assert unnoise.load(folder).codec.encode("ab c").tolist() == [0, 1, 26, 2]


def test_what_was_added_to_a_tokenizer_for_the_mask_is_no_token_of_texts(written: dict[str, Path], tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(written["mdlm"] / "tokenizer.json"))
    tokenizer.add_special_tokens(["[PAD]"])
    folder = copied(written["mdlm"], tmp_path / "a")
    tokenizer.save(str(folder / "tokenizer.json"))
    model = unnoise.load(folder)
    assert model.codec.vocab == 27 and model.codec.encode("abc").tolist() == [0, 1, 2]
    assert len(model.generate(1, length=6, steps=3)[0]) == 6
    tokenizer.add_special_tokens(["[MASK]"])
    tokenizer.save(str(folder / "tokenizer.json"))
    assert unnoise.load(folder).codec.vocab == 27
    described = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(described | {"vocab_size": 40}))
    tensors = load_file(folder / WEIGHTS)
    more = {
        name: torch.cat([tensor, tensor[:12]]) if len(tensor.shape) and len(tensor) == 28 else tensor
        for name, tensor in tensors.items()
    }
    save_file(more, folder / WEIGHTS)
    inside = unnoise.load(folder)
    assert inside.notes["mask_token"] == 28 and inside.codec.vocab == 40
    with pytest.raises(ValueError, match=r"has \[MASK\] as a token, which the layout mdlm would take for its mask"):
        export(inside, "mdlm", tmp_path / "again")
    assert not (tmp_path / "again").exists()


INSIDE = 7  # the token that is the mask


def mask_moved(tensors: dict[str, Tensor], order: list[int]) -> dict[str, Tensor]:
    """Reorder the rows of a network's embedding and head."""
    return {
        name: tensor[order].contiguous() if tensor.dim() and len(tensor) == len(order) else tensor
        for name, tensor in tensors.items()
    }


@pytest.mark.parametrize("kind", ["mdlm", "mdlm with time", "bd3lm", "lightning"])
def test_a_mask_among_the_tokens_gives_the_outputs_of_one_behind_them(
    kind: str, written: dict[str, Path], tmp_path: Path
) -> None:
    layout = "mdlm" if kind == "lightning" else kind
    behind = unnoise.load(copied(written[layout], tmp_path / "behind"))
    folder = copied(written[layout], tmp_path / "inside")
    order = [*range(INSIDE), 27, *range(INSIDE, 27)]  # their row i is ours
    tensors = mask_moved(load_file(folder / WEIGHTS), order)
    save_file(tensors, folder / WEIGHTS)
    if kind == "lightning":
        config = hydra(json.loads((folder / "config.json").read_text()))
        torch.save(lightning(tensors, config), folder / CHECKPOINT)
        (folder / "config.json").unlink()
        (folder / WEIGHTS).unlink()
    inside = unnoise.load(folder, mask_token=INSIDE)
    assert inside.codec.vocab == 28 and inside.notes["mask_token"] == INSIDE and inside.process.vocab == 28
    x = torch.randint(28, (3, LENGTH), generator=torch.Generator().manual_seed(1))  # 27 is the mask behind the tokens
    place = torch.tensor([order.index(i) for i in range(27)] + [28])
    t = torch.tensor([0.2, 0.5, 0.9], dtype=torch.float64)
    permuted = mask_moved(dict(behind.network.state_dict()), order)  # by hand: all 28 rows, and the mask once more
    permuted["embed.weight"] = torch.cat([permuted["embed.weight"], permuted["embed.weight"][INSIDE : INSIDE + 1]])
    by_hand = Ddit(**(dict(behind.network.config) | {"inputs": 29, "outputs": 28, "head_rows": 28})).eval()
    by_hand.load_state_dict(permuted)
    with torch.no_grad():
        expected, found, exact = (
            copy.deepcopy(network).double()(tokens, t)
            for network, tokens in ((behind.network, x), (inside.network, place[x]), (by_hand, place[x]))
        )
        real = place[:27]
        assert torch.equal(found[..., real], exact[..., real]) and bool((found[..., INSIDE] < -1e5).all())
        assert torch.allclose(found[..., real], expected, atol=1e-9)
        assert torch.allclose(found.log_softmax(-1)[..., real], expected.log_softmax(-1), atol=1e-9)
    numbers = "0 3 26 11"
    moved = " ".join(str(int(place[int(word)])) for word in numbers.split())
    assert inside.score(moved, samples=8).nats == pytest.approx(behind.score(numbers, samples=8).nats, rel=1e-5)
    texts = inside.generate(8, length=LENGTH, steps=4, seed=0)
    assert all(str(INSIDE) not in text.split() and "28" not in text.split() for text in texts)
    inside.save(tmp_path / "ours")
    again = unnoise.load(tmp_path / "ours")
    assert again.generate(2, length=LENGTH, steps=4, seed=0) == inside.generate(2, length=LENGTH, steps=4, seed=0)


def test_which_mask_is_among_the_tokens(written: dict[str, Path], tmp_path: Path) -> None:
    folder = copied(written["mdlm"], tmp_path / "a")
    assert "mask_token" not in unnoise.load(folder, mask_token=27).notes  # the last row
    with pytest.raises(ValueError, match=r"must be one of its rows 0…27, found 28"):
        unnoise.load(folder, mask_token=28)
    with pytest.raises(ValueError, match="no mask token can be chosen for duo"):
        unnoise.load(written["duo"], mask_token=3)


def test_rows_of_gidd_may_be_rounded_up(written: dict[str, Path], tmp_path: Path) -> None:
    folder = copied(written["gidd"], tmp_path / "a")
    expected = outputs(unnoise.load(folder))
    tensors = load_file(folder / WEIGHTS)
    for name in ("vocab_embed.embedding", "output_layer.linear.weight", "output_layer.linear.bias"):
        tensors[name] = torch.cat([tensors[name], torch.ones(100, *tensors[name].shape[1:])])
    save_file(tensors, folder / WEIGHTS)
    assert same(outputs(unnoise.load(folder)), expected)
    described = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(described | {"vocab_size": 128}))
    assert unnoise.load(folder).codec.vocab == 127
    assert same(outputs(unnoise.load(folder, mask_token=27)), expected)
    (folder / "config.json").write_text(json.dumps(described | {"vocab_size": 200}))
    assert "says vocab 200" in refused(folder)


def test_padding_and_mask_of_flexmdm_may_be_exchanged(written: dict[str, Path], tmp_path: Path) -> None:
    folder = copied(written["flexmdm"], tmp_path / "a")
    expected = outputs(unnoise.load(folder))
    held = torch.load(folder / CHECKPOINT, weights_only=True)
    for name in ("vocab_embed.embedding", "output_layer.linear.weight", "output_layer.linear.bias"):
        rows = held["ema_params"][f"model._orig_mod.{name}"]
        held["ema_params"][f"model._orig_mod.{name}"] = torch.cat([rows[:-2], rows[-1:], rows[-2:-1]])
    noise = held["config"]["interpolant"]
    noise["pad_token"], noise["mask_token"] = noise["mask_token"], noise["pad_token"]
    torch.save(held | {"hyper_parameters": {}}, folder / CHECKPOINT)
    assert same(outputs(unnoise.load(folder)), expected)


def test_lightning_with_and_without_averages(written: dict[str, Path], tmp_path: Path) -> None:
    tensors = load_file(written["mdlm"] / WEIGHTS)
    ordered = built("mdlm").network
    assert isinstance(ordered, Ddit)
    from unnoise.checkpoint.published.ddit_weights import names

    order = [f"backbone.{theirs}" for _, theirs, _ in names(ordered.config)]
    state = {name: tensors[name] for name in order} | {"backbone.rotary_emb.inv_freq": tensors["backbone.rotary_emb.inv_freq"]}
    config = hydra(json.loads((written["mdlm"] / "config.json").read_text()))
    expected = outputs(unnoise.load(written["mdlm"]))
    noise = {name: torch.zeros_like(tensor) if "rotary" not in name else tensor for name, tensor in state.items()}
    shadow = {"decay": 0.9, "num_updates": 3, "shadow_params": [state[name] for name in order]}
    path = tmp_path / "some.ckpt"
    for checkpoint, which in (
        (lightning(state, config), "trained"),
        (lightning(noise, config, ema=shadow), "ema"),
        (lightning(noise, config, ema_params={name: state[name] for name in order}), "ema"),
        (lightning(state, config | {"algo": config | {"name": "mdlm"}}), "trained"),
    ):
        torch.save(checkpoint, path)
        model = unnoise.load(path)
        assert model.notes["weights"] == which and same(outputs(model), expected)
    for name in ("duo", "duo_base"):
        uniform = {key: value[:27] if len(value) == 28 else value for key, value in state.items()}
        torch.save(lightning(uniform, config | {"algo": config | {"name": name, "parameterization": "mean"}}), path)
        assert unnoise.load(path).method.name == "udlm"
    torch.save(lightning(state, config | {"algo": config | {"name": "bd3lm", "block_size": 4}}), path)
    assert unnoise.load(path).method.name == "bd3lm:block=4"
    for broken, words in (
        ({"ema": {"shadow_params": shadow["shadow_params"][1:]}}, "shadow_params for"),
        ({"ema": {"shadow_params": shadow["shadow_params"][::-1]}}, "its ema has"),
        ({"ema": 3}, "no shadow_params"),
        ({"ema_params": {order[0]: state[order[0]]}}, "its ema has no"),
        ({"hyper_parameters": {}}, "holds no configuration"),
        ({"hyper_parameters": {"config": config | {"backbone": "dimamba"}}}, "backbone is 'dimamba'"),
        ({"hyper_parameters": {"config": config | {"parameterization": "ar"}}}, "which is not supported"),
        ({"state_dict": {}}, "no tensors by name"),
        ({"state_dict": [1]}, "no tensors by name"),
    ):
        torch.save(lightning(state, config) | broken, path)
        with pytest.raises(ValueError, match=words):
            unnoise.load(path)
    torch.save({"weights": state}, path)
    with pytest.raises(ValueError, match="no state_dict"):
        unnoise.load(path)


def test_a_configuration_of_omegaconf_is_read_without_omegaconf(
    written: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors = load_file(written["mdlm"] / WEIGHTS)
    config = hydra(json.loads((written["mdlm"] / "config.json").read_text()))
    module = types.ModuleType("omegaconf.dictconfig")
    made = type("DictConfig", (), {"__module__": "omegaconf.dictconfig"})
    module.DictConfig = made  # pyright: ignore
    monkeypatch.setitem(sys.modules, "omegaconf", types.ModuleType("omegaconf"))
    monkeypatch.setitem(sys.modules, "omegaconf.dictconfig", module)

    def wrapped(value: Any) -> Any:
        node = made()
        inside = {"_val": value}
        if isinstance(value, dict):
            inside = {"_content": {key: wrapped(one) for key, one in value.items()}, "_metadata": Any, "_parent": None}
        vars(node).update(inside)
        return node

    torch.save(lightning(tensors, {}) | {"hyper_parameters": {"config": wrapped(config)}}, tmp_path / "a.ckpt")
    monkeypatch.undo()
    assert same(outputs(unnoise.load(tmp_path / "a.ckpt")), outputs(unnoise.load(written["mdlm"])))
