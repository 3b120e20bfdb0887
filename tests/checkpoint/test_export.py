"""Models of ours with the network ddit in published layouts: written and read back to the bit, and what is damaged refused."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import unnoise
from ddit_checkpoints import KINDS, LENGTH, built, outputs, same
from unnoise.checkpoint.published.export import TARGETS, export
from unnoise.checkpoint.published.tensor_files import WEIGHTS
from unnoise.cli.main import main
from unnoise.model.model import Model
from unnoise.network.attention import KVCache
from unnoise.network.ddit import Ddit


@pytest.mark.parametrize("kind", KINDS)
def test_ours_written_and_read_back_is_the_same_to_the_bit(kind: str, tmp_path: Path) -> None:
    layout, method, network, labels = KINDS[kind]
    model = built(method, network, labels)
    file = export(model, layout, tmp_path / "theirs")
    again = unnoise.load(tmp_path / "theirs")
    assert file.exists() and again.notes["family"] == layout
    assert same(outputs(model), outputs(again))
    ours, theirs = model.network.state_dict(), again.network.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(value, theirs[name][: len(value)]) for name, value in ours.items())
    assert again.method.name == method or layout == "sedd"  # which names all its options
    assert again.codec.encode("abc d").tolist() == model.codec.encode("abc d").tolist()
    export(again, layout, tmp_path / "twice")
    for path in (tmp_path / "theirs").iterdir():
        if path.suffix == ".safetensors":
            first, second = load_file(path), load_file(tmp_path / "twice" / path.name)
            assert first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_a_ddit_that_was_trained_is_an_mdlm_for_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "the cat sat on the mat and the dog sat on the log " * 40
    (tmp_path / "text.txt").write_text(text)
    command = (
        f"train mdlm --network ddit --data {tmp_path / 'text.txt'} --out {tmp_path / 'run'} --steps 10 --size nano --length 16"
    )
    assert main(command.split()) == 0
    assert main(f"export {tmp_path / 'run'} --to mdlm --out {tmp_path / 'out'}".split()) == 0
    assert "as mdlm" in capsys.readouterr().out
    ours, theirs = unnoise.load(tmp_path / "run"), unnoise.load(tmp_path / "out")
    assert theirs.notes["family"] == "mdlm"
    found, expected = (model.score("the cat sat", samples=4).nats for model in (theirs, ours))
    assert found == pytest.approx(expected, rel=1e-5)
    assert main(f"export {tmp_path / 'run'} --to duo --out {tmp_path / 'other'}".split()) == 2
    assert "the layout duo is for the method udlm" in capsys.readouterr().err
    assert not (tmp_path / "other" / WEIGHTS).exists()


def test_what_does_not_fit_a_layout_is_said(tmp_path: Path) -> None:
    for method, network, layout, words in (
        ("gidd", "ddit", "gidd", "time_input=t"),
        ("flexmdm", "ddit", "flexmdm", "layout=end"),
        ("sedd-uniform", "ddit", "sedd", "scaled=false"),
        ("mdlm", "transformer", "mdlm", "network ddit"),
        ("mdlm", "ddit:hidden=16", "mdlm", "four times"),
        ("ardm", "ddit", "mdlm", "for the method mdlm"),
    ):
        with pytest.raises(ValueError, match=words):
            export(Model.build(method, "text8", 8, width=16, depth=1, heads=2, network=network), layout, tmp_path)
    with pytest.raises(ValueError, match="no labels"):
        export(Model.build("udlm", "text8", 8, width=16, depth=1, heads=2, network="ddit", labels=2), "duo", tmp_path)


@pytest.mark.parametrize(
    "method", ["mdlm", "ar", "udlm", "sedd-absorb", "bd3lm", "flexmdm", "gaussian", "bfn", "gidd", "genmd4"]
)
def test_every_kind_of_method_trains_with_ddit(method: str) -> None:
    model = Model.build(method, "text8", 16, width=16, depth=2, heads=2, network="ddit")
    report = unnoise.train(model, ["the cat sat on", "a mat"] * 40, steps=2, batch=4, seed=0)
    assert report is not None
    assert len(model.generate(1, length=8)) == 1


# ---- the network -----------------------------------------------------------------------------------------------------------


def test_the_network_sees_what_it_may() -> None:
    network = built("mdlm").network
    assert isinstance(network, Ddit)
    causal = built("ar").network
    x = torch.randint(27, (2, LENGTH), generator=torch.Generator().manual_seed(0))
    where = torch.rand(x.shape, generator=torch.Generator().manual_seed(1)) < 0.4
    with torch.no_grad():
        assert torch.allclose(network(x, where=where), network(x)[where], atol=1e-6)
        whole = causal(x)
        cache = KVCache()
        parts = [causal(x[:, a:b], cache=cache) for a, b in ((0, 3), (3, 4), (4, LENGTH))]
        assert torch.allclose(torch.cat(parts, 1), whole, atol=1e-5)
        present = torch.arange(LENGTH) < torch.tensor([[5], [LENGTH]])
        changed = x.clone()
        changed[0, 5:] = (changed[0, 5:] + 1) % 27
        assert torch.equal(network(x, present=present)[present], network(changed, present=present)[present])
        times = torch.rand(2, LENGTH, generator=torch.Generator().manual_seed(2))
        timed = built("mdlm:time=true").network
        assert torch.allclose(timed(x, times, where), timed(x, times)[where], atol=1e-6)
    for fields, words in (
        ({"width": 18}, "even multiple"),
        ({"time_input": "clock"}, "time_input is one of"),
        ({"head_rows": 2}, "head_rows must be"),
        ({"depth": 0}, "depth must be a whole number"),
    ):
        with pytest.raises(ValueError, match=words):
            Ddit(**{"inputs": 5, "outputs": 4, "length": 8, "width": 16, "heads": 2, **fields})  # pyright: ignore
    with pytest.raises(ValueError, match="conditioned on time"):
        built("udlm").network(x)
    with pytest.raises(ValueError, match="at most 12 tokens"):
        network(torch.zeros(1, 13, dtype=torch.long))


def test_all_layouts_are_offered() -> None:
    assert set(TARGETS) == {layout for layout, *_ in KINDS.values()}
