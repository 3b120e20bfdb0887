"""The words of `--help` and of the commands: defaults in words, one paragraph per option, the codec's own units."""

import json
import re
import shlex

import pytest

import unnoise
from unnoise.checkpoint.format import card_description
from unnoise.cli.help import default_hint, field_docstrings
from unnoise.cli.main import main
from unnoise.data import Pixels
from unnoise.evaluation.dataset import kind_of_piece
from unnoise.model.generate import text_as_read
from unnoise.registry import registered
from unnoise.training.training_options import RunOptions, TrainingOptions


def help_of(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Return what --help prints, without its frame and in one line."""
    with pytest.raises(SystemExit):
        main([command, "--help"])
    return " ".join(re.sub("[│╭╰╮╯─|+]", " ", capsys.readouterr().out).split())


@pytest.mark.parametrize("command", registered("command"))
def test_help_shows_only_defaults_that_one_could_type(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = help_of(command, capsys)
    for unwanted in ("{None}", "default: None", "default: True", "default: False", "(default: )", "(default: '')"):
        assert unwanted not in shown, unwanted
    assert f"usage: unnoise {command}" in shown and "Example: unnoise" in shown


def test_the_list_of_commands_has_one_short_line_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == main(["-h"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(any(line.startswith(f"  {name:10s} ") for line in lines) for name in registered("command"))
    assert max(map(len, lines)) <= 84 and len(lines) <= 2 * (len(registered("command")) + 6)


def test_help_of_training(capsys: pytest.CaptureFixture[str]) -> None:
    shown = help_of("train", capsys)
    assert "--steps INT Number of training steps. --minutes FLOAT" in shown
    assert "--track {tensorboard,wandb,trackio}" in shown
    assert "--muon-lr FLOAT Learning rate of Muon, for matrices. (default: 0.02) --adam-lr" in shown
    assert "--no-curriculum Start a fast loss at low noise levels. With --no-curriculum it uses all noise levels" in shown
    assert "which suits a model that is already trained. --global-batch INT, --batch INT Sequences per update" in shown
    assert "B:0.3. (default: sotu) --size STR" in shown


def test_the_docstring_below_a_field_is_one_paragraph() -> None:
    described = field_docstrings(TrainingOptions) | field_docstrings(RunOptions)
    assert described["max_grad_norm"] == "Largest norm of the gradient."
    assert "the shape of its network; parts that --network adds" in described["init"]
    assert default_hint("0.5") == "(default: 0.5)" and default_hint("None") == default_hint("False") == ""


# ---- units ------------------------------------------------------------------------------------------------------------


def test_pieces_of_data_have_the_name_of_what_they_are() -> None:
    pixels = Pixels((4, 4), 17)
    assert kind_of_piece(unnoise.Model.build("mdlm", codec=pixels, length=16, size="nano")) == "images"
    assert kind_of_piece(unnoise.Model.build("mdlm", length=16, size="nano")) == "windows"
    assert kind_of_piece(unnoise.Model.build("flexmdm", length=16, size="nano")) == "sentences"


# ---- what a text became in the model's alphabet -----------------------------------------------------------------------


def test_a_text_is_shown_as_it_is_encoded_with_its_marks() -> None:
    codec = unnoise.codec("text8")
    assert text_as_read("The [WORD] of 42[MASK][MASK]!", codec) == "the [WORD] of four two [MASK][MASK] "
    assert text_as_read("the [WORD] of [GAP]", codec) is None
    assert codec.read_as("a b") is None and codec.read_as("A, b") == "a b"


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ("complete --prefix 'Hello World 42!' --length 12 --steps 1 --num-samples 1", "hello world four two "),
        ("complete --prefix 'Hello ' --suffix World --length 12 --steps 1 --num-samples 1", "hello [GAP]world"),
        ("complete --prefix 'hello ' --length 12 --steps 1 --num-samples 1", None),
        ("infill 'Hello [MASK] 4' --steps 1 --num-samples 1", "hello [MASK] four "),
        ("infill 'The second World [WORD]' --num-samples 1", "the second world [WORD]"),
        ("score 'Hello' --samples 2", "hello"),
        ("denoise 'Hello'", "hello"),
        ("denoise hello", None),
    ],
)
def test_a_command_says_what_its_text_became(line: str, read: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(shlex.split(f"{line} --model wiki --json")) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["read"] == read
    assert err == ("" if read is None else f"the model's codec reads this text as {read!r}\n")


def test_noise_says_what_its_text_became(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(shlex.split("noise 'Fox #1' --times 0")) == 0
    assert capsys.readouterr().err == "the model's codec reads this text as 'fox one '\n"
    assert main(shlex.split("noise 'fox one' --times 0")) == 0
    assert capsys.readouterr().err == ""


def test_wiki_is_described_by_what_it_writes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ls", "--json"]) == 0
    assert "Wikipedia and on children's stories" in json.loads(capsys.readouterr().out)["descriptions"]["wiki"]
    assert "Wikipedia and on children's stories" in card_description(unnoise.load("wiki").card)


def test_info_rounds_what_training_noted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "wiki"]) == 0
    shown = capsys.readouterr().out
    assert "\nvalid bits per char 1.62\n" in shown and "\nseconds    3961\n" in shown
