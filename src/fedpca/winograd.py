"""3x3 convolutions by Winograd's algorithm F(2x2, 3x3): 16 products in place of 36 for each 2x2 of the output.

Lavin and Gray (2016). With a 4x4 tile d of the input and a filter g the output is A'[(G g G') * (B' d B)] A; the sums
over channels are then 16 matrix products, for which PyTorch's BLAS is fast. Backwards, the same matrices transposed.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

CHANNELS = 64  # below so many, moving the tiles takes what the products save
TILES = 128  # below so many, transforming the filters does
PIECE = 1 << 20  # numbers in the tiles of a part of the batch: more would leave the cache

_G = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0.0, 0.0, 1.0]])
_FILTER = torch.kron(_G, _G)  # (16, 9)


class Conv3x3(nn.Conv2d):
    """A 3x3 convolution of stride 1 that keeps the size, without bias: by Winograd's algorithm where that is faster."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) to (N, outputs, H, W)."""
        return conv3x3(x, self.weight) if pays(x, self.weight) else super().forward(x)


def pays(x: Tensor, weight: Tensor) -> bool:
    """Whether `conv3x3` can be used, and is faster than PyTorch's own: on a CPU, with many channels, at even sizes."""
    count, _, height, width = x.shape
    even = height % 2 == 0 and width % 2 == 0
    many = min(weight.shape[:2]) >= CHANNELS and count * height * width >= 4 * TILES
    return even and many and x.device.type == "cpu" and x.dtype == weight.dtype == torch.float32


def conv3x3(x: Tensor, weight: Tensor) -> Tensor:
    """The convolution of x (N, C, H, W), H and W even, with weight (K, C, 3, 3), zeros around it; channels last."""
    y: Tensor = _Winograd.apply(x, weight)  # type: ignore[no-untyped-call]
    return y


class Kept(Protocol):
    """What PyTorch keeps of a forward pass for the backward pass."""

    needs_input_grad: tuple[bool, bool]
    saved_tensors: tuple[Tensor, Tensor]
    size: int  # images in a part of the batch

    def save_for_backward(self, *tensors: Tensor) -> None:
        """Keeps them."""


class _Winograd(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Kept, x: Tensor, weight: Tensor) -> Tensor:
        filters, images = _filters(weight), x.permute(0, 2, 3, 1)
        count, height, width, _ = images.shape
        size = max(1, PIECE // (4 * height * width * max(weight.shape[:2])))
        y = x.new_empty(count, height, width, weight.shape[0])
        for some, out in zip(torch.split(images, size), torch.split(y, size), strict=True):
            _untile(_tiles(some) @ filters.transpose(1, 2), out)
        ctx.save_for_backward(images, filters)  # not the tiles: they are made again faster than read from memory
        ctx.size = size
        return y.permute(0, 3, 1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Kept, slope: Tensor) -> tuple[Tensor | None, Tensor | None]:
        images, filters = ctx.saved_tensors
        slope = slope.permute(0, 2, 3, 1)
        of_filters = torch.zeros_like(filters) if ctx.needs_input_grad[1] else None
        of_x = torch.empty_like(images) if ctx.needs_input_grad[0] else None
        for start in range(0, len(images), ctx.size):
            spread = _spread(slope[start : start + ctx.size])
            if of_filters is not None:
                tiles = _tiles(images[start : start + ctx.size])
                torch.baddbmm(of_filters, spread.transpose(1, 2), tiles, out=of_filters)
            if of_x is not None:
                _gather(spread @ filters, of_x[start : start + ctx.size])
        return (
            None if of_x is None else of_x.permute(0, 3, 1, 2),
            None if of_filters is None else _of_weight(of_filters),
        )


def _filters(weight: Tensor) -> Tensor:
    """G g G' of every filter: (K, C, 3, 3) to (16, K, C)."""
    return (_FILTER @ weight.permute(2, 3, 0, 1).reshape(9, -1)).view(16, *weight.shape[:2])


def _of_weight(filters: Tensor) -> Tensor:
    """The transpose of `_filters`."""
    return (_FILTER.T @ filters.view(16, -1)).view(3, 3, *filters.shape[1:]).permute(2, 3, 0, 1)


def _tiles(x: Tensor) -> Tensor:
    """B' d B of every tile: (N, H, W, C) to (16, N H/2 W/2, C); tiles begin at every other row and column."""
    count, height, width, channels = x.shape
    padded = functional.pad(x, (0, 0, 1, 1, 1, 1))
    a, b, c, d = (padded[:, start : start + height - 1 : 2] for start in range(4))
    tiles = x.new_empty(4, 4, count, height // 2, width // 2, channels)
    for rows, out in zip((a - c, b + c, c - b, b - d), tiles, strict=True):
        e, f, g, h = (rows[:, :, start : start + width - 1 : 2] for start in range(4))
        torch.sub(e, g, out=out[0])
        torch.add(f, g, out=out[1])
        torch.sub(g, f, out=out[2])
        torch.sub(f, h, out=out[3])
    return tiles.view(16, -1, channels)


def _untile(products: Tensor, y: Tensor) -> None:
    """A' m A of every tile's products (16, N H/2 W/2, K) into y (N, H, W, K)."""
    count, height, width, channels = y.shape
    a, b, c, d = products.view(4, 4, count, height // 2, width // 2, channels)
    for start, (e, f, g, h) in enumerate(((a + b).add_(c), (b - c).sub_(d))):
        torch.add(e, f, out=y[:, start::2, ::2]).add_(g)
        torch.sub(f, g, out=y[:, start::2, 1::2]).sub_(h)


def _spread(slope: Tensor) -> Tensor:
    """The transpose of `_untile`: (N, H, W, K) to (16, N H/2 W/2, K)."""
    count, height, width, channels = slope.shape
    even, odd = slope[:, ::2], slope[:, 1::2]
    spread = slope.new_empty(4, 4, count, height // 2, width // 2, channels)
    for rows, out in zip((even, even + odd, even - odd, -odd), spread, strict=True):
        left, right = rows[:, :, ::2], rows[:, :, 1::2]
        out[0].copy_(left)
        torch.add(left, right, out=out[1])
        torch.sub(left, right, out=out[2])
        torch.neg(right, out=out[3])
    return spread.view(16, -1, channels)


def _gather(tiles: Tensor, x: Tensor) -> None:
    """The transpose of `_tiles` into x (N, H, W, C): a pixel is the sum of its places in up to four tiles."""
    count, height, width, channels = x.shape
    a, b, c, d = tiles.view(4, 4, count, height // 2, width // 2, channels)
    even, odd = (b - c).add_(d), (b + c).sub_(a)
    even[:, :, 1:] -= d[:, :, :-1]
    odd[:, :, :-1] += a[:, :, 1:]
    for start, (e, f, g, h) in enumerate((even, odd)):
        left, right = x[:, start::2, ::2], x[:, start::2, 1::2]
        torch.sub(f, g, out=left).add_(h)
        torch.add(f, g, out=right).sub_(e)
        left[:, :, 1:] -= h[:, :, :-1]
        right[:, :, :-1] += e[:, :, 1:]
