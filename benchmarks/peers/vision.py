"""Makes `import torchvision` work beside a CPU build of PyTorch, for the peers that import it."""

import torch

try:
    import torchvision  # noqa: F401
except RuntimeError:
    # its wheels in the package index are built for CUDA: here their operators are missing, and the import fails for
    # want of two. No peer uses any in these workloads, so that the names are enough
    for name in ("nms", "qnms"):
        torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
