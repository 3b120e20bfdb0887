"""Completions for OpenAI's clients: text after a prompt, or between a prompt and a suffix."""

import secrets
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from unnoise.apps.studio.jobs import BadRequest, Message, Steps, encoded
from unnoise.apps.studio.models import ChainRun, Models
from unnoise.apps.studio.request import MOST_STEPS, Field, RequestFields, requested_model
from unnoise.model.generate import GAP, MARKS, MASK, WORD, as_suffix, given_sides
from unnoise.model.model import Model

MOST_PROMPTS = 16
MOST_CHOICES = 8
MOST_DRAWN = 20  # samples of `best_of`
NEUTRAL = {
    "logprobs": (),
    "logit_bias": ({},),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
}  # accepted values of unsupported fields


@dataclass(frozen=True)
class CompletionRequest:
    """A parsed request: for each prompt, the most probable `n` of `best_of` samples with at most `rooms` new tokens."""

    name: str
    model: Model
    prompts: list[str]
    rooms: list[int]
    suffix: str
    n: int
    best_of: int
    stops: list[str]
    echo: bool
    stream: bool
    options: dict[str, Any]

    def tokens(self, prompt: str) -> int:
        """Return the number of tokens of a prompt and the suffix."""
        return sum(map(len, given_sides(prompt, self.suffix, self.model.codec)))

    @property
    def blank(self) -> str:
        """The blank that the model expects before the suffix, if the suffix has none."""
        return as_suffix(self.suffix, self.model.codec).removesuffix(self.suffix)


class Completion(NamedTuple):
    """A sampled text, with its prompt if requested, its number of new tokens and their mean confidence."""

    text: str
    finish_reason: str
    tokens: int
    confidence: float


# ---- requests -----------------------------------------------------------------------------------------------------------


def requested_stream(fields: RequestFields) -> tuple[bool, bool]:
    """Return whether the response is streamed, and whether a final message reports the token usage."""
    stream, options = fields.take("stream", Field(bool, False)), fields.raw("stream_options")
    if options is None:
        return stream, False
    if not stream:
        raise BadRequest("The field 'stream_options' goes with stream: true.", param="stream_options")
    try:
        inner = RequestFields(options)
        usage = inner.take("include_usage", Field(bool, False))
        inner.done()
    except BadRequest as error:
        raise BadRequest(f"In 'stream_options': {error}", param="stream_options") from error
    return stream, usage


def requested_completion(models: Models, fields: RequestFields, stream: bool) -> CompletionRequest:
    """Return all other fields, or raise BadRequest for a wrong or unknown one."""
    for name, values in NEUTRAL.items():
        if (value := fields.raw(name)) is not None and value not in values:
            raise BadRequest(f"The field {name!r} is not supported.", param=name)
    default = (models.text_names or [models.default])[-1]
    model = requested_model(models, fields, default)
    prompts = fields.take("prompt", Field(str, [""], count=MOST_PROMPTS, alone=True))
    suffix = fields.take("suffix", Field(str, ""))
    if not prompts:
        raise BadRequest("The field 'prompt' must hold at least one text.", param="prompt")
    if any(MARKS.search(text) for text in (*prompts, suffix)):
        raise BadRequest(
            f"A prompt cannot hold {MASK}, {GAP} or {WORD}: send the text after the blank as the suffix.", param="prompt"
        )
    n = fields.take("n", Field(int, 1, least=1, most=MOST_CHOICES))
    best_of = fields.take("best_of", Field(int, n, least=n, most=MOST_DRAWN))
    if best_of > n and stream:
        raise BadRequest("The field 'best_of' chooses among whole texts, which cannot be streamed.", param="best_of")
    rooms = [_room(model, prompt, suffix, fields) for prompt in prompts]
    steps = None if "steps" in model.sampling else min(MOST_STEPS, max(16, *rooms))
    options = fields.sampling(model, steps=steps, seed=secrets.randbelow(2**31))
    stops = fields.take("stop", Field(str, (), most=100, count=4, alone=True))
    echo = fields.take("echo", Field(bool, False))
    fields.take("user", Field(str, ""))
    fields.done()
    return CompletionRequest(
        name=fields.raw("model") or default,
        model=model,
        prompts=prompts,
        rooms=rooms,
        suffix=suffix,
        n=n,
        best_of=best_of,
        stops=[stop for stop in stops if stop],
        echo=echo,
        stream=stream,
        options=options,
    )


def _room(model: Model, prompt: str, suffix: str, fields: RequestFields) -> int:
    """Return the maximum number of new tokens between a prompt and the suffix."""
    given = sum(map(len, given_sides(prompt, suffix, model.codec)))
    room = model.length - given
    if room < 1:
        raise BadRequest(
            f"Prompt and suffix have {given} tokens, which leaves no room in this model's {model.length}.", param="prompt"
        )
    return fields.take("max_tokens", Field(int, min(16, room), least=1, most=room))


# ---- samples -------------------------------------------------------------------------------------------------------------


def complete(models: Models, fields: RequestFields, stream: bool) -> Steps:
    """Yield the choices prompt by prompt as they finish, then the token usage.

    Choice i is row i of the seed, so the completion of a prompt does not depend on the other prompts.
    """
    request = requested_completion(models, fields, stream)
    given = sum(map(request.tokens, request.prompts))
    written = 0
    for at, (prompt, room) in enumerate(zip(request.prompts, request.rooms, strict=True)):
        drawn: list[Completion] = []
        for row in range(request.best_of):
            run, index, sent = _run(request, prompt, room, row), at * request.n + row, ""
            for _ in run:
                settled = _settled(request, prompt, run) if request.stream else ""
                if settled.startswith(sent) and len(settled) > len(sent):
                    yield _choice_message(request.name, index, settled[len(sent) :], None)
                    sent = settled
                else:
                    yield None
            drawn.append(_completion(request, prompt, room, run))
            written += drawn[-1].tokens
            if request.best_of == request.n:
                yield _choice_message(request.name, index, drawn[-1].text[len(sent) :], drawn[-1].finish_reason)
        if request.best_of > request.n:
            drawn.sort(key=lambda one: -one.confidence)
            for i, chosen in enumerate(drawn[: request.n]):
                yield _choice_message(request.name, at * request.n + i, chosen.text, chosen.finish_reason)
    usage = {"prompt_tokens": given, "completion_tokens": written, "total_tokens": given + written}
    yield {"model": request.name, "choices": [], "usage": usage}


def _run(request: CompletionRequest, prompt: str, room: int, row: int) -> ChainRun:
    blanks = GAP if request.model.process.variable_length else MASK * room
    length = request.tokens(prompt) + room
    return ChainRun(request.model, f"{prompt}{blanks}{request.blank}{request.suffix}", length, request.options, row=row)


def _settled(request: CompletionRequest, prompt: str, run: ChainRun) -> str:
    """Return the final beginning of a text; nothing if there are stops, because one may begin in it."""
    assert run.last is not None
    first = request.tokens(prompt)
    if request.stops or request.suffix or run.last.settled <= first or not run.last.t:
        return ""
    text = request.model.codec.decode(run.last.ids[first : run.last.settled]).rstrip("�")
    if request.model.codec.prepends_space and prompt.endswith(" "):  # the whole text has this blank once
        text = text.lstrip(" ")
    return prompt + text if request.echo else text


def _completion(request: CompletionRequest, prompt: str, room: int, run: ChainRun) -> Completion:
    """Return the result of a run, up to the first stop."""
    (piece,) = run.written()
    cut = min([at for at in map(piece.text.find, request.stops) if at >= 0], default=len(piece.text))
    reason = "stop" if cut < len(piece.text) or piece.tokens < room else "length"
    text = piece.text[:cut] + request.blank * (cut == len(piece.text))
    return Completion(prompt + text if request.echo else text, reason, piece.tokens, piece.confidence)


# ---- responses ----------------------------------------------------------------------------------------------------------


def _choice_message(model: str, index: int, text: str, finish_reason: str | None) -> Message:
    choice = {"index": index, "text": text, "finish_reason": finish_reason, "logprobs": None}
    return {"model": model, "choices": [choice]}


def completion_head() -> dict[str, Any]:
    """Return the fields that all parts of a response share."""
    return {"id": f"cmpl-{secrets.token_hex(12)}", "object": "text_completion", "created": int(time.time())}


def completion_body(messages: Sequence[Message]) -> dict[str, Any]:
    """Return the whole response."""
    return completion_head() | messages[-1] | {"choices": [choice for message in messages for choice in message["choices"]]}


async def completion_events(messages: AsyncIterator[Message], with_usage: bool) -> AsyncIterator[str]:
    """Yield server-sent events: pieces of text for ar and bd3lm, whole choices for models that sample all positions at once."""
    head = completion_head()
    async for message in messages:
        if with_usage or "usage" not in message:
            content = message if "error" in message else head | ({"usage": None} if with_usage else {}) | message
            yield f"data: {encoded(content)}\n\n"
    yield "data: [DONE]\n\n"
