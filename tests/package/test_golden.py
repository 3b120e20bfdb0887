"""Recorded losses, scores, samples and trained weights stay the same to the last bit."""

import json

import pytest
import torch

import golden
import unnoise

RECORD = json.loads(golden.RECORD.read_text(encoding="utf-8"))


@pytest.fixture(autouse=True)
def one_thread():
    """Run with one thread: the order of a sum depends on the number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def equal(found: str, recorded: str) -> bool:
    """Compare two hexadecimal floats: to the last bit on the machine of the record, to 1e-4 on another one."""
    if golden.machine() == RECORD["machine"]:
        return found == recorded
    return float.fromhex(found) == pytest.approx(float.fromhex(recorded), rel=1e-4)


def test_every_method_is_recorded():
    assert list(RECORD["methods"]) == list(unnoise.methods())


@pytest.mark.parametrize("name", list(RECORD["methods"]))
def test_losses_scores_and_samples_are_unchanged(name: str):
    found, recorded = golden.method_values(name), RECORD["methods"][name]
    assert found.keys() == recorded.keys()
    assert found["samples"] == recorded["samples"]
    assert equal(found["score"], recorded["score"])
    for kind in recorded.keys() - {"samples", "score"}:
        assert len(found[kind]) == golden.BATCHES
        assert all(map(equal, found[kind], recorded[kind])), kind


@pytest.mark.parametrize("name", list(golden.TRAINED))
def test_training_ends_with_the_same_weights(name: str):
    assert equal(golden.trained_values(name, golden.TRAINED[name]), RECORD["trained"][name])
