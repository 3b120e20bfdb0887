"""An open top layer: a network, a codec, a sampler and a method from outside the package work wherever ours do."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import torch
from torch import nn

import forked
import unnoise
from unnoise import registry

PLUGIN = Path(__file__).parents[2] / "examples" / "own_parts.py"
WORDS = "the cat sat on the mat while a dog barked at the moon and seven birds sang in the old tree"
TEXTS = [" ".join(WORDS.split()[i % 9 : i % 9 + 8]) for i in range(60)]


@pytest.fixture(scope="module", autouse=True)
def own_parts() -> Iterator[Any]:
    """Import the example as a plug-in and unregister it afterwards."""
    assert unnoise.Model.build("ar", length=2, size="nano").samplers  # everything of our own is registered
    before = {kind: dict(parts) for kind, parts in registry._parts.items()}
    registry.import_plugin(str(PLUGIN))
    yield sys.modules["own_parts"]
    for kind, parts in before.items():
        registry._parts[kind].clear()
        registry._parts[kind].update(parts)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, own_parts: Any) -> Path:
    """Train and save a model that consists of plug-in parts only."""
    codec = unnoise.codec("words-40", TEXTS, end=True)
    model = unnoise.Model.build("mdlm-polynomial", codec, length=8, network="gru:width=32")
    report = unnoise.train(model, TEXTS, steps=60, loss="fast", eval_windows=8, adam_lr=0.02)
    assert report.bits < 0.85 * report.bits_before
    path = tmp_path_factory.mktemp("own") / "model"
    model.save(path)
    return path


def in_another_process(*arguments: str, plugin: bool = True) -> CompletedProcess[str]:
    return forked.run(arguments, env=os.environ | ({"UNNOISE_PLUGINS": str(PLUGIN)} if plugin else {}))


def command(*arguments: str) -> dict[str, Any]:
    done = in_another_process("-m", "unnoise", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_it_loads_in_another_process_and_writes_the_same(folder: Path) -> None:
    model = unnoise.load(folder)
    script = (
        f"import unnoise; m = unnoise.load({str(folder)!r}); "
        "print([m.generate(2, steps=4, seed=3), m.infill('the [MASK] sat', steps=2, seed=3)])"
    )
    done = in_another_process("-c", script)
    assert done.stdout.strip() == str([model.generate(2, steps=4, seed=3), model.infill("the [MASK] sat", steps=2, seed=3)])
    assert model.own_sampler == "left-first" and {"left-first", "ancestral"} <= set(model.samplers)


def test_without_the_plug_in_the_model_says_what_is_missing(folder: Path) -> None:
    done = in_another_process("-m", "unnoise", "generate", "--model", str(folder), plugin=False)
    assert done.returncode == 2 and "unknown method 'mdlm-polynomial'" in done.stderr and "UNNOISE_PLUGINS" in done.stderr


def test_the_command_line_knows_them(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(" ".join(TEXTS))
    trained = command(
        *("train", "mdlm-polynomial", "--network", "gru:width=16", "--codec", "words-40", "--length", "8", "--steps", "3"),
        *("--data", str(tmp_path / "text.txt"), "--out", str(tmp_path / "run"), "--eval-windows", "4"),
    )
    assert trained["steps"] == 3
    more = command("train", "mdlm-polynomial", "--resume", "--steps", "5", "--out", str(tmp_path / "run"))
    assert more["steps"] == 5
    texts = command("generate", "--model", str(folder), "--sampler", "left-first:backwards=true", "--steps", "4")["texts"]
    assert texts == unnoise.load(folder).generate(2, steps=4, sampler="left-first:backwards=true")
    (filled,) = command("infill", "the [MASK] sat", "--model", str(folder), "--num-samples", "1")["texts"]
    assert filled.startswith("the ") and filled.endswith(" sat")
    measured = command("eval", "--model", str(folder), "--data", str(tmp_path / "text.txt"), "--windows", "8")
    assert 0 < measured["bits_per_char"] < 3
    listed = command("ls")
    assert "mdlm-polynomial" in str(listed) and "left-first" in str(listed) and "gru" in str(listed)


def test_the_studio_shows_them(folder: Path) -> None:
    pytest.importorskip("starlette")
    from starlette.testclient import TestClient

    from unnoise.apps.studio import make_app

    client = TestClient(make_app([folder]), base_url="http://127.0.0.1")
    about = client.get("/api/models/model").json()
    assert about["method"] == "mdlm-polynomial" and about["codec"] == "words"
    mine = next(sampler for sampler in about["samplers"] if sampler["name"] == "left-first")
    (field,) = mine["fields"]
    assert field["name"] == "backwards" and field["kind"] == "flag" and "right to left" in field["help"]
    *_, last = client.post("/api/chain", json={"sampler": "left-first:backwards=true", "steps": 4, "seed": 1}).text.splitlines()
    wanted = unnoise.load(folder).generate(1, steps=4, seed=1, sampler="left-first:backwards=true")
    assert [json.loads(last)["text"]] == wanted and json.loads(last)["calls"] <= 4


def test_any_module_is_a_network(own_parts: Any) -> None:
    model = unnoise.Model.build("mdlm", codec="text8", length=16, network=own_parts.Gru(28, 27))
    assert "Gru" in repr(model) and len(model.generate(steps=3)[0]) == 16
    assert model.score("the cat").bits_per_char > 0
    for sampler in (unnoise.Remasking(steps=4, rate=0.05), "remasking:rate=0.05", own_parts.LeftFirst(steps=4)):
        assert len(model.generate(sampler=sampler, steps=4)[0]) == 16
    with pytest.raises(ValueError, match="needs a network with outputs = 27, found Gru with 26"):
        unnoise.Model.build("mdlm", codec="text8", network=own_parts.Gru(28, 26))
    with pytest.raises(ValueError, match="forward takes 'cache'"):
        unnoise.Model.build("ar", codec="text8", length=8, network=own_parts.Gru(28, 27)).generate()


def test_what_could_not_be_loaded_again_is_refused_at_save(tmp_path: Path, own_parts: Any) -> None:
    class Unknown(own_parts.Gru):
        pass

    model = unnoise.Model.build("mdlm", codec="text8", length=8, network=Unknown(28, 27))
    with pytest.raises(ValueError, match="not registered, so a saved model could not be loaded again"):
        model.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()

    class UnknownCodec(own_parts.WordCodec):
        pass

    model = unnoise.Model.build("mdlm", codec=UnknownCodec(["a", "b"]), length=8, network="gru")
    with pytest.raises(ValueError, match="the codec UnknownCodec is not registered"):
        model.save(tmp_path / "model")
    bare = nn.Linear(3, 3)
    with pytest.raises(ValueError, match=r"must be a torch\.nn\.Module with a dict `config`"):
        unnoise.Model.build("mdlm", codec="text8", network=bare)


def test_a_name_is_registered_once_and_never_over_ours() -> None:
    with pytest.raises(ValueError, match="'ancestral' is a built-in sampler"):
        unnoise.register("sampler", "ancestral")
    with pytest.raises(ValueError, match="unknown kind of part 'optimizer'"):
        unnoise.register("optimizer", "mine")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="letters, digits"):
        unnoise.register("codec", "a b")


def test_a_plug_in_that_cannot_be_imported_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("1 / 0")
    done = forked.run(["-m", "unnoise", "ls"], env=os.environ | {"UNNOISE_PLUGINS": str(tmp_path / "broken.py")})
    assert (
        done.returncode == 2
        and "cannot be imported: ZeroDivisionError: division by zero (broken.py, line 1)" in done.stderr
        and "Traceback" not in done.stderr
    )


def test_a_broken_plug_in_is_an_error_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken.py").write_text("1 / 0")
    monkeypatch.setenv("UNNOISE_PLUGINS", str(tmp_path / "broken.py"))
    monkeypatch.setattr(registry, "_plugins_loaded", False)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"cannot be imported: ZeroDivisionError"):
            registry.registered("sampler")


@pytest.mark.parametrize("steps", [1, 3, 8])
def test_the_samplers_fields_do_what_they_say(own_parts: Any, steps: int) -> None:
    model = unnoise.Model.build("mdlm", codec="text8", length=8, network=own_parts.Gru(28, 27))
    forward = [step.text for step in model.chain(sampler=own_parts.LeftFirst(steps=steps))]
    backward = [step.text for step in model.chain(sampler=own_parts.LeftFirst(steps=steps, backwards=True))]
    assert all(text.rstrip("·").count("·") == 0 for text in forward)
    assert all(text.lstrip("·").count("·") == 0 for text in backward)
    assert torch.equal(torch.tensor(len(forward)), torch.tensor(steps + 1))


def test_an_installed_plug_in_is_found_by_its_entry_point(tmp_path: Path) -> None:
    (tmp_path / "some_parts.py").write_text(PLUGIN.read_text())
    about = tmp_path / "some_parts-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: some-parts\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[unnoise.plugins]\nsome = some_parts\n")
    done = forked.run(["-m", "unnoise", "ls", "--json"], env=os.environ | {"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    listed = json.loads(done.stdout)
    assert "mdlm-polynomial" in listed["methods"] and "left-first" in listed["samplers"] and "gru" in listed["networks"]
