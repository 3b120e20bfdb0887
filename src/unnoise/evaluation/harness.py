"""What lm-evaluation-harness asks of a model, answered with bounds: log p(answer | prompt), log p(text), and texts that go on.

The answers do not need that package; `lm_eval_model.py` hands them to it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from unnoise.evaluation.conditional import SETS, conditional, greedy
from unnoise.model.draws import draws_for_error
from unnoise.model.model import Model
from unnoise.network.batches import rows_at_once
from unnoise.process.state import FREE
from unnoise.sampler import sample

DRAWS = 128  # of each answer, as in LLaDA's evaluation
NEW_TOKENS = 256  # of a text that goes on, at most
ROWS = 32  # of a batch, at most


class Answer(NamedTuple):
    """log p(answer | prompt), or a lower bound on it (minus a bound in nats), and its standard error by drawing.

    greedy: whether the model would have written just this, taking the likeliest token each time. exact: whether log_p is
    log p itself. shortened: whether the beginning of the prompt did not fit into the model and was left out.
    """

    log_p: float
    stderr: float
    draws: int
    exact: bool
    greedy: bool
    shortened: bool


class WholeText(NamedTuple):
    """log p(text), or a lower bound on it, its standard error by drawing, and into how many windows the text was cut."""

    log_p: float
    stderr: float
    exact: bool
    windows: int


class Continuation(NamedTuple):
    """A text to go on with: up to one of the strings `until`, or so many tokens."""

    prompt: str
    until: tuple[str, ...] = ()
    tokens: int = NEW_TOKENS
    temperature: float = 0.0


@dataclass
class HarnessModel:
    """A model as an evaluation harness asks it.

    draws: of each bound. check_greedy: whether it is found out if an answer of several tokens is what the model would write; a
    call for each token, for noise that is no mask always no. sampling: how texts that go on are written.
    """

    model: Model
    draws: int = DRAWS
    seed: int = 0
    check_greedy: bool = True
    sampling: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.draws < SETS and not self.model.method.exact:
            raise ValueError(f"an error bar needs at least {SETS} draws, found {self.draws}")
        if self.model.codec.grid:
            raise ValueError("the harness asks about texts, and this is a model of images")

    # ---- how likely an answer is -------------------------------------------------------------------------------------

    def pair(self, prompt: str, answer: str) -> tuple[list[int], list[int]]:
        """The tokens of a prompt and of its answer: encoded together and cut, blanks at the prompt's end with the answer."""
        kept = prompt.rstrip()
        answer = prompt[len(kept) :] + answer
        before = self.model.codec.encode(kept).tolist()
        whole = self.model.codec.encode(kept + answer).tolist()
        return before, whole[len(before) :]

    def loglikelihood(self, pairs: Sequence[tuple[str, str]]) -> list[Answer]:
        """log p(answer | prompt) of each pair; the prompt is never noised."""
        groups: dict[int, list[tuple[int, list[int], list[int], bool]]] = {}
        length = self.model.length
        found: dict[int, Answer] = {}
        for number, (prompt, answer) in enumerate(pairs):
            before, after = self.pair(prompt, answer)
            if not after:
                found[number] = Answer(0.0, 0.0, 0, True, True, False)
                continue
            if len(after) > length:
                raise ValueError(f"an answer has {len(after)} tokens, and this model reads {length}: it cannot be judged whole")
            shortened = len(before) + len(after) > length
            before = before[max(0, len(before) + len(after) - length) :]
            groups.setdefault(len(before) + len(after), []).append((number, before, after, shortened))
        for group in groups.values():
            numbers = torch.tensor([number for number, *_ in group])
            x = torch.tensor([before + after for _, before, after, _ in group])
            given = torch.tensor([len(before) for _, before, _, _ in group])
            known = torch.arange(x.shape[1]) < given[:, None]
            bound = conditional(self.model, x, known, max(self.draws, SETS), self.seed, numbers=numbers)
            likeliest = (
                greedy(self.model, x, known) if self.check_greedy else bound.exact & greedy_at_once(self.model, x, known)
            )
            for i, (number, _, _, shortened) in enumerate(group):
                found[number] = Answer(
                    -float(bound.nats[i]),
                    float(bound.stderr[i]),
                    int(bound.draws[i]),
                    bool(bound.exact[i]),
                    bool(likeliest[i]),
                    shortened,
                )
        return [found[number] for number in range(len(pairs))]

    def rolling(self, texts: Sequence[str]) -> list[WholeText]:
        """The bound of whole texts, each in windows of the model's length."""
        return [self._rolled(text) for text in texts]

    def _rolled(self, text: str) -> WholeText:
        draws = max(self.draws // 4, draws_for_error(self.model, 1, self.model.length))
        score = self.model.score(text, draws, self.seed, error=0.0)
        assert score.stderr is not None
        return WholeText(-score.nats, score.stderr * score.characters * math.log(2), score.exact, score.windows)

    # ---- texts that go on --------------------------------------------------------------------------------------------

    def generate(self, requests: Sequence[Continuation]) -> list[str]:
        """What follows each prompt; prompts of equal length are written together."""
        groups: dict[tuple[int, int, float], list[tuple[int, list[int]]]] = {}
        for number, one in enumerate(requests):
            tokens = max(1, min(one.tokens, self.model.length - 1))
            prompt = self.model.codec.encode_before(one.prompt).tolist()
            prompt = prompt[max(0, len(prompt) + tokens - self.model.length) :]
            groups.setdefault((len(prompt), tokens, one.temperature), []).append((number, prompt))
        found: dict[int, str] = {}
        for (given, tokens, temperature), group in groups.items():
            at_once = rows_at_once(given + tokens, ROWS, self.model.device)
            for start in range(0, len(group), at_once):
                some = group[start : start + at_once]
                rows = self._written([prompt for _, prompt in some], tokens, temperature, some[0][0])
                for (number, prompt), row in zip(some, rows, strict=True):
                    text = self.model.codec.decode_after(prompt, row[given:])
                    found[number] = until(text, requests[number].until)
        return [found[number] for number in range(len(requests))]

    def _written(self, prompts: list[list[int]], tokens: int, temperature: float, first: int) -> list[list[int]]:
        model = self.model
        if model.process.variable_length:
            raise ValueError(f"{model.method.name} chooses the length of texts itself: it is not asked to go on with one here")
        options = model.sampling_options({"seed": self.seed, **(self.sampling or {}), "temperature": temperature})
        sampler = options.resolve(model.method.sampler)
        model.check_sampler(sampler)
        given = torch.tensor([[*prompt, *[FREE] * tokens] for prompt in prompts])
        model.network.eval()
        return sample(
            model.process,
            model.denoiser,
            batch=len(given),
            length=given.shape[1],
            sampler=sampler,
            given=given,
            seed=options.seed,
            time_free=model.method.time_free,
            independent_rows=True,
            first_row=first,
        ).tolist()


def greedy_at_once(model: Model, x: torch.Tensor, known: torch.Tensor) -> torch.Tensor:
    """`greedy` for those answers for which one call tells: all of an exact model, and those of one token: [N] bool."""
    one_call = torch.full((len(x),), model.method.exact) | ((~known).sum(1) == 1)
    found = torch.zeros(len(x), dtype=torch.bool)
    if bool(one_call.any()):
        found[one_call] = greedy(model, x[one_call], known[one_call])
    return found


def until(text: str, stops: Sequence[str]) -> str:
    """The text before the first of these strings."""
    ends = [place for stop in stops if stop and (place := text.find(stop)) >= 0]
    return text[: min(ends)] if ends else text
