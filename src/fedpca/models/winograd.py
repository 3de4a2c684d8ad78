"""3x3 convolutions by Winograd's algorithm: 36 products in place of 144 for each 4x4 of the output, or 16 for 36.

Lavin and Gray (2016). With a tile d of the input and a filter g the output is A'[(G g G') * (B' d B)] A; the sums over
channels are then matrix products, for which PyTorch's BLAS is fast. Backwards, the same matrices transposed.

The transforms B' and A' work along one dimension of the tiles, then along the other. An output tile has m entries, the
input tile below it m + 2: its own m and one more on each side, which belong to its neighbours, or are zeros. A
transform's arguments are lists of tensors: one entry of every tile, in which dimension 2 leads from a tile to the next.
Transforms take almost as long as the products, so they are written as the fewest passes over memory, not as matrices.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

CHANNELS = 64  # below so many, moving the tiles takes what the products save
TILES = 128  # below so many, transforming the filters does
ROWS = 256  # tiles of a part of the batch: more would leave the cache, fewer are not worth a product

Matrix = tuple[tuple[float, ...], ...]
Transform = Callable[[Sequence[Tensor], Sequence[Tensor]], None]  # from the first into the second


class Two:
    """Tiles of 2, from the points 0, 1, -1 and infinity."""

    size = 2
    filters: Matrix = ((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1))

    @staticmethod
    def spread_input(d: Sequence[Tensor], r: Sequence[Tensor]) -> None:
        """B' = (1 0 -1 0), (0 1 1 0), (0 -1 1 0), (0 1 0 -1): a tile's entries and its neighbours'."""
        torch.neg(d[1], out=r[0])
        but_first(r[0]).add_(but_last(d[1]))
        torch.add(d[0], d[1], out=r[1])
        torch.sub(d[1], d[0], out=r[2])
        r[3].copy_(d[0])
        but_last(r[3]).sub_(but_first(d[0]))

    @staticmethod
    def gather_input(r: Sequence[Tensor], d: Sequence[Tensor]) -> None:
        """The transpose of `spread_input`: an entry is the sum of its parts in up to two tiles."""
        torch.sub(r[1], r[2], out=d[0]).add_(r[3])
        but_first(d[0]).sub_(but_last(r[3]))
        torch.add(r[1], r[2], out=d[1]).sub_(r[0])
        but_last(d[1]).add_(but_first(r[0]))

    @staticmethod
    def gather_output(p: Sequence[Tensor], y: Sequence[Tensor]) -> None:
        """A' = (1 1 1 0), (0 1 -1 -1): m + 2 products to the entries of an output tile."""
        torch.add(p[1], p[2], out=y[0]).add_(p[0])
        torch.sub(p[1], p[2], out=y[1]).sub_(p[3])

    @staticmethod
    def spread_output(y: Sequence[Tensor], p: Sequence[Tensor]) -> None:
        """The transpose of `gather_output`."""
        p[0].copy_(y[0])
        torch.add(y[0], y[1], out=p[1])
        torch.sub(y[0], y[1], out=p[2])
        torch.neg(y[1], out=p[3])


class Four:
    """Tiles of 4, from the points 0, 1, -1, 1/2, -2 and infinity.

    With them the rounding error is a third of that with 0, 1, -1, 2, -2.
    """

    size = 4
    filters: Matrix = (
        (1, 0, 0),
        (1 / 3, 1 / 3, 1 / 3),
        (-1 / 3, 1 / 3, -1 / 3),
        (-16 / 15, -8 / 15, -4 / 15),
        (1 / 15, -2 / 15, 4 / 15),
        (0, 0, 1),
    )

    @staticmethod
    def spread_input(d: Sequence[Tensor], r: Sequence[Tensor]) -> None:
        """B' = (1 -1.5 -2 1.5 1 0), (0 -1 0.5 2.5 1 0), (0 1 -2.5 0.5 1 0), (0 -2 -1 2 1 0),
        (0 0.5 -1 -0.5 1 0), (0 1 -1.5 -2 1.5 1); rows share two differences.
        """
        a, b = torch.sub(d[3], d[1], out=r[4]), torch.sub(d[2], d[0])
        torch.sub(d[3], d[1], alpha=2, out=r[0]).add_(b, alpha=1.5)
        but_first(r[0]).add_(but_last(d[3]))
        torch.add(a, b, out=r[1]).add_(d[1], alpha=1.5).add_(d[2], alpha=1.5)
        torch.sub(a, b, out=r[2]).sub_(d[1], alpha=1.5).add_(d[2], alpha=1.5)
        torch.add(a, b, alpha=2, out=r[3])
        torch.sub(d[0], d[2], alpha=2, out=r[5]).add_(a, alpha=1.5)
        but_last(r[5]).add_(but_first(d[0]))
        a.sub_(b, alpha=0.5)

    @staticmethod
    def gather_input(r: Sequence[Tensor], d: Sequence[Tensor]) -> None:
        """The transpose of `spread_input`."""
        u, v = torch.add(r[1], r[2]), torch.sub(r[1], r[2])
        torch.add(r[0], u, out=d[3]).add_(r[3]).add_(r[4]).add_(r[5], alpha=1.5)
        torch.sub(r[5], v, out=d[0]).sub_(r[0], alpha=1.5).sub_(r[3], alpha=2).add_(r[4], alpha=0.5)
        torch.mul(v, 1.5, out=d[1]).sub_(d[3]).sub_(r[0])
        torch.mul(u, 1.5, out=d[2]).sub_(d[0]).sub_(r[5])
        but_first(d[0]).add_(but_last(r[5]))
        but_last(d[3]).add_(but_first(r[0]))

    @staticmethod
    def gather_output(p: Sequence[Tensor], y: Sequence[Tensor]) -> None:
        """A' = (1 1 1 1 1 0), (0 1 -1 0.5 -2 0), (0 1 1 0.25 4 0), (0 1 -1 0.125 -8 1)."""
        torch.add(p[1], p[2], out=y[0])
        torch.sub(p[1], p[2], out=y[1])
        torch.add(y[0], p[3], alpha=0.25, out=y[2]).add_(p[4], alpha=4)
        torch.add(y[1], p[3], alpha=0.125, out=y[3]).sub_(p[4], alpha=8).add_(p[5])
        y[0].add_(p[0]).add_(p[3]).add_(p[4])
        y[1].add_(p[3], alpha=0.5).sub_(p[4], alpha=2)

    @staticmethod
    def spread_output(y: Sequence[Tensor], p: Sequence[Tensor]) -> None:
        """The transpose of `gather_output`."""
        p[0].copy_(y[0])
        even, odd = torch.add(y[0], y[2]), torch.add(y[1], y[3])
        torch.add(even, odd, out=p[1])
        torch.sub(even, odd, out=p[2])
        torch.add(y[0], y[1], alpha=0.5, out=p[3]).add_(y[2], alpha=0.25).add_(y[3], alpha=0.125)
        torch.sub(y[0], y[1], alpha=2, out=p[4]).add_(y[2], alpha=4).sub_(y[3], alpha=8)
        p[5].copy_(y[3])


def but_first(entries: Tensor) -> Tensor:
    """Those of every tile that has one before it."""
    return entries[:, :, 1:]


def but_last(entries: Tensor) -> Tensor:
    """Those of every tile that has one behind it."""
    return entries[:, :, :-1]


Scheme = Two | Four
TWO, FOUR = Two(), Four()


class Conv3x3(nn.Conv2d):
    """A 3x3 convolution of stride 1 that keeps the size, without bias: by Winograd's algorithm where that is faster."""

    winograd = True  # see `switch_winograd`

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) to (N, outputs, H, W)."""
        fast = self.winograd and is_faster(x, self.weight)
        return conv3x3(x, self.weight) if fast else super().forward(x)


def switch_winograd(module: nn.Module, on: bool) -> None:
    """Lets a model's 3x3 convolutions use Winograd's algorithm, or leaves them to PyTorch, whose rounding differs."""
    for part in module.modules():
        if isinstance(part, Conv3x3):
            part.winograd = on


def is_faster(x: Tensor, weight: Tensor) -> bool:
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
        filters, images = _filters(scheme, weight), x.permute(0, 2, 3, 1).contiguous()
        count, height, width, _ = images.shape
        size = max(1, ROWS // (height * width // scheme.size**2))
        y = x.new_empty(count, height, width, weight.shape[0])
        for part, out in zip(torch.split(images, size), torch.split(y, size), strict=True):
            tiles = _spread(scheme.spread_input, scheme.size, part)
            _gather(scheme.gather_output, scheme.size, tiles @ filters.transpose(1, 2), out)
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
            part = slice(start, start + ctx.size)
            spread = _spread(scheme.spread_output, scheme.size, slope[part])
            if of_filters is not None:
                tiles = _spread(scheme.spread_input, scheme.size, images[part])
                torch.baddbmm(of_filters, spread.transpose(1, 2), tiles, out=of_filters)
            if of_x is not None:
                _gather(scheme.gather_input, scheme.size, spread @ filters, of_x[part])
        return (
            None if of_x is None else of_x.permute(0, 3, 1, 2),
            None if of_filters is None else _of_weight(scheme, of_filters),
            None,
        )


def _filters(scheme: Scheme, weight: Tensor) -> Tensor:
    """G g G' of every filter: (K, C, 3, 3) to (tile, K, C), where tile is (m + 2)^2."""
    return (_pairs(scheme) @ weight.permute(2, 3, 0, 1).reshape(9, -1)).view(-1, *weight.shape[:2])


def _of_weight(scheme: Scheme, filters: Tensor) -> Tensor:
    """The transpose of `_filters`."""
    return (_pairs(scheme).T @ filters.flatten(1)).view(3, 3, *filters.shape[1:]).permute(2, 3, 0, 1)


def _pairs(scheme: Scheme) -> Tensor:
    """G x G: a filter's 9 numbers to its (m + 2)^2."""
    side = torch.tensor(scheme.filters, dtype=torch.float32)
    return torch.kron(side, side)


def _spread(transform: Transform, size: int, images: Tensor) -> Tensor:
    """Every tile transformed along both dimensions: (N, H, W, C) to (tile, N H/m W/m, C).

    The columns come first: next to each other in memory they have only the channels, and so they have fewer numbers.
    """
    lines = _half_way(size, images)
    transform(_columns(size, images), lines.unbind())
    rows = _rows(size, lines)
    tiles = lines.new_empty(len(lines), *rows[0].shape)
    transform(rows, tiles.unbind())
    return tiles.flatten(2, 4).flatten(0, 1)


def _gather(transform: Transform, size: int, tiles: Tensor, images: Tensor) -> None:
    """The way back: every tile transformed along both dimensions, into images (N, H, W, C)."""
    lines = _half_way(size, images)
    rows = _rows(size, lines)
    transform(tiles.view(len(lines), *rows[0].shape).unbind(), rows)
    transform(lines.unbind(), _columns(size, images))


def _half_way(size: int, images: Tensor) -> Tensor:
    """Room for tiles transformed along one dimension: (m + 2, N, H, W/m, C)."""
    count, height, width, channels = images.shape
    return images.new_empty(size + 2, count, height, width // size, channels)


def _columns(size: int, images: Tensor) -> Sequence[Tensor]:
    """Each column of the tiles of images (N, H, W, C): m times (N, H, W/m, C)."""
    count, height, width, channels = images.shape
    return images.view(count, height, width // size, size, channels).unbind(3)


def _rows(size: int, lines: Tensor) -> Sequence[Tensor]:
    """Each row of the tiles of lines (m + 2, N, H, W/m, C): m times (m + 2, N, H/m, W/m, C)."""
    side, count, height, across, channels = lines.shape
    return lines.view(side, count, height // size, size, across, channels).unbind(3)
