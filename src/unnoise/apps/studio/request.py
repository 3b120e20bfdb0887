"""Typed and bounded fields of a JSON request; every mistake is one sentence."""

import asyncio
import json
from collections.abc import Collection
from typing import Any

from starlette.requests import Request

MOST_BYTES = 200_000  # of a request
SECONDS_TO_ARRIVE = 10.0
MOST_CHARACTERS = 20_000  # of a text
MOST_STEPS = 1024
MOST_SEED = 2**53 - 1  # largest exact integer in JavaScript


class BadRequest(Exception):
    """A refused request: a sentence, the HTTP status, the name of the wrong field, and OpenAI's error code if there is one."""

    def __init__(self, message: str, status: int = 400, param: str | None = None, code: str | None = None):
        super().__init__(message)
        self.status, self.param, self.code = status, param, code

    def body(self) -> dict[str, Any]:
        """Return the error as OpenAI's clients expect it."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}


class RequestFields:
    """The fields of a JSON object. `done` refuses fields that no method has used."""

    def __init__(self, body: Any):
        if not isinstance(body, dict):
            raise BadRequest("The request must be a JSON object.")
        self.body: dict[str, Any] = body
        self._used: set[str] = set()

    def done(self) -> None:
        """Raise BadRequest if there is a field that nobody used, such as a misspelled one."""
        if unknown := sorted(self.body.keys() - self._used):
            raise BadRequest(f"The field {unknown[0][:40]!r} is unknown here.", param=unknown[0][:40])

    def ignore(self, *names: str) -> None:
        """Accept these fields without using them."""
        self._used.update(names)

    def given(self, name: str) -> bool:
        """Return whether a field is present and not null."""
        self._used.add(name)
        return self.body.get(name) is not None

    def text(self, name: str, default: str | None = None, most: int = MOST_CHARACTERS) -> str:
        """Return a text of at most `most` characters."""
        return _text(name, self._take(name, default), most)

    def texts(self, name: str, count: int, most: int = 100) -> list[str]:
        """Return at most `count` texts; the default is none."""
        return [_text(name, item, most) for item in self._list(name, [], count)]

    def choice(self, name: str, options: Collection[str], default: str) -> str:
        """Return one of the options."""
        value = self._take(name, default)
        if not isinstance(value, str) or value not in options:
            raise _mistake(name, f"one of {', '.join(options)}", value)
        return value

    def whole(self, name: str, least: int, most: int, default: int | None = None) -> int:
        """Return a whole number."""
        return _whole(name, self._take(name, default), least, most)

    def wholes(self, name: str, most: int, count: int) -> list[int]:
        """Return at most `count` whole numbers from 0 to `most`."""
        return [_whole(name, item, 0, most) for item in self._list(name, None, count)]

    def number(self, name: str, least: float, most: float, default: float) -> float:
        """Return a number."""
        value = self._take(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise _mistake(name, f"a number from {least:g} to {most:g}", value)
        return float(value)

    def flag(self, name: str) -> bool:
        """Return true or false; the default is false."""
        value = self._take(name, False)
        if not isinstance(value, bool):
            raise _mistake(name, "true or false", value)
        return value

    def _take(self, name: str, default: Any) -> Any:
        if self.given(name):
            return self.body[name]
        if default is None:
            raise BadRequest(f"The field {name!r} is missing.", param=name)
        return default

    def _list(self, name: str, default: list[Any] | None, count: int) -> list[Any]:
        value = self._take(name, default)
        if not isinstance(value, list) or len(value) > count:
            raise BadRequest(f"The field {name!r} must be a list of at most {count} entries.", param=name)
        return value


async def read_fields(request: Request) -> RequestFields:
    """Return the fields of a request, or raise BadRequest."""
    if request.headers.get("content-type", "").split(";")[0].strip() != "application/json":
        raise BadRequest("The request must be JSON (content-type: application/json).", 415)
    body = bytearray()
    try:
        async with asyncio.timeout(SECONDS_TO_ARRIVE):
            async for part in request.stream():
                body += part
                if len(body) > MOST_BYTES:
                    raise BadRequest(f"The request is larger than {MOST_BYTES} bytes.", 413)
        return RequestFields(json.loads(body))
    except TimeoutError as error:
        raise BadRequest("The request did not arrive in time.", 408) from error
    except (ValueError, RecursionError) as error:
        raise BadRequest("The request is not valid JSON.") from error


def _text(name: str, value: Any, most: int) -> str:
    if not isinstance(value, str):
        raise _mistake(name, "a text", value)
    if len(value) > most:
        raise BadRequest(f"The field {name!r} may have {most} characters, found {len(value)}.", param=name)
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise BadRequest(f"The field {name!r} holds half a character (a lone surrogate).", param=name)
    return value


def _whole(name: str, value: Any, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise _mistake(name, f"a whole number from {least} to {most}", value)
    return value


def _mistake(name: str, expected: str, value: Any) -> BadRequest:
    if isinstance(value, dict | list):
        shown = "an object" if isinstance(value, dict) else "a list"
    else:
        shown = repr(value) if len(repr(value)) <= 40 else f"{repr(value)[:40]}…"
    return BadRequest(f"The field {name!r} must be {expected}, found {shown}.", param=name)
