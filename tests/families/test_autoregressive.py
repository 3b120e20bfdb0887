"""Left-to-right models on a toy whose conditionals are known: the likelihood is exact, and so is what is drawn."""

import pytest
import torch
from torch import Tensor

from toy import Toy, chi_square
from unnoise import sample, sample_frames
from unnoise.denoiser import SamplingDenoiser
from unnoise.families.autoregressive import Autoregressive, LeftToRight
from unnoise.prediction import MeanPrediction
from unnoise.process.state import ProcessBase
from unnoise.rng import RowGenerator

TOY = Toy(3, 3, seed=0)
DRAWS = 20_000

pytestmark = pytest.mark.usefixtures("double")


class Known:
    """log p(x^i | x^{<i}) of the toy; the cache is the tokens so far, the start symbol first. read counts tokens."""

    def __init__(self, toy: Toy = TOY):
        self.toy, self.read = toy, 0

    def next_token(self, tokens: Tensor, cache: object | None) -> tuple[Tensor, object]:
        before = cache if isinstance(cache, Tensor) else tokens[:, :0]
        seen = torch.cat([before, tokens], 1)
        assert (seen[:, 0] == self.toy.vocab).all()
        self.read += tokens.shape[1]
        rows = [self.after(seen[:, 1 : n + 1]) for n in range(before.shape[1], seen.shape[1])]
        return torch.stack(rows, 1), seen

    def after(self, prefix: Tensor) -> Tensor:
        """log p of what follows a prefix [B, n]: [B, K]."""
        n = prefix.shape[1]
        fits = (self.toy.x[None, :, :n] == prefix[:, None]).all(-1).double() * self.toy.p
        weights = self.toy.marginals(fits, min(n, self.toy.length - 1))
        return (weights / weights.sum(-1, keepdim=True)).log()


def space(end: int | None = None) -> ProcessBase:
    made = ProcessBase(TOY.vocab)
    made.end = end
    return made


def conditional(i: int) -> Tensor:
    """p(x^i | x^{<i}) of every text: [N]."""
    fits = (TOY.x[:, None, : i + 1] == TOY.x[None, :, : i + 1]).all(-1).double() @ TOY.p
    before = (TOY.x[:, None, :i] == TOY.x[None, :, :i]).all(-1).double() @ TOY.p
    return fits / before


def drawn(sampler: LeftToRight, given: list[int] | None = None, end: int | None = None) -> Tensor:
    known = None if given is None else torch.tensor([given]).expand(DRAWS, TOY.length).contiguous()
    return sample(space(end), Known(), batch=DRAWS, length=TOY.length, sampler=sampler, given=known, seed=4)


def counts(x: Tensor) -> Tensor:
    return torch.bincount(TOY.index(x), minlength=len(TOY.x))


def test_the_likelihood_is_that_of_the_text() -> None:
    assert torch.allclose(Autoregressive(space())(Known(), TOY.x), -TOY.p.log(), atol=1e-12)


def test_padding_costs_nothing() -> None:
    """Give a text that ends early the probability of its tokens, whatever could follow."""
    for length in (1, 2):
        x = TOY.x.clone()
        x[:, length:] = -1
        prefix = torch.stack([conditional(i) for i in range(length)]).log().sum(0)
        assert torch.allclose(Autoregressive(space())(Known(), x), -prefix, atol=1e-12)


def test_what_is_drawn_follows_the_model() -> None:
    assert chi_square(counts(drawn(LeftToRight())), TOY.p) > 1e-4


@pytest.mark.parametrize(("temperature", "top_p"), [(0.6, 1.0), (1.0, 0.7), (1.5, 0.8)])
def test_each_conditional_is_shaped(temperature: float, top_p: float) -> None:
    law = torch.ones(len(TOY.x))
    for i in range(TOY.length):
        shaped = MeanPrediction(Known().after(TOY.x[:, :i])).shaped(temperature, top_p).log_probs.exp()
        law = law * shaped.gather(1, TOY.x[:, i : i + 1])[:, 0]
    assert float(law.sum()) == pytest.approx(1)
    assert chi_square(counts(drawn(LeftToRight(temperature=temperature, top_p=top_p))), law) > 1e-4


@pytest.mark.parametrize("given", [[2, -1, -1], [-1, 1, -1], [0, -1, 2], [-1, -1, 1]])
def test_given_tokens_stay_and_are_read_by_what_follows_them(given: list[int]) -> None:
    """p(x) = Π over free positions of p(x^i | x^{<i}): the conditional where only a beginning is given."""
    law = torch.ones(len(TOY.x))
    for i, token in enumerate(given):
        law = law * (conditional(i) if token < 0 else (TOY.x[:, i] == token))
    assert float(law.sum()) == pytest.approx(1)
    assert chi_square(counts(drawn(LeftToRight(), given)), law) > 1e-4


def test_rows_may_be_given_other_positions() -> None:
    given = torch.tensor([[2, -1, -1], [-1, 1, -1], [-1, -1, -1]])
    found = sample(space(), Known(), batch=3, length=3, sampler=LeftToRight(), given=given, seed=1)
    assert found[0, 0] == 2 and found[1, 1] == 1 and not (found < 0).any()


def test_confidence_is_the_models_own_whatever_shapes_the_draw() -> None:
    """p(x^i | x^{<i}) of the tokens that were written; 0 for those of a given beginning, which nothing predicted."""
    given = torch.tensor([[1, -1, -1]]).expand(50, 3).contiguous()
    frames = list(
        sample_frames(
            space(), Known(), batch=50, length=3, sampler=LeftToRight(temperature=0.5, top_p=0.9), given=given, seed=2
        )
    )
    last = frames[-1]
    where = TOY.index(last.x)
    wanted = torch.stack([torch.zeros(50), conditional(1)[where], conditional(2)[where]], 1)
    assert torch.allclose(last.confidence.double(), wanted, atol=1e-6)
    assert [frame.settled for frame in frames[1:]] == [2, 3] and [frame.t for frame in frames[1:]] == pytest.approx([1 / 3, 0])


def test_a_text_that_has_ended_is_not_written_on() -> None:
    """With the end token 2 a text is what comes before it; what follows is filled with it and has no say."""
    found = drawn(LeftToRight(), end=2)
    ended = (found == 2).long().cummax(1).values.bool()
    assert (found[ended] == 2).all()

    def filled(x: Tensor) -> Tensor:
        return torch.where((x == 2).long().cummax(1).values.bool(), 2, x)

    law = torch.zeros(len(TOY.x)).index_add(0, TOY.index(filled(TOY.x)), TOY.p)
    assert chi_square(counts(found), law) > 1e-4


def test_an_end_that_is_given_does_not_fill_what_is_given_after_it() -> None:
    found = drawn(LeftToRight(), [2, 1, -1], end=2)
    assert (found[:, 0] == 2).all() and (found[:, 1] == 1).all()


def test_rows_with_a_given_end_are_written_to_their_own_end() -> None:
    """Beside rows that have ended: no position is left blank."""
    given = torch.tensor([[0, 2, -1], [0, -1, -1]])
    for seed in range(20):
        found = sample(space(2), Known(), batch=2, length=3, sampler=LeftToRight(), given=given, seed=seed)
        assert int(found.max()) < TOY.vocab and found[0, 1] == 2


def test_each_token_is_read_once() -> None:
    process, known = space(), Known()
    given = torch.tensor([[0, 1, -1], [1, 1, -1]])
    calls = SamplingDenoiser(process, process, known, 3)  # pyright: ignore[reportArgumentType]
    list(LeftToRight().frames(calls, process.begin(given), given < 0, RowGenerator(0, torch.arange(2))))
    assert known.read == 3 and calls.nfe == 2  # the start and the two given tokens, in one call for two rows
