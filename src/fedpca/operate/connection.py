"""A connection to the public port: how long it may say nothing whole, how many one address may have, how fast it sends.

h11 bounds what stands before a body, 64 KiB of it. What uvicorn takes by default keeps heads without end.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

from starlette.requests import Request
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

MAX_PER_ADDRESS = 250  # connections: so one address cannot take all; a site needs two
PATIENCE = (
    15.0  # seconds after which a connection that waits for a whole head is looked at, and closed at the next look
)
GRACE, MIN_RATE = 30.0, 16_384  # seconds that a body may be waited for, and a second more for so many bytes of it


class SlowError(Exception):
    """A body that comes too slowly."""


class Connection(H11Protocol):
    """HTTP on a connection of which nobody knows whose it is."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Closes what is one too many of its address, and looks after the others."""
        super().connection_made(transport)
        host = self.client[0] if self.client else ""
        if sum((other.client or ("",))[0] == host for other in self.connections) > MAX_PER_ADDRESS:
            transport.abort()
            return
        self.loop.call_later(PATIENCE, self._require_request, None, False)

    def _require_request(self, last: RequestResponseCycle | None, was_waiting: bool) -> None:
        """Closes the connection if it still waits for the request that it waited for at the last look."""
        if self.transport.is_closing():
            return
        waits = self.cycle is None or self.cycle.response_complete
        if waits and was_waiting and self.cycle is last:
            self.transport.abort()
            return
        self.loop.call_later(PATIENCE, self._require_request, self.cycle, waits)


async def timely(request: Request) -> AsyncIterator[bytes]:
    """A request's body as it comes, unless the sender lets us wait too long; what Flower takes does not count."""
    stream, waited, count = request.stream(), 0.0, 0
    while True:
        began = time.monotonic()
        try:
            part = await asyncio.wait_for(anext(stream), GRACE + count / MIN_RATE - waited)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise SlowError from None
        waited += time.monotonic() - began
        count += len(part)
        yield part
