"""Reading a request: every field has a type and a bound, and what is wrong is said in one sentence."""

import asyncio
import json
from collections.abc import Collection
from typing import Any

from starlette.requests import Request

MOST_BYTES = 200_000  # of a request
SECONDS_TO_ARRIVE = 10.0
MOST_CHARACTERS = 20_000  # characters of any text
MOST_STEPS = 1024
MOST_SEED = 2**53 - 1  # what JavaScript counts exactly


class BadRequest(Exception):
    """A request that is not served: the sentence, the HTTP status, the field that is at fault, and OpenAI's code, if any."""

    def __init__(self, message: str, status: int = 400, param: str | None = None, code: str | None = None):
        super().__init__(message)
        self.status, self.param, self.code = status, param, code


class RequestFields:
    """The fields of a JSON object. Each is read once by its reader; `done` refuses what nobody read."""

    def __init__(self, body: Any):
        if not isinstance(body, dict):
            raise BadRequest("The request must be a JSON object.")
        self.body: dict[str, Any] = body
        self._read: set[str] = set()

    def done(self) -> None:
        """Refuse a field that nobody asked for, so that a misspelled one is noticed."""
        if unknown := sorted(self.body.keys() - self._read):
            raise BadRequest(f"The field {unknown[0][:40]!r} is unknown here.", param=unknown[0][:40])

    def ignore(self, *names: str) -> None:
        """Let these be there unread."""
        self._read.update(names)

    def given(self, name: str) -> bool:
        """Whether a field is there, and is not null."""
        self._read.add(name)
        return self.body.get(name) is not None

    def _take(self, name: str, default: Any) -> Any:
        self._read.add(name)
        value = self.body.get(name)
        if value is not None:
            return value
        if default is None:
            raise BadRequest(f"The field {name!r} is missing.", param=name)
        return default

    def text(self, name: str, default: str | None = None, most: int = MOST_CHARACTERS) -> str:
        """A text of at most `most` characters."""
        return _text(name, self._take(name, default), most)

    def texts(self, name: str, count: int, most: int = 100) -> list[str]:
        """At most `count` texts; none by default."""
        return [_text(name, item, most) for item in self._list(name, [], count)]

    def choice(self, name: str, options: Collection[str], default: str) -> str:
        """One of the options."""
        return _choice(name, self._take(name, default), options)

    def whole(self, name: str, least: int, most: int, default: int | None = None) -> int:
        """A whole number."""
        return _whole(name, self._take(name, default), least, most)

    def wholes(self, name: str, most: int, count: int) -> list[int]:
        """At most `count` whole numbers from 0 to `most`."""
        return [_whole(name, item, 0, most) for item in self._list(name, None, count)]

    def number(self, name: str, least: float, most: float, default: float) -> float:
        """A number."""
        value = self._take(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise BadRequest(
                f"The field {name!r} must be a number from {least:g} to {most:g}, found {_shown(value)}.", param=name
            )
        return float(value)

    def flag(self, name: str) -> bool:
        """True or false; false by default."""
        value = self._take(name, False)
        if not isinstance(value, bool):
            raise BadRequest(f"The field {name!r} must be true or false, found {_shown(value)}.", param=name)
        return value

    def _list(self, name: str, default: list[Any] | None, count: int) -> list[Any]:
        value = self._take(name, default)
        if not isinstance(value, list) or len(value) > count:
            raise BadRequest(f"The field {name!r} must be a list of at most {count} entries.", param=name)
        return value


async def read_fields(request: Request) -> RequestFields:
    """The JSON object of a request, or BadRequest."""
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
        raise BadRequest(f"The field {name!r} must be a text, found {_shown(value)}.", param=name)
    if len(value) > most:
        raise BadRequest(f"The field {name!r} may have {most} characters, found {len(value)}.", param=name)
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise BadRequest(f"The field {name!r} holds half a character (a lone surrogate).", param=name)
    return value


def _choice(name: str, value: Any, options: Collection[str]) -> str:
    if not isinstance(value, str) or value not in options:
        raise BadRequest(f"The field {name!r} must be one of {', '.join(options)}, found {_shown(value)}.", param=name)
    return value


def _whole(name: str, value: Any, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise BadRequest(
            f"The field {name!r} must be a whole number from {least} to {most}, found {_shown(value)}.", param=name
        )
    return value


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    shown = repr(value)
    return shown if len(shown) <= 40 else f"{shown[:40]}…"
