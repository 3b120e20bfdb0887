"""The order in which texts are read: each once in every epoch, fixed by the seed and a text's number alone."""

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from unnoise.data.texts import LabelledWindows, Sequences, Windows
from unnoise.process.state import PAD
from unnoise.rng import shuffled


@settings(deadline=None)
@given(st.integers(1, 500), st.integers(0, 2**62), st.integers(0, 5))
def test_every_epoch_is_a_permutation(count: int, seed: int, first: int) -> None:
    numbers = torch.arange(first * count, (first + 3) * count)
    epoch, place = shuffled(numbers, count, seed)
    assert torch.equal(epoch, numbers // count)
    for i in range(3):
        assert torch.equal(place[epoch == first + i].sort().values, torch.arange(count))


def test_a_large_permutation_is_one_and_looks_random() -> None:
    count = 100_003
    place = shuffled(torch.arange(3 * count), count, 7)[1].view(3, count).double()
    for one in place:
        assert torch.equal(one.long().sort().values, torch.arange(count))
    centred = (place - (count - 1) / 2) / (count / 12**0.5)
    bound = 4.5 / count**0.5
    assert float((centred[0] * centred[1]).mean()) < bound and float((centred[1] * centred[2]).mean()) < bound  # epochs
    assert abs(float((centred[0, 1:] * centred[0, :-1]).mean())) < bound  # neighbours
    line = torch.arange(count).double()
    assert abs(float((centred[0] * (line - line.mean())).mean()) / (count / 12**0.5)) < bound  # place and number


def test_small_permutations_favour_no_place() -> None:
    """χ² over where number 0 … 4 of 5 falls, over many epochs and over many seeds: 16 degrees of freedom."""
    by_epoch = shuffled(torch.arange(5 * 40_000), 5, 3)[1].view(-1, 5)
    by_seed = torch.stack([shuffled(torch.arange(5), 5, seed)[1] for seed in range(500)])
    for places in (by_epoch, by_seed):
        counts = torch.stack([torch.bincount(places[:, i], minlength=5) for i in range(5)]).double()
        expected = len(places) / 5
        assert float(((counts - expected) ** 2 / expected).sum()) < 45  # p = 1e-4


def starts(stream: Windows, epoch: int, seed: int = 0) -> Tensor:
    """Return the starts of an epoch's windows, in a stream of consecutive numbers."""
    return stream.batch(torch.arange(epoch * stream.count, (epoch + 1) * stream.count), seed).x[:, 0].sort().values


@pytest.mark.parametrize("size", [8, 9, 14, 15, 16, 17, 64, 1000, 1007])
def test_every_window_of_a_stream_once_an_epoch(size: int) -> None:
    stream = Windows(torch.arange(size), 8)
    assert stream.count * 8 <= size < (stream.count + 2) * 8
    firsts = set()
    for epoch in range(40):
        found = starts(stream, epoch)
        assert torch.equal(found, found[0] + 8 * torch.arange(stream.count))  # side by side, none twice
        assert int(found[-1]) + 8 <= size
        firsts.add(int(found[0]))
    spare = size - 8 * stream.count
    assert len(firsts) > min(spare, 5) and (max(firsts) == spare or spare > 10)  # the grid moves, up to the end


def texts_of_every_kind() -> dict[str, Windows | LabelledWindows | Sequences]:
    return {
        "stream": Windows(torch.arange(300), 8),
        "labelled": LabelledWindows({0: Windows(torch.arange(100), 8), 2: Windows(torch.arange(1000, 1055), 8)}),
        "rows": Sequences.from_table(torch.arange(77)[:, None].expand(77, 3).clone()),
    }


@pytest.mark.parametrize("kind", texts_of_every_kind())
def test_a_number_alone_decides(kind: str) -> None:
    """Not how the numbers are divided among batches or processes, nor in which order they are asked for."""
    texts = texts_of_every_kind()[kind]
    numbers = torch.arange(250)
    whole = texts.batch(numbers, 5).x
    parts = [texts.batch(part, 5).x for part in numbers.tensor_split(7)]
    assert torch.equal(torch.cat(parts), whole)
    mixed = torch.randperm(250, generator=torch.Generator().manual_seed(0))
    assert torch.equal(texts.batch(mixed, 5).x, whole[mixed])
    assert not torch.equal(texts.batch(numbers, 6).x, whole)
    one = texts.batch(numbers[: texts.count], 5).x
    two = texts.batch(numbers[: texts.count] + texts.count, 5).x
    assert not torch.equal(one, two) and len(set(map(tuple, one.tolist()))) == texts.count


def test_labels_go_with_their_windows() -> None:
    texts = texts_of_every_kind()["labelled"]
    batch = texts.batch(torch.arange(3 * texts.count), 0)
    assert batch.label is not None and torch.equal(batch.label == 2, batch.x[:, 0] >= 1000)
    assert texts.windows().shape == (texts.num_windows, 8) == (12 + 6, 8)


def test_rows_of_unequal_length_once_an_epoch() -> None:
    rows = torch.tensor([[1, PAD, PAD], [2, 3, PAD], [4, 5, 6]])
    texts = Sequences.from_table(rows)
    found = texts.batch(torch.arange(6), 9).x
    for epoch in found.split(3):
        assert sorted(map(tuple, epoch.tolist())) == sorted(map(tuple, rows.tolist()))
    assert texts.mean_length == 2
