"""A model as vectors: which stretch belongs to which tensor, loading, copying, and named tensors at the edges."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor, nn

from fedpca.core import Net, Params, identity


@dataclass(frozen=True)
class Slot:
    """Where one tensor lies in its vector. Convolutions lie channels last: that is faster on a CPU."""

    name: str
    shape: tuple[int, ...]
    start: int
    channels_last: bool = True  # not in a user's model: its convolutions would pass that on to what they give

    def view(self, vector: Tensor) -> Tensor:
        """The tensor, sharing memory with the vector."""
        flat = vector[self.start : self.start + prod(self.shape)]
        if len(self.shape) != 4 or not self.channels_last:
            return flat.view(self.shape)
        out, into, height, width = self.shape
        return flat.view(out, height, width, into).permute(0, 3, 1, 2)


@dataclass(frozen=True)
class Layout:
    """The names, shapes and places of a model's tensors in the three vectors of `Params`."""

    weights: tuple[Slot, ...]
    buffers: tuple[Slot, ...]
    counters: tuple[Slot, ...]

    def named(self, params: Params) -> dict[str, Tensor]:
        """Copies of all tensors under the model's own names, as `state_dict` has them."""
        pairs = ((self.weights, params.weights), (self.buffers, params.buffers), (self.counters, params.counters))
        return {slot.name: slot.view(vector).contiguous().clone() for slots, vector in pairs for slot in slots}

    @property
    def lengths(self) -> tuple[int, ...]:
        """Entries of each tensor, those of the weights first, then those of the buffers."""
        return tuple(prod(slot.shape) for slot in (*self.weights, *self.buffers))

    def params(self, tensors: Mapping[str, Tensor]) -> Params:
        """The vectors made of named tensors; a missing, unknown or misshapen one is an error that names it."""
        known = {slot.name: slot.shape for slots in (self.weights, self.buffers, self.counters) for slot in slots}
        if missing := known.keys() - tensors.keys():
            raise ValueError(f"the model needs {_first_of(missing)}, which the given weights lack")
        if unknown := tensors.keys() - known.keys():
            raise ValueError(f"the given weights have {_first_of(unknown)}, which the model lacks")
        for name, shape in known.items():
            if tuple(tensors[name].shape) != shape:
                raise ValueError(f"{name} must have shape {shape}, got {tuple(tensors[name].shape)}")
        return Params(
            _vector(self.weights, tensors, torch.float32),
            _vector(self.buffers, tensors, torch.float32),
            _vector(self.counters, tensors, torch.int64),
            lengths=self.lengths,
        )


def layout_of(module: nn.Module) -> Layout:
    """The layout of a model's state, in the model's own order; frozen parameters count as buffers: never stepped."""
    return _layout(module, not any(_lies_plain(tensor) for tensor in _tensors(module).values()))


def _lies_plain(tensor: Tensor) -> bool:
    """Whether a convolution's weights lie as PyTorch makes them, channels first, and not also channels last."""
    return tensor.ndim == 4 and tensor.is_contiguous() and not tensor.is_contiguous(memory_format=torch.channels_last)


def _layout(module: nn.Module, channels_last: bool) -> Layout:
    weights = {name: weight for name, weight in module.named_parameters() if weight.requires_grad}
    kept = module.state_dict().keys() - weights.keys()
    buffers = {name: tensor for name, tensor in _tensors(module).items() if name in kept}
    return Layout(
        _slots(weights, channels_last),
        _slots({name: own for name, own in buffers.items() if own.is_floating_point()}, channels_last),
        _slots({name: own for name, own in buffers.items() if not own.is_floating_point()}, channels_last),
    )


def flatten(
    module: nn.Module,
    head: nn.Linear | None,
    draws: bool = False,
    scale: Callable[[Tensor], Tensor] = identity,
    channels_last: bool = True,
) -> Net:
    """The same model, its tensors now views into three vectors, so that a load is three copies."""
    layout = _layout(module, channels_last)
    start = layout.params(module.state_dict())
    weights = nn.Parameter(start.weights)
    weights.grad = torch.zeros_like(start.weights)
    tensors = _tensors(module)
    for slot in layout.weights:
        tensors[slot.name].grad = slot.view(weights.grad)
    for slots, vector in (
        (layout.weights, start.weights),
        (layout.buffers, start.buffers),
        (layout.counters, start.counters),
    ):
        for slot in slots:
            tensors[slot.name].data = slot.view(vector)
    return Net(module, head, weights, start.buffers, start.counters, draws, layout.lengths, scale)


@torch.no_grad()
def load(net: Net, params: Params) -> None:
    """Puts a state into a model."""
    net.weights.copy_(params.weights)
    net.buffers.copy_(params.buffers)
    net.counters.copy_(params.counters)


def params_of(net: Net) -> Params:
    """A copy of a model's state, on the CPU.

    >>> from fedpca import build, params_of
    >>> len(params_of(build("mlp", (1, 8, 8), 10, seed=0)).weights)
    4810
    """
    vectors = (net.weights.detach(), net.buffers, net.counters)
    return Params(*(vector.to("cpu", copy=True) for vector in vectors), lengths=net.lengths)


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _slots(tensors: Mapping[str, Tensor], channels_last: bool) -> tuple[Slot, ...]:
    slots, start = [], 0
    for name, tensor in tensors.items():
        slots.append(Slot(name, tuple(tensor.shape), start, channels_last))
        start += tensor.numel()
    return tuple(slots)


def _vector(slots: tuple[Slot, ...], tensors: Mapping[str, Tensor], dtype: torch.dtype) -> Tensor:
    device = next(iter(tensors.values())).device if tensors else None
    vector = torch.empty(sum(prod(slot.shape) for slot in slots), dtype=dtype, device=device)
    for slot in slots:
        slot.view(vector).copy_(tensors[slot.name].detach())
    return vector


def _first_of(names: Iterable[str]) -> str:
    first, *rest = sorted(names)
    return f"{first!r}" + (f" and {len(rest)} more" if rest else "")
