"""Requests of lm-evaluation-harness, answered with bounds: log p(answer | prompt), log p(text), and continuations of prompts.

This module works without that package. `tasks.py` passes the requests on.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from unnoise.distributed import rows_at_once
from unnoise.evaluation.conditional import SETS, conditional, greedy
from unnoise.model.draws import draws_for_error
from unnoise.model.model import Model
from unnoise.process.state import TO_FILL
from unnoise.sampler import sample

NEW_TOKENS = 256  # largest length of a continuation
ROWS = 32  # largest batch


class Answer(NamedTuple):
    """Log-probability of an answer, given its prompt.

    log_p: log p(answer | prompt), or a lower bound on it.
    stderr: standard error of log_p over the draws.
    exact: whether log_p is exact.
    greedy: whether greedy sampling from the prompt gives this answer.
    shortened: whether the prompt lost its beginning because it was too long for the model.
    """

    log_p: float
    stderr: float
    draws: int
    exact: bool
    greedy: bool
    shortened: bool


class WholeText(NamedTuple):
    """Log-probability of a text, or a lower bound on it, summed over its windows."""

    log_p: float
    stderr: float
    exact: bool
    windows: int


class Continuation(NamedTuple):
    """Prompt to continue up to one of the strings `until`, or for a number of tokens."""

    prompt: str
    until: tuple[str, ...] = ()
    tokens: int = NEW_TOKENS
    temperature: float = 0.0


@dataclass(frozen=True, kw_only=True)
class HarnessOptions:
    """Options for answering the harness.

    draws: number of draws of each bound. LLaDA's evaluation uses the default.
    check_greedy: whether to check if the model would generate an answer of several tokens, by one network call for each token.
        The check needs noise with a mask.
    steps, sampler: options for sampling continuations; default: the model's own.
    """

    draws: int = 128
    seed: int = 0
    check_greedy: bool = True
    steps: int | None = None
    sampler: str | None = None


class HarnessModel:
    """Model that answers requests of the harness."""

    def __init__(self, model: Model, options: HarnessOptions | None = None):
        self.model, self.options = model, options or HarnessOptions()
        if self.options.draws < SETS and not model.method.exact:
            raise ValueError(f"an error bar needs at least {SETS} draws, found {self.options.draws}")
        if model.codec.grid:
            raise ValueError("the harness needs a model of text, found a model of images")

    def pair(self, prompt: str, answer: str) -> tuple[list[int], list[int]]:
        """Return the tokens of a prompt and of its answer, encoded together.

        Spaces at the end of the prompt belong to the answer.
        """
        kept = prompt.rstrip()
        answer = prompt[len(kept) :] + answer
        before = self.model.codec.encode(kept).tolist()
        whole = self.model.codec.encode(kept + answer).tolist()
        return before, whole[len(before) :]

    def loglikelihood(self, pairs: Sequence[tuple[str, str]]) -> list[Answer]:
        """Return log p(answer | prompt) of each pair. The prompt is never noised."""
        groups: dict[int, list[tuple[int, list[int], list[int], bool]]] = {}
        length = self.model.length
        found: dict[int, Answer] = {}
        for number, (prompt, answer) in enumerate(pairs):
            before, after = self.pair(prompt, answer)
            if not after:
                found[number] = Answer(log_p=0.0, stderr=0.0, draws=0, exact=True, greedy=True, shortened=False)
                continue
            if len(after) > length:
                raise ValueError(f"an answer has {len(after)} tokens, more than the model's length of {length}")
            shortened = len(before) + len(after) > length
            before = before[max(0, len(before) + len(after) - length) :]
            groups.setdefault(len(before) + len(after), []).append((number, before, after, shortened))
        for group in groups.values():
            numbers = torch.tensor([number for number, *_ in group])
            x = torch.tensor([before + after for _, before, after, _ in group])
            given = torch.tensor([len(before) for _, before, _, _ in group])
            known = torch.arange(x.shape[1]) < given[:, None]
            bound = conditional(
                self.model, x, known, draws=max(self.options.draws, SETS), seed=self.options.seed, numbers=numbers
            )
            likeliest = (
                greedy(self.model, x, known)
                if self.options.check_greedy
                else bound.exact & greedy_at_once(self.model, x, known)
            )
            for i, (number, _, _, shortened) in enumerate(group):
                found[number] = Answer(
                    log_p=-float(bound.nats[i]),
                    stderr=float(bound.stderr[i]),
                    draws=int(bound.draws[i]),
                    exact=bool(bound.exact[i]),
                    greedy=bool(likeliest[i]),
                    shortened=shortened,
                )
        return [found[number] for number in range(len(pairs))]

    def rolling(self, texts: Sequence[str]) -> list[WholeText]:
        """Return the bound of each text, summed over windows of the model's length."""
        draws = max(self.options.draws // 4, draws_for_error(self.model, 1, self.model.length))
        found = []
        for text in texts:
            score = self.model.score(text, draws, self.options.seed, error=0.0)
            assert score.stderr is not None
            stderr = score.stderr * score.characters * math.log(2)
            found.append(WholeText(-score.nats, stderr, score.exact, score.windows))
        return found

    def generate(self, requests: Sequence[Continuation]) -> list[str]:
        """Sample a continuation of each prompt. Prompts of equal length share a batch."""
        groups: dict[tuple[int, int, float], list[tuple[int, list[int]]]] = {}
        for number, one in enumerate(requests):
            tokens = max(1, min(one.tokens, self.model.length - 1))
            prompt = self.model.codec.encode_prefix(one.prompt).tolist()
            prompt = prompt[max(0, len(prompt) + tokens - self.model.length) :]
            groups.setdefault((len(prompt), tokens, one.temperature), []).append((number, prompt))
        found: dict[int, str] = {}
        for (given, tokens, temperature), group in groups.items():
            at_once = rows_at_once(given + tokens, ROWS, self.model.device)
            for start in range(0, len(group), at_once):
                some = group[start : start + at_once]
                rows = self._sample([prompt for _, prompt in some], tokens, temperature, some[0][0])
                for (number, prompt), row in zip(some, rows, strict=True):
                    text = self.model.codec.decode_after(prompt, row[given:])
                    found[number] = until(text, requests[number].until)
        return [found[number] for number in range(len(requests))]

    def _sample(self, prompts: list[list[int]], tokens: int, temperature: float, first: int) -> list[list[int]]:
        model = self.model
        if model.process.variable_length:
            raise ValueError(
                f"{model.method.name} samples texts of variable length, so it cannot continue a prompt in the harness"
            )
        mine = self.options
        options = model.sampling_options(
            {"seed": mine.seed, "steps": mine.steps, "sampler": mine.sampler, "temperature": temperature}
        )
        sampler = options.resolve(model.method.sampler)
        model.check_sampler(sampler)
        given = torch.tensor([[*prompt, *[TO_FILL] * tokens] for prompt in prompts])
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
    """Return `greedy` of the answers that take one network call, and False for others: [N] bool.

    One call is enough for an exact model, and for answers of one token.
    """
    one_call = torch.full((len(x),), model.method.exact) | ((~known).sum(1) == 1)
    found = torch.zeros(len(x), dtype=torch.bool)
    if bool(one_call.any()):
        found[one_call] = greedy(model, x[one_call], known[one_call])
    return found


def until(text: str, stops: Sequence[str]) -> str:
    """Return the text before the first of these strings."""
    ends = [place for stop in stops if stop and (place := text.find(stop)) >= 0]
    return text[: min(ends)] if ends else text
