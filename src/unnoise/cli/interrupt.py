"""Graceful stop on Ctrl-C or SIGTERM."""

import signal
import sys
from types import FrameType


class StopRequest:
    """Flag set by the first Ctrl-C or SIGTERM, after which training finishes its step and saves. The second stops at once."""

    def __init__(self) -> None:
        self.requested = False

    def __call__(self) -> bool:
        return self.requested

    def __enter__(self) -> "StopRequest":
        self.before = {number: signal.signal(number, self._request) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _request(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        print("\nstopping after this step …", file=sys.stderr)
