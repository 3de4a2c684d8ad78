"""EfficientNet-Lite0: EfficientNet-B0 (Tan and Le 2019) without squeeze-and-excitation, ReLU6 in place of swish.

Parameters have the names of the published file. Left out are dropout and stochastic depth, which a pass without
training does not have either: what draws random numbers in its passes cannot be trained on several workers.
"""

from torch import Tensor, nn
from torch.nn.functional import pad, relu6

from fedpca.models.cnn import Shape

STAGES = (  # blocks, kernel, stride of the first, expansion, outputs
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
STEM, HEAD = 32, 1280  # channels


def efficientnet_lite0(shape: Shape, classes: int) -> nn.Module:
    """EfficientNet-Lite0 for images of this shape."""
    return Lite0(shape[0], classes)


class Lite0(nn.Module):
    """EfficientNet-Lite0; 1280 features before `_fc`."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self._conv_stem, self._bn0 = nn.Conv2d(channels, STEM, 3, stride=2, bias=False), _norm(STEM)
        self._blocks, inputs = nn.ModuleList(), STEM
        for count, kernel, stride, expansion, outputs in STAGES:
            for number in range(count):
                self._blocks.append(Bottleneck(inputs, outputs, kernel, 1 if number else stride, expansion))
                inputs = outputs
        self._conv_head, self._bn1 = nn.Conv2d(inputs, HEAD, 1, bias=False), _norm(HEAD)
        self._fc = nn.Linear(HEAD, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (N, classes)."""
        x = relu6(self._bn0(self._conv_stem(same(x, 3, 2))))
        for block in self._blocks:
            x = block(x)
        x = relu6(self._bn1(self._conv_head(x)))
        logits: Tensor = self._fc(x.mean(dim=(2, 3)))
        return logits


class Bottleneck(nn.Module):
    """More channels, a convolution of each by itself, fewer channels (Sandler et al. 2018)."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = inputs * expansion
        self.expands, self.skips = expansion > 1, stride == 1 and inputs == outputs
        if self.expands:
            self._expand_conv, self._bn0 = nn.Conv2d(inputs, inner, 1, bias=False), _norm(inner)
        self._depthwise_conv = nn.Conv2d(inner, inner, kernel, stride, groups=inner, bias=False)
        self._bn1 = _norm(inner)
        self._project_conv, self._bn2 = nn.Conv2d(inner, outputs, 1, bias=False), _norm(outputs)

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) to (N, outputs, H / stride, W / stride), rounded up."""
        wide = relu6(self._bn0(self._expand_conv(x))) if self.expands else x
        kernel, stride = self._depthwise_conv.kernel_size[0], self._depthwise_conv.stride[0]
        wide = relu6(self._bn1(self._depthwise_conv(same(wide, kernel, stride))))
        y: Tensor = self._bn2(self._project_conv(wide))
        return x + y if self.skips else y


def same(x: Tensor, kernel: int, stride: int) -> Tensor:
    """The images with as many zeros around them as make a convolution's output 1 / stride as large, rounded up.

    An odd number of zeros has the extra one below and to the right, as in TensorFlow, where the weights were trained.
    """
    edges = []
    for side in (x.shape[3], x.shape[2]):
        zeros = max((-(-side // stride) - 1) * stride + kernel - side, 0)
        edges += [zeros // 2, zeros - zeros // 2]
    return pad(x, edges)


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)
