"""Models uploaded to a hub and read back to the bit: a server on this machine, spoken to by huggingface_hub itself.

huggingface_hub reads its environment variables once, at import, so each test starts its own process.
"""

import json
import os
import socket
import sys
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import torch
from safetensors.torch import load_file

import forked
import unnoise
from ddit_checkpoints import KINDS, built
from hub_server import TOKEN, Hub, served
from unnoise.apps.spelling.words import FILE, Words
from unnoise.checkpoint.format import CARD, WEIGHTS

pytest.importorskip("huggingface_hub", reason="the hub extra is not installed")

PUSH = "from unnoise.cli.main import main; import sys, json; codes = [main(one) for one in json.loads(sys.argv[1])]"
FETCH = f"""{PUSH}
import torch, unnoise
from unnoise.apps.spelling.words import model_words
for name, file in json.loads(sys.argv[2]).items():
    model = unnoise.load(name)
    words = len(model_words(model).counts) if model.extra_files else 0
    torch.save(dict(model.network.state_dict()) | {{"card": model.card, "words": words}}, file)
sys.exit(max(codes, default=0))
"""


def run(folder: Path, address: str, script: str, *arguments: object, **variables: str) -> CompletedProcess[str]:
    """Run a script in a folder with a hub at this address and a fresh cache."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
    settings = {"HF_ENDPOINT": address, "HF_HOME": str(folder / "home"), "HF_TOKEN": TOKEN}
    return forked.run(
        ["-c", script, *(json.dumps(one) for one in arguments)],
        cwd=folder,
        env=clean | settings | {"HF_HUB_DISABLE_TELEMETRY": "1"} | variables,
        timeout=120,
    )


@pytest.fixture
def hub() -> Hub:
    with served() as one:
        yield one  # pyright: ignore[reportReturnType]


def test_what_was_pushed_is_loaded_again_to_the_bit(hub: Hub, tmp_path: Path) -> None:
    model = built("mdlm")
    model.card = "# mine\n\nA model of nothing.\n"
    model.extra_files[FILE] = Words({"the": 3, "cat": 2}).to_bytes()
    model.notes = {"steps": 10, "seconds": 60.0, "valid_bits_per_char": 2.5}
    model.save(tmp_path / "ours")
    bpe = unnoise.Model.build("udlm", unnoise.codec("bpe-300", ["a cat sat"] * 9), 8, width=16, depth=1, heads=2)
    bpe.notes = dict(model.notes)
    bpe.save(tmp_path / "bpe")
    pushes = [["push", "ours", "owner/ours", "--message", "the first"], ["push", "bpe", "owner/bpe", "--license", "mit"]]
    chosen = {"owner/ours": "ours", "owner/bpe": "bpe"}
    for kind in ("mdlm", "sedd", "flexmdm"):
        layout, method, network, labels = KINDS[kind]
        built(method, network, labels).save(tmp_path / kind)
        pushes.append(["push", kind, f"owner/{kind}", "--to", layout, "--private"])
        chosen[f"owner/{kind}"] = kind
    done = run(tmp_path, hub.address, FETCH, pushes, {name: f"{folder}.pt" for name, folder in chosen.items()})
    assert done.returncode == 0, done.stderr
    files = "README.md, card.md, config.json, model.safetensors, words.txt.gz"
    assert f"uploaded {files} to {hub.address}/owner/ours" in done.stdout
    for folder in chosen.values():
        fetched = torch.load(tmp_path / f"{folder}.pt", weights_only=True)
        mine = unnoise.load(tmp_path / folder).network.state_dict()
        assert all(torch.equal(value, fetched[name][: len(value)]) for name, value in mine.items())
        assert fetched["card"] == (model.card if folder == "ours" else "") and fetched["words"] == 2 * (folder == "ours")
    ours, made = hub.repositories["owner/ours"], hub.repositories["owner/bpe"].files["README.md"].decode()
    assert ours.files[WEIGHTS] == (tmp_path / "ours" / WEIGHTS).read_bytes() and ours.messages == ["the first"]
    assert ours.files[CARD] == model.card.encode() and not ours.private
    readme = ours.files["README.md"].decode()
    assert readme.startswith("---\n") and "library_name: unnoise" in readme and "pipeline_tag: text-generation" in readme
    assert "A model of nothing." in readme and 'unnoise.load("owner/ours")' in readme and "license" not in readme
    assert "license: mit" in made and "- udlm\n" in made and "| held-out bits per character | 2.500" in made
    assert f"| codec | bpe, {bpe.codec.vocab} tokens" in made and "10 steps, 1 minutes" in made
    assert hub.repositories["owner/sedd"].private and "pytorch_model.bin" in hub.repositories["owner/sedd"].files


def test_pushed_again_no_old_weights_stay_and_nothing_private_becomes_public(hub: Hub, tmp_path: Path) -> None:
    first, second = built("sedd-absorb"), built("sedd-absorb", seed=1)
    first.save(tmp_path / "first")
    second.save(tmp_path / "second")
    pushes = [["push", "first", "owner/a"], ["push", "second", "owner/a", "--to", "sedd"]]
    done = run(tmp_path, hub.address, FETCH, [*pushes, [*pushes[0], "--private"]], {"owner/a": "a.pt"})
    assert done.returncode == 2 and "the repository exists and is public" in done.stderr, done.stderr
    assert len(hub.repositories["owner/a"].messages) == 2
    files = hub.repositories["owner/a"].files
    assert set(files) == {"README.md", "config.json", "tokenizer.json", "pytorch_model.bin"}
    fetched = torch.load(tmp_path / "a.pt", weights_only=True)
    kept = load_file(tmp_path / "second" / WEIGHTS)
    assert torch.equal(fetched["head.weight"][:27], kept["network.head.weight"][:27])


def test_what_cannot_be_pushed_is_said_before_anything_is(hub: Hub, tmp_path: Path) -> None:
    built("mdlm").save(tmp_path / "ours")
    push = ["push", "ours", "owner/a"]
    wrong = {
        "the layout duo is for the method udlm": [*push, "--to", "duo"],
        "there is no model in nothing": ["push", "nothing", "owner/a"],
        "must be owner/name, found 'a'": ["push", "ours", "a"],
    }
    done = run(tmp_path, hub.address, f"{PUSH}; print(codes)", list(wrong.values()))
    assert done.stdout == "[2, 2, 2]\n" and len(done.stderr.splitlines()) == 3, done.stderr
    assert all(words in line for words, line in zip(wrong, done.stderr.splitlines(), strict=True))
    tokens = "import os; os.environ['HF_TOKEN'] = 'hf_other'; print(main(one)); os.environ['HF_TOKEN'] = ''; print(main(one))"
    done = run(tmp_path, hub.address, f"{PUSH}; one = json.loads(sys.argv[2]); {tokens}", [], push)
    assert done.stdout == "2\n2\n" and len(done.stderr.splitlines()) == 2, done.stderr
    assert "does not accept the token" in done.stderr and "there is no token for the hub" in done.stderr
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{closed.getsockname()[1]}"
    done = run(tmp_path, nobody, f"{PUSH}; print(codes)", [push])
    assert done.stdout == "[2]\n" and f"the hub at {nobody} cannot be reached" in done.stderr
    assert hub.repositories == {} and {one.name for one in tmp_path.iterdir()} <= {"ours", "home"}


def test_without_the_package_or_offline_nothing_is_pushed(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    model = built("mdlm")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ValueError, match="nothing is uploaded while HF_HUB_OFFLINE is set"):
        model.push("owner/a")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ValueError, match=r"install unnoise\[hub\]"):
        model.push("owner/a")
