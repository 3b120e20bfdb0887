"""Completions as OpenAI's clients expect them: text after a prompt, or between a prompt and a suffix."""

import secrets
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from unnoise.model.template import BLANKS, GAP, MASK
from unnoise.studio.chain import ChainRun, requested_model, sampling_options
from unnoise.studio.jobs import Message, Steps
from unnoise.studio.models import Models
from unnoise.studio.request import MOST_SEED, MOST_STEPS, BadRequest, RequestFields
from unnoise.studio.responses import encoded

MOST_CHOICES = 8
NOT_SERVED = ("logprobs", "echo", "best_of", "logit_bias")


@dataclass(frozen=True)
class Choice:
    """One completion: its text without the prompt, how many tokens it has, and whether it filled the room."""

    index: int
    text: str
    tokens: int
    finish_reason: str


def complete(models: Models, fields: RequestFields) -> Steps:
    """The choices of a completion as they are ready: `Choice` as a message, with the tokens of the prompt."""
    for name in NOT_SERVED:
        if fields.body.get(name):
            raise BadRequest(f"The field {name!r} is not served here.")
    loaded = requested_model(models, fields)
    model = loaded.model
    before, after = _prompt(fields), fields.text("suffix", "")
    if BLANKS.search(before + after):
        raise BadRequest(f"A prompt cannot hold {MASK} or {GAP}: what comes after the blank is the suffix.")
    given = len(model.codec.encode(before)) + len(model.codec.encode(after))
    room = model.length - given
    if room < 1:
        raise BadRequest(f"Prompt and suffix have {given} tokens, which leaves no room in this model's {model.length}.")
    most = fields.whole("max_tokens", 1, room, min(16, room))
    count = fields.whole("n", 1, MOST_CHOICES, 1)
    seed = fields.whole("seed", 0, MOST_SEED, secrets.randbelow(2**31))
    fields.body.setdefault("steps", min(MOST_STEPS, max(16, most)))
    options = sampling_options(model, fields)
    stops = _stops(fields)
    template = before + (GAP if model.process.variable_length else MASK * most) + after
    for i in range(count):
        run = ChainRun(model, template, given + most, options | {"seed": seed + i})
        for _ in run:
            yield None
        text = "".join(piece.text for piece in run.pieces() if piece.new)
        tokens = len(model.codec.encode(text))
        cut = min([at for at in map(text.find, stops) if at >= 0], default=len(text))
        reason = "stop" if cut < len(text) or tokens < most else "length"
        yield asdict(Choice(i, text[:cut], tokens, reason)) | {"given": given, "model": loaded.name}


def _prompt(fields: RequestFields) -> str:
    prompt = fields.body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1:
        fields.body["prompt"] = prompt[0]
    return fields.text("prompt", "")


def _stops(fields: RequestFields) -> list[str]:
    if isinstance(fields.body.get("stop"), str):
        fields.body["stop"] = [fields.body["stop"]]
    return [stop for stop in fields.texts("stop", 4) if stop]


# ---- what is sent back ---------------------------------------------------------------------------------------------------


def completion_head() -> dict[str, Any]:
    """What every part of an answer begins with."""
    return {"id": f"cmpl-{secrets.token_hex(12)}", "object": "text_completion", "created": int(time.time())}


def completion_body(messages: Sequence[Message]) -> dict[str, Any]:
    """The whole answer."""
    given, written = messages[0]["given"], sum(message["tokens"] for message in messages)
    usage = {"prompt_tokens": given, "completion_tokens": written, "total_tokens": given + written}
    choices = [_choice(message) for message in messages]
    return completion_head() | {"model": messages[0]["model"], "choices": choices, "usage": usage}


async def completion_events(messages: AsyncIterator[Message]) -> AsyncIterator[str]:
    """Server-sent events: a diffusion model has no first word before its last, so each choice comes as a whole."""
    head = completion_head()
    async for message in messages:
        content = message if "error" in message else head | {"model": message["model"], "choices": [_choice(message)]}
        yield f"data: {encoded(content)}\n\n"
    yield "data: [DONE]\n\n"


def _choice(message: Message) -> dict[str, Any]:
    return {"index": message["index"], "text": message["text"], "finish_reason": message["finish_reason"], "logprobs": None}
