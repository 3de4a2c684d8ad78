"""A site's desk: messages are answered one at a time, in a thread of their own, while calls come and go."""

from __future__ import annotations

from collections.abc import Callable
from threading import Condition, Thread

from fedpca.nvflare.wire import Packed

Work = Callable[[], Packed]


class Desk:
    """Answers the latest message; who asked looks whether the answer is ready and then takes it.

    No call lasts as long as the work. So a server that goes away, or no longer waits, blocks nothing here, and whether
    the site is alive can be seen while it works.
    """

    def __init__(self) -> None:
        self.changed = Condition()
        self.waiting: tuple[str, Work] | None = None
        self.done: tuple[str, Packed] | None = None
        self.closed = False
        Thread(target=self._serve, daemon=True, name="fedpca-desk").start()

    def put(self, number: str, work: Work) -> None:
        """Work to do; what still waited is not done any more, since nobody waits for it."""
        with self.changed:
            self.waiting = number, work
            self.changed.notify_all()

    def is_ready(self, number: str, seconds: float) -> bool:
        """Whether the answer to a message is ready, at the latest after so many seconds."""
        with self.changed:
            return self.changed.wait_for(lambda: self._has(number), seconds)

    def take(self, number: str) -> Packed | None:
        """The answer; it stays until the next one is ready, in case it is lost on its way."""
        with self.changed:
            return self.done[1] if self.done and self._has(number) else None

    def close(self) -> None:
        """Ends the thread when it has no work."""
        with self.changed:
            self.closed = True
            self.changed.notify_all()

    def _has(self, number: str) -> bool:
        return self.done is not None and self.done[0] == number

    def _serve(self) -> None:
        while (own := self._next()) is not None:
            number, work = own
            answer = work()
            with self.changed:
                self.done = number, answer
                self.changed.notify_all()

    def _next(self) -> tuple[str, Work] | None:
        with self.changed:
            self.changed.wait_for(lambda: self.waiting is not None or self.closed)
            own, self.waiting = self.waiting, None
            return None if self.closed else own
