"""Defaults of readers of published weights, where a configuration is silent, against the authors' code."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from torch import Tensor

import unnoise
from unnoise.checkpoint.published import ddit_layouts, engine_files, md4_weights as md4
from unnoise.checkpoint.published.reader import Choices
from unnoise.checkpoint.published.tokenizer_files import sentencepiece
from unnoise.network.llama import Llama

PARITY = Path(__file__).parents[1] / "fixtures" / "parity"


def test_sedd_has_the_noise_of_its_code_where_none_is_said() -> None:
    """`GeometricNoise(sigma_min=1e-4, sigma_max=20)` is what its code makes without arguments."""
    options, reads = ddit_layouts.noise_options({"type": "geometric"})
    assert (options["sigma_min"], options["sigma_max"]) == (reads["sigma_min"], reads["sigma_max"]) == (1e-4, 20.0)
    assert ddit_layouts.noise_options({"type": "geometric", "sigma_min": 0.01, "sigma_max": 5})[0]["sigma_min"] == 0.01


def test_the_schedules_of_md4_keep_a_ten_thousandth_at_both_ends() -> None:
    """α(0) = 1 − ε and α(1) = ε with ε = 10⁻⁴, as in `MaskingSchedule` of its code."""
    folder = PARITY / "md4"
    found = md4.read_md4(folder, json.loads((folder / "config.json").read_text()), Choices())
    schedule = unnoise.method(found.method).process(5).schedule
    ends = schedule.alpha(torch.tensor([0.0, 1.0], dtype=torch.float64))
    assert ends.tolist() == pytest.approx([1 - 1e-4, 1e-4], abs=1e-12)


def test_llada_has_the_epsilon_of_its_configuration_class_where_none_is_said(tmp_path: Path) -> None:
    """`rms_norm_eps` is 1e-5 in LLaDA's ModelConfig."""
    shutil.copytree(PARITY / "llada", tmp_path / "llada")
    path = tmp_path / "llada" / "config.json"
    described = json.loads(path.read_text())
    described.pop("rms_norm_eps", None)
    path.write_text(json.dumps(described))
    assert unnoise.load(tmp_path / "llada").network.config["norm_eps"] == 1e-5


def test_which_of_the_last_rows_is_the_mask_of_flex_mdm() -> None:
    """Ours is behind the tokens, and padding behind it: where the file has padding first they are exchanged… and only there."""
    described = json.loads((PARITY / "flexmdm" / "config.json").read_text())
    noise = described["interpolant"]
    for padding, mask in ((noise["tokens"] - 2, noise["tokens"] - 1), (noise["tokens"] - 1, noise["tokens"] - 2)):
        noise["pad_token"], noise["mask_token"] = padding, mask
        assert ddit_layouts.flexmdm_layout(described).swapped is (mask < padding)


def test_linear_scaling_divides_the_places() -> None:
    """Read a factor of 4 from a GGUF file: the angle of place 4 is what that of place 1 was."""
    width, vocab = 8, 300
    tokens = [f"<{i}>" for i in range(vocab)]
    about = {
        "general.architecture": "qwen2",
        "qwen2.embedding_length": width,
        "qwen2.attention.head_count": 2,
        "qwen2.context_length": 16,
        "qwen2.block_count": 0,
        "qwen2.feed_forward_length": 8,
        "qwen2.attention.layer_norm_rms_epsilon": 1e-5,
        "qwen2.rope.scaling.type": "linear",
        "qwen2.rope.scaling.factor": 4.0,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.merges": [],
        "tokenizer.ggml.eos_token_id": 0,
    }
    found: dict[str, Tensor] = {"token_embd.weight": torch.zeros(vocab, width), "output_norm.weight": torch.ones(width)}
    config = engine_files._gguf_model(about, found).config | {"depth": 1}
    plain = Llama(**(config | {"rotary_factors": ()}))
    scaled = Llama(**config)
    assert torch.allclose(4 * scaled.frequencies, 1 * plain.frequencies)


def test_the_pieces_of_the_highest_score_are_joined_first() -> None:
    """Of a, b, ab, bc and abc with scores: "abc" is joined as ab + c or a + bc, whichever pair has the higher score."""
    tokens = ["<unk>", "a", "b", "c", "ab", "bc"]
    for first, second, wanted in ((-1.0, -2.0, ["ab", "c"]), (-2.0, -1.0, ["a", "bc"])):
        made = sentencepiece(tokens, [0.0, -9.0, -9.0, -9.0, first, second], "<unk>", {"<unk>"}, prefix=False)
        assert made.encode("abc").tokens == wanted
