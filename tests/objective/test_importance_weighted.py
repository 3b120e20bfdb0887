"""The importance-weighted bound: on toys with every order listed, it falls with the number of orders to −log p itself, and that
is what the first-hitting sampler writes."""

import itertools
import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

import unnoise
from toy import Exact, ExactBlocks, Random, Toy
from unnoise.cli.main import main
from unnoise.families.block import Blocks
from unnoise.families.block_objective import BlockElbo, BlockImportanceWeighted
from unnoise.objective import ImportanceWeighted
from unnoise.rng import RowGenerator

TOY = Toy(3, 3)
PROCESS = unnoise.Masked(TOY.vocab, unnoise.Linear())
WRONG = Random(TOY, PROCESS, time=0.0)  # predictions of no distribution: the order matters


def every_order(length: int) -> Tensor:
    """All ranks: [L!, L]."""
    return torch.tensor(list(itertools.permutations(range(length))))


def expected(bound: ImportanceWeighted, denoiser: object, orders: int) -> Tensor:
    """Compute each text's mean bound over all tuples of M orders: [N] float64."""
    tuples = list(itertools.product(every_order(TOY.length), repeat=orders))
    values = [bound.at(denoiser, TOY.x, torch.stack(some)[:, None].expand(-1, len(TOY.x), -1)) for some in tuples]
    return torch.stack(values).mean(0)


def likelihood(denoiser: object) -> Tensor:
    """p(x), the mean over all orders: [N]."""
    bound = ImportanceWeighted(PROCESS)
    ranks = every_order(TOY.length)[:, None].expand(-1, len(TOY.x), -1)
    return (-bound.at(denoiser, TOY.x, ranks)).exp()


def test_it_falls_with_the_number_of_orders_to_the_likelihood_itself() -> None:
    p = likelihood(WRONG)
    assert float(p.sum()) == pytest.approx(1, abs=1e-12)  # a distribution, whatever the denoiser says
    bounds = [expected(ImportanceWeighted(PROCESS), WRONG, orders) for orders in (1, 2)]
    for looser, tighter in itertools.pairwise([*bounds, -p.log()]):
        assert (looser >= tighter - 1e-12).all() and float((looser - tighter).sum()) > 0.05
    drawn = ImportanceWeighted(PROCESS, 1000)(WRONG, TOY.x[:4], torch.Generator().manual_seed(0))
    assert torch.allclose(drawn, -p[:4].log(), atol=0.1)


def test_one_order_is_the_bound_of_continuous_time() -> None:
    """In expectation that of ARDM, all hidden sets listed."""
    single = expected(ImportanceWeighted(PROCESS, 1), WRONG, 1)
    any_order = unnoise.AnyOrder(PROCESS)
    total = torch.zeros(len(TOY.x), dtype=torch.float64)
    for count in range(1, TOY.length + 1):
        sets = list(itertools.combinations(range(TOY.length), count))
        for places in sets:
            hidden = torch.zeros_like(TOY.x, dtype=torch.bool)
            hidden[:, list(places)] = True
            total += any_order.at(WRONG, TOY.x, hidden).double() / len(sets) / TOY.length
    assert torch.allclose(single, total, atol=1e-9)


def test_with_the_exact_mean_every_order_gives_the_likelihood() -> None:
    exact = Exact(TOY, PROCESS, "mean")
    drawn = ImportanceWeighted(PROCESS, 1)(exact, TOY.x, torch.Generator().manual_seed(1))
    assert torch.allclose(drawn, -TOY.p.log(), atol=1e-9)


def test_it_is_the_distribution_that_first_hitting_writes() -> None:
    drawn = unnoise.sample(
        PROCESS, WRONG, batch=20_000, length=TOY.length, sampler=unnoise.FirstHitting(), seed=3, time_free=True
    )
    share = torch.bincount(TOY.index(drawn), minlength=len(TOY.x)) / len(drawn)
    assert 0.5 * float((share - likelihood(WRONG)).abs().sum()) < 0.02


@pytest.mark.parametrize("block", [1, 2, 3])
def test_blocks_have_orders_of_their_own(block: int) -> None:
    process, wrong = Blocks(TOY.vocab, block), ExactBlocks(TOY, error=1.0)
    bound = BlockImportanceWeighted(process, 2)
    rest = TOY.length % block  # tokens of the last block
    orders = every_order(block).repeat(1, TOY.length // block)
    if rest:  # of which each order of the others is combined with one
        orders = torch.cat([orders, every_order(rest).repeat(len(orders), 1)], 1)
    ranks = orders[:, None].expand(-1, len(TOY.x), -1)
    exactly = bound.at(wrong, TOY.x, ranks)
    assert float((-exactly).exp().sum()) == pytest.approx(1, abs=1e-9)  # blocks of each size are a distribution
    single = torch.stack([bound.at(wrong, TOY.x, rank[None]) for rank in ranks]).mean(0)
    drawn = bound(wrong, TOY.x, torch.Generator().manual_seed(0)).double()
    if block == 1:
        elbo = BlockElbo(process)(wrong, TOY.x, torch.Generator().manual_seed(1)).double()
        assert all(torch.allclose(other, exactly, atol=1e-9) for other in (single, drawn, elbo))
    else:
        assert (single >= exactly - 1e-12).all() and float((single - exactly).sum()) > 0.1
        assert abs(float((drawn - exactly).mean())) < float((single - exactly).mean()) + 0.2
    exact = BlockImportanceWeighted(process, 1)(ExactBlocks(TOY), TOY.x, torch.Generator().manual_seed(2))
    assert torch.allclose(exact.double(), -TOY.p.log(), atol=1e-9)


def test_a_row_does_not_depend_on_those_beside_it() -> None:
    bound = ImportanceWeighted(PROCESS, 3)
    rows = torch.arange(5)
    together = bound(WRONG, TOY.x[:5], RowGenerator(7, rows, 5))
    alone = bound(WRONG, TOY.x[3:4], RowGenerator(7, rows[3:4], 5))
    assert torch.equal(together[3:4], alone)


def lively(method: str) -> unnoise.Model:
    model = unnoise.Model.build(method, length=9, size="nano")
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in model.network.parameters():
            weight.add_(0.2 * torch.randn(weight.shape))
    return model


@pytest.mark.parametrize("method", ["mdlm", "ardm", "bd3lm:block=3"])
def test_a_model_scores_with_orders(method: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = lively(method)
    plain = model.score("the cat s", samples=2000, error=0.0)
    one, many = (model.score("the cat s", orders=orders, samples=40, error=0.0) for orders in (1, 32))
    assert abs(one.nats - plain.nats) < 5 * (one.stderr + plain.stderr) * 9 + 0.02 and many.nats < one.nats
    assert many.orders == 32 and plain.orders is None and not many.exact
    model.save(tmp_path)
    assert main(["score", "the cat s", "--model", str(tmp_path), "--orders", "4"]) == 0
    assert "upper bound of 4 orders" in capsys.readouterr().out
    assert main(["score", "the cat s", "--model", str(tmp_path), "--orders", "4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["draws"] == 2


def test_exact_models_stay_exact_and_others_are_refused() -> None:
    for method in ("ar", "bd3lm:block=1"):
        model = lively(method)
        assert model.score("the cat s", orders=3) == model.score("the cat s") and model.score("the cat s").exact
    for method in ("md4", "genmd4", "udlm", "sedd-absorb", "flexmdm"):
        with pytest.raises(ValueError, match="masked models without time conditioning"):
            unnoise.Model.build(method, length=9, size="nano").score("the cat s", orders=2)
    for orders in (0, -1, True, 2.5):
        with pytest.raises(ValueError, match="orders must be a whole number ≥ 1"):
            ImportanceWeighted(PROCESS, orders)
    with pytest.raises(ValueError, match="needs a Masked process"):
        ImportanceWeighted(unnoise.Uniform(3, unnoise.Linear()))
