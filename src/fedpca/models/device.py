"""Where models are trained: whether a device is there, and tensors on their way to it."""

import torch
from torch import Tensor

from fedpca.errors import UserError


def require_device(device: str) -> str:
    """The device's name, if this PyTorch finds it on this machine."""
    kind = torch.device(device).type
    count = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}[kind]
    if (torch.device(device).index or 0) >= count:
        found = f"{count} of that kind" if count else "none of that kind"
        raise UserError(f'device: there is no {device!r} for PyTorch {torch.__version__} here ({found}); use "cpu"')
    return device


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on a device; to CUDA through pinned memory, so that nobody waits for the copy."""
    if tensor.device == device:
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)
