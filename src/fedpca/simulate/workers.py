"""Threads that work on clients, each with a model of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import TypeVar

import torch

from fedpca.core import Net

Item = TypeVar("Item")
Result = TypeVar("Result")


class Workers:
    """As many threads as models, each with one intra-op thread: PyTorch's kernels let go of Python's lock.

    Results do not depend on the number of workers: every item is worked on by one thread alone, from a state that is
    loaded first, and results come back in the order of the items.

    >>> from fedpca import Workers, build
    >>> len(Workers([build("mlp", (1, 8, 8), 10, seed=0) for _ in range(2)]).nets)
    2
    """

    def __init__(self, nets: Sequence[Net]) -> None:
        self.nets = nets
        self.free: SimpleQueue[Net] = SimpleQueue()
        for net in nets:
            self.free.put(net)
        torch.set_num_threads(1)
        keep_memory()
        self.pool = ThreadPoolExecutor(len(nets), "worker", torch.set_num_threads, (1,)) if len(nets) > 1 else None

    def map(self, work: Callable[[Net, Item], Result], items: Iterable[Item], threads: bool = True) -> Iterator[Result]:
        """The result of each item in order; at most two per worker are under way or waiting to be taken.

        Without threads all is done in the caller's.
        """
        if self.pool is None or not threads:
            yield from (work(self.nets[0], item) for item in items)
            return
        waiting: deque[Future[Result]] = deque()
        try:
            for item in items:
                waiting.append(self.pool.submit(self._borrow, work, item))
                if len(waiting) >= 2 * len(self.nets):
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()

    def close(self) -> None:
        """Ends the threads once what is under way is done."""
        if self.pool is not None:
            self.pool.shutdown(cancel_futures=True)

    def _borrow(self, work: Callable[[Net, Item], Result], item: Item) -> Result:
        net = self.free.get()
        try:
            return work(net, item)
        finally:
            self.free.put(net)


def keep_memory() -> None:
    """Has glibc keep freed blocks of up to 31 MB for the next round, by freeing one: its threshold follows.

    Given back and asked for again, every page costs a fault: a fifth of a round of small clients. Nothing is touched,
    so nothing is used; other allocators do not care.
    """
    torch.empty(31 << 20, dtype=torch.uint8)
