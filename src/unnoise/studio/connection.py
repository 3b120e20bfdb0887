"""Time limits of a connection: for a request to arrive, and for the client to receive the response."""

import asyncio
import contextlib

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

SECONDS_TO_ASK = 10.0  # from the connection or the last response to the end of the next headers
SECONDS_TO_READ = 20.0  # without a byte received by the client


class TimedProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 protocol with two more limits.

    uvicorn closes a connection that stays silent after a response. It keeps one that sends its headers byte by byte, which is
    closed here, and one whose client stopped receiving, which is aborted here, so that its job ends.
    """

    seconds_to_ask = SECONDS_TO_ASK
    seconds_to_read = SECONDS_TO_READ
    _asking: asyncio.TimerHandle | None = None
    _reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)
        self._wait_for_request()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._wait_for_request()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait_for_request()

    def send_400_response(self, msg: str) -> None:
        """Refuse data that is not HTTP; if it was the body of a request, end the job of that request."""
        with contextlib.suppress(h11.LocalProtocolError):  # the response has already begun
            super().send_400_response(msg)
        self.transport.close()
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for timer in (self._asking, self._reading):
            if timer is not None:
                timer.cancel()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait_for_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._reading is not None:
            self._reading.cancel()

    def _wait_for_request(self) -> None:
        """Start the timer unless it runs; stop it while a request is being answered."""
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
