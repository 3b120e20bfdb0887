"""One connection to the studio: closed if no request arrives in time, or if its reader does not read."""

import asyncio
import contextlib

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

SECONDS_TO_ASK = 10.0  # from the connection, or from the last answer, to the end of a request's headers
SECONDS_TO_READ = 20.0  # without a byte of the answer being read


class TimedProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 protocol with two more limits.

    uvicorn closes a connection that stays silent after an answer, but neither one that sends its headers byte by byte, nor one
    whose reader stopped reading. The first is closed here. The second is cut off, which ends the work for it as if the reader
    had left.
    """

    seconds_to_ask = SECONDS_TO_ASK
    seconds_to_read = SECONDS_TO_READ
    _asking: asyncio.TimerHandle | None = None
    _reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Wait for the first request; be told of every byte that is not read at once."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)
        self._wait_for_request()

    def data_received(self, data: bytes) -> None:
        """A request, or a part of one."""
        super().data_received(data)
        self._wait_for_request()

    def on_response_complete(self) -> None:
        """The answer is written: wait for the next request."""
        super().on_response_complete()
        self._wait_for_request()

    def send_400_response(self, msg: str) -> None:
        """What arrived is no HTTP. If it was the body of a request, nobody waits any more for the answer to that."""
        with contextlib.suppress(h11.LocalProtocolError):  # where an answer has begun there is no place for another
            super().send_400_response(msg)
        self.transport.close()
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """The end."""
        super().connection_lost(exc)
        for timer in (self._asking, self._reading):
            if timer is not None:
                timer.cancel()

    def pause_writing(self) -> None:
        """Something is unread."""
        super().pause_writing()
        self._wait_for_reader()

    def resume_writing(self) -> None:
        """All is read."""
        super().resume_writing()
        if self._reading is not None:
            self._reading.cancel()

    def _wait_for_request(self) -> None:
        """Start the clock where no request is being answered and it does not run yet; stop it where one is."""
        if self.cycle is not None and not self.cycle.response_complete:
            if self._asking is not None:
                self._asking.cancel()
                self._asking = None
        elif self._asking is None and not self.transport.is_closing():
            self._asking = self.loop.call_later(self.seconds_to_ask, self.transport.close)

    def _wait_for_reader(self) -> None:
        unread = self.transport.get_write_buffer_size()
        self._reading = self.loop.call_later(self.seconds_to_read, self._check_reader, unread)

    def _check_reader(self, unread: int) -> None:
        if self.transport.get_write_buffer_size() < unread:
            self._wait_for_reader()
        else:
            self.transport.abort()
