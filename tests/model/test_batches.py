"""Several network calls at once."""

import threading

import pytest
import torch

from unnoise.distributed import calls_at_once

CPU = torch.device("cpu")


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_results_come_in_order_without_gradients_and_the_threads_are_as_before(threads: int) -> None:
    weight = torch.ones(3, 3, requires_grad=True)

    def call(part: int) -> tuple[int, bool, int]:
        return part, (weight * part).requires_grad, torch.get_num_threads()

    found = list(calls_at_once(call, range(20), CPU))
    assert [part for part, *_ in found] == list(range(20))
    assert not any(gradient for _, gradient, _ in found)
    assert {used for *_, used in found} == {1}
    assert torch.get_num_threads() == threads
    later: list[int] = []
    other = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
    other.start()
    other.join()
    assert later == [threads]


def test_what_a_call_raises_is_raised_and_the_threads_are_as_before(threads: int) -> None:
    def call(part: int) -> int:
        if part == 3:
            raise ValueError("three")
        return part

    with pytest.raises(ValueError, match="three"):
        list(calls_at_once(call, range(8), CPU))
    assert torch.get_num_threads() == threads


def test_results_are_the_same_bits_for_any_number_of_threads() -> None:
    layer = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64))
    parts = list(torch.randn(6, 512, 64))
    before = torch.get_num_threads()
    found = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        found.append(torch.stack(list(calls_at_once(layer, parts, CPU))))
    torch.set_num_threads(before)
    assert torch.equal(*found)
