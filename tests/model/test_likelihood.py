"""Error bars that hold: what is reported is what another seed would differ by."""

import json
import math

import pytest
import torch

import unnoise
from unnoise.data.texts import Windows
from unnoise.model.draws import estimate

TEXT = "the cat sat on the mat while a dog barked at the moon and seven birds sang in the old tree "


@pytest.fixture(scope="module")
def models() -> dict[str, unnoise.Model]:
    """Models that have learned a little, so that their bounds differ from text to text and from time to time."""
    made = {}
    for name in ("mdlm", "udlm", "sedd-absorb"):
        made[name] = unnoise.Model.build(name, width=16, depth=1, heads=2, length=16)
        unnoise.train(made[name], TEXT * 30, steps=40, loss="fast", batch=4, eval_windows=2)
    return made


@pytest.mark.parametrize("name", ["mdlm", "udlm", "sedd-absorb"])
def test_the_reported_error_is_the_spread_over_seeds(models: dict[str, unnoise.Model], name: str) -> None:
    model = models[name]
    texts = Windows(torch.from_numpy(model.codec.encode(TEXT * 60)), 16)
    found = [model.bits_per_char(texts, 96, 4, seed) for seed in range(20)]
    spread = float(torch.tensor([one.bits for one in found]).std())
    reported = math.sqrt(sum(one.stderr**2 for one in found) / len(found))
    assert 0.7 < spread / reported < 1.4
    assert all(one.draws == 4 and one.windows == 96 for one in found)


@pytest.mark.parametrize("text", [TEXT[:12], TEXT, TEXT * 8])
def test_so_is_that_of_a_score(models: dict[str, unnoise.Model], text: str) -> None:
    found = [models["mdlm"].score(text, samples=16, seed=seed, error=0.0) for seed in range(20)]
    spread = float(torch.tensor([one.bits_per_char for one in found]).std())
    reported = math.sqrt(sum(one.stderr**2 for one in found if one.stderr is not None) / len(found))
    assert 0.6 < spread / reported < 1.5 and found[0].draws == 16


def test_no_error_bar_is_small_by_chance(models: dict[str, unnoise.Model]) -> None:
    """At the end of training: 32 windows, two draws each."""
    model = models["mdlm"]
    texts = Windows(torch.from_numpy(model.codec.encode(TEXT * 20)), 16)
    errors = torch.tensor([model.bits_per_char(texts, 32, 2, seed).stderr for seed in range(40)])
    assert float(errors.min()) > 0.3 * float(errors.mean())


def test_as_many_draws_as_the_error_takes(models: dict[str, unnoise.Model]) -> None:
    model = models["mdlm"]
    few, many = model.score(TEXT * 40, error=0.5), model.score(TEXT * 40, error=0.004, samples=200)
    assert few.draws == 2 and few.reached and few.stderr is not None and few.stderr < 0.5
    assert 2 < many.draws < 200 and many.stderr is not None and many.stderr < 0.006
    assert many.reached == (many.stderr <= 0.004)
    missed = model.score(TEXT, samples=16, error=1e-6)
    assert missed.draws == 16 and not missed.reached
    assert model.score(TEXT, samples=16, error=0.0).reached, "nothing was asked for"
    assert model.score(TEXT, seed=3) == model.score(TEXT, seed=3)
    with pytest.raises(ValueError, match="must be ≥ 0 and finite, found -1"):
        model.score(TEXT, error=-1)


def test_too_few_draws_give_no_error_bar(models: dict[str, unnoise.Model]) -> None:
    text = TEXT[:16]
    for samples in (1, 2, 15):
        found = models["mdlm"].score(text, samples=samples)
        assert found.stderr is None and found.interval is None and not found.reached and found.draws <= samples
    found = models["mdlm"].score(text, samples=16)
    assert found.stderr is not None and found.interval is not None and found.draws == 16
    assert found.interval[0] < found.bits_per_char < found.interval[1]


@torch.no_grad()
@pytest.mark.parametrize("name", ["mdlm", "udlm"])
def test_pilots_and_draws_have_noise_of_their_own(models: dict[str, unnoise.Model], name: str) -> None:
    """Equal, to the last bit, the mean of the same number of draws with error=0: the pilot is not part of it."""
    model = models[name]
    once = model.score(TEXT, samples=24, error=0.0).stderr
    assert once is not None
    planned = model.score(TEXT, samples=200, error=once, seed=5)
    assert 2 < planned.draws < 200
    again = model.score(TEXT, samples=planned.draws, error=0.0, seed=5)
    assert (planned.nats, planned.stderr, planned.interval) == (again.nats, again.stderr, again.interval)


def test_one_window_has_an_error_by_drawing_and_none_over_texts(models: dict[str, unnoise.Model]) -> None:
    model = models["mdlm"]
    one = model.bits_per_char(Windows(torch.from_numpy(model.codec.encode(TEXT)), 16), 1, 8)
    assert one.stderr > 0 and one.text_stderr is None and "NaN" not in json.dumps(vars(one))


def test_an_exact_model_has_no_error_by_drawing() -> None:
    model = unnoise.Model.build("ar", width=16, depth=1, heads=2, length=16)
    unnoise.train(model, TEXT * 30, steps=5, loss="fast", batch=4, eval_windows=2)
    found = model.bits_per_char(Windows(torch.from_numpy(model.codec.encode(TEXT * 4)), 16), None, 4)
    assert found.stderr == 0 and found.draws == 1 and found.text_stderr is not None and found.text_stderr > 0
    assert estimate(model, torch.zeros(3, 16, dtype=torch.long), 4).spread.stderr == 0
    score = model.score(TEXT)
    assert score.stderr == 0 and score.interval == (score.bits_per_char, score.bits_per_char) and score.reached
