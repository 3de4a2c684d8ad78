"""3x3 convolutions by Winograd's algorithm: 36 products in place of 144 for each 4x4 of the output, or 16 for 36.

Lavin and Gray (2016). With a tile d of the input and a filter g the output is A'[(G g G') * (B' d B)] A; the sums over
channels are then matrix products, for which PyTorch's BLAS is fast. Backwards, the same matrices transposed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

CHANNELS = 64  # below so many, moving the tiles takes what the products save
TILES = 128  # below so many, transforming the filters does
ROWS = 256  # tiles of a part of the batch: more would leave the cache, fewer are not worth a product

Matrix = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Scheme:
    """The matrices for output tiles of one size."""

    size: int  # m: of an output tile; the input tile has m + 2
    inputs: Matrix  # B', (m + 2) x (m + 2)
    filters: Matrix  # G, (m + 2) x 3
    outputs: Matrix  # A', m x (m + 2)

    def pairs(self) -> Tensor:
        """G x G: a filter's 9 numbers to its (m + 2)^2."""
        side = torch.tensor(self.filters)
        return torch.kron(side, side)


TWO = Scheme(
    2,
    ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)),
    ((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1)),
    ((1, 1, 1, 0), (0, 1, -1, -1)),
)
# of the points 0, 1, -1, 1/2, -2 and infinity: a third of the rounding error that 0, 1, -1, 2, -2 have
FOUR = Scheme(
    4,
    (
        (1, -1.5, -2, 1.5, 1, 0),
        (0, -1, 0.5, 2.5, 1, 0),
        (0, 1, -2.5, 0.5, 1, 0),
        (0, -2, -1, 2, 1, 0),
        (0, 0.5, -1, -0.5, 1, 0),
        (0, 1, -1.5, -2, 1.5, 1),
    ),
    (
        (1, 0, 0),
        (1 / 3, 1 / 3, 1 / 3),
        (-1 / 3, 1 / 3, -1 / 3),
        (-16 / 15, -8 / 15, -4 / 15),
        (1 / 15, -2 / 15, 4 / 15),
        (0, 0, 1),
    ),
    ((1, 1, 1, 1, 1, 0), (0, 1, -1, 0.5, -2, 0), (0, 1, 1, 0.25, 4, 0), (0, 1, -1, 0.125, -8, 1)),
)


class Conv3x3(nn.Conv2d):
    """A 3x3 convolution of stride 1 that keeps the size, without bias: by Winograd's algorithm where that is faster."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) to (N, outputs, H, W)."""
        return conv3x3(x, self.weight) if pays(x, self.weight) else super().forward(x)


def pays(x: Tensor, weight: Tensor) -> bool:
    """Whether `conv3x3` can be used, and is faster than PyTorch's own: on a CPU, with many channels, at even sizes."""
    many = min(weight.shape[:2]) >= CHANNELS and _fits(x, TWO)
    return many and x.device.type == "cpu" and x.dtype == weight.dtype == torch.float32


def conv3x3(x: Tensor, weight: Tensor) -> Tensor:
    """The convolution of x (N, C, H, W), H and W even, with weight (K, C, 3, 3), zeros around it; channels last."""
    y: Tensor = _Winograd.apply(x, weight, FOUR if _fits(x, FOUR) else TWO)  # type: ignore[no-untyped-call]
    return y


def _fits(x: Tensor, scheme: Scheme) -> bool:
    """Whether images consist of whole tiles, and there are many of them."""
    count, _, height, width = x.shape
    whole = height % scheme.size == 0 == width % scheme.size
    return whole and count * height * width >= TILES * scheme.size**2


class Kept(Protocol):
    """What PyTorch keeps of a forward pass for the backward pass."""

    needs_input_grad: tuple[bool, bool, bool]
    saved_tensors: tuple[Tensor, Tensor]
    scheme: Scheme
    size: int  # images in a part of the batch

    def save_for_backward(self, *tensors: Tensor) -> None:
        """Keeps them."""


class _Winograd(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Kept, x: Tensor, weight: Tensor, scheme: Scheme) -> Tensor:
        filters, images = _filters(scheme, weight), x.permute(0, 2, 3, 1)
        count, height, width, _ = images.shape
        size = max(1, ROWS // (height * width // scheme.size**2))
        y = x.new_empty(count, height, width, weight.shape[0])
        for some, out in zip(torch.split(images, size), torch.split(y, size), strict=True):
            _untile(scheme, _tiles(scheme, some) @ filters.transpose(1, 2), out)
        ctx.save_for_backward(images, filters)  # not the tiles: they are made again faster than read from memory
        ctx.scheme, ctx.size = scheme, size
        return y.permute(0, 3, 1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Kept, slope: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        (images, filters), scheme = ctx.saved_tensors, ctx.scheme
        slope = slope.permute(0, 2, 3, 1).contiguous()
        of_filters = torch.zeros_like(filters) if ctx.needs_input_grad[1] else None
        of_x = torch.empty_like(images) if ctx.needs_input_grad[0] else None
        for start in range(0, len(images), ctx.size):
            spread = _spread(scheme, slope[start : start + ctx.size])
            if of_filters is not None:
                tiles = _tiles(scheme, images[start : start + ctx.size])
                torch.baddbmm(of_filters, spread.transpose(1, 2), tiles, out=of_filters)
            if of_x is not None:
                _gather(scheme, spread @ filters, of_x[start : start + ctx.size])
        return (
            None if of_x is None else of_x.permute(0, 3, 1, 2),
            None if of_filters is None else _of_weight(scheme, of_filters),
            None,
        )


def _filters(scheme: Scheme, weight: Tensor) -> Tensor:
    """G g G' of every filter: (K, C, 3, 3) to (tile, K, C), where tile is (m + 2)^2."""
    return (scheme.pairs() @ weight.permute(2, 3, 0, 1).reshape(9, -1)).view(-1, *weight.shape[:2])


def _of_weight(scheme: Scheme, filters: Tensor) -> Tensor:
    """The transpose of `_filters`."""
    return (scheme.pairs().T @ filters.flatten(1)).view(3, 3, *filters.shape[1:]).permute(2, 3, 0, 1)


def _tiles(scheme: Scheme, x: Tensor) -> Tensor:
    """B' d B of every tile: (N, H, W, C) to (tile, N H/m W/m, C); tiles begin at every m-th row and column."""
    (count, height, width, channels), step, side = x.shape, scheme.size, scheme.size + 2
    padded = functional.pad(x, (0, 0, 1, 1, 1, 1))
    lines = x.new_empty(side, count, height // step, width + 2, channels)
    rows = [padded[:, start : start + height - step + 1 : step] for start in range(side)]
    _transform(scheme.inputs, rows, lines)
    tiles = x.new_empty(side, side, count, height // step, width // step, channels)
    spots = [lines[:, :, :, start : start + width - step + 1 : step] for start in range(side)]
    _transform(scheme.inputs, spots, tiles.transpose(0, 1))
    return tiles.view(side * side, -1, channels)


def _untile(scheme: Scheme, products: Tensor, y: Tensor) -> None:
    """A' m A of every tile's products (tile, N H/m W/m, K) into y (N, H, W, K)."""
    parts, whole = _by_tile(scheme, products, y), _by_place(scheme, y)
    lines = parts.new_empty(scheme.size, *parts.shape[1:])
    _transform(scheme.outputs, parts.unbind(), lines)
    _transform(scheme.outputs, lines.unbind(1), whole.transpose(0, 1))


def _spread(scheme: Scheme, slope: Tensor) -> Tensor:
    """The transpose of `_untile`: (N, H, W, K) to (tile, N H/m W/m, K)."""
    whole, across = _by_place(scheme, slope), _transposed(scheme.outputs)
    side = len(across)
    lines = slope.new_empty(side, *whole.shape[1:])
    _transform(across, whole.unbind(), lines)
    spread = slope.new_empty(side, side, *whole.shape[2:])
    _transform(across, lines.unbind(1), spread.transpose(0, 1))
    return spread.view(side * side, -1, slope.shape[3])


def _gather(scheme: Scheme, tiles: Tensor, x: Tensor) -> None:
    """The transpose of `_tiles` into x (N, H, W, C): a pixel is the sum of its places in up to four tiles."""
    (count, height, width, channels), step = x.shape, scheme.size
    parts, across = _by_tile(scheme, tiles, x), _transposed(scheme.inputs)
    lines = torch.empty_like(parts)
    _transform(across, parts.unbind(), lines)
    padded = x.new_zeros(count, height + 2, width + 2, channels)
    upper = padded[:, :height].view(count, -1, step, width + 2, channels).movedim(2, 0)  # a tile's first m rows
    for start, column in enumerate(across):
        spots = slice(start, start + width - step + 1, step)
        line = _combined(lines.unbind(1), column)  # (m + 2, N, H/m, W/m, C)
        upper[:, :, :, spots] += line[:step]
        for row in range(step, step + 2):  # which overlap the next tile's first
            padded[:, row : row + height - step + 1 : step, spots] += line[row]
    x.copy_(padded[:, 1:-1, 1:-1])


def _by_tile(scheme: Scheme, tiles: Tensor, like: Tensor) -> Tensor:
    """Numbers (tile, N H/m W/m, C) by row and column of their tile, image, and place in the image."""
    (count, height, width, _), side = like.shape, scheme.size + 2
    return tiles.view(side, side, count, height // scheme.size, width // scheme.size, -1)


def _by_place(scheme: Scheme, images: Tensor) -> Tensor:
    """Images (N, H, W, C) as (m, m, N, H/m, W/m, C): by row and column within a tile, image, tile; the same memory."""
    count, height, width, channels = images.shape
    blocks = images.view(count, height // scheme.size, scheme.size, width // scheme.size, scheme.size, channels)
    return blocks.permute(2, 4, 0, 1, 3, 5)


def _transform(matrix: Matrix, parts: Sequence[Tensor], out: Tensor) -> None:
    """The matrix times the parts, row by row into out: as few operations, on as large tensors, as possible."""
    for row, place in zip(matrix, out, strict=True):
        _combined(parts, row, place)


def _combined(parts: Sequence[Tensor], factors: Sequence[float], out: Tensor | None = None) -> Tensor:
    """The sum of the parts times their factors, those of 0 left out; it begins with one of factor 1 if there is any."""
    first, *rest = sorted((i for i, factor in enumerate(factors) if factor), key=lambda i: factors[i] != 1)
    if factors[first] != 1 or not rest:
        total = torch.mul(parts[first], factors[first], out=out)
    else:
        second, *rest = rest
        total = torch.add(parts[first], parts[second], alpha=factors[second], out=out)
    for i in rest:
        total.add_(parts[i], alpha=factors[i])
    return total


def _transposed(matrix: Matrix) -> Matrix:
    return tuple(zip(*matrix, strict=True))
