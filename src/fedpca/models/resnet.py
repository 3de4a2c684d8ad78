"""ResNet-18 (He et al. 2016), under torchvision's parameter names."""

import torch
from torch import Tensor, nn

from fedpca.models.cnn import Shape
from fedpca.models.winograd import Conv3x3


def resnet18(shape: Shape, classes: int) -> nn.Module:
    """With the CIFAR stem: 3x3, no pooling."""
    return ResNet18(shape[0], classes, imagenet_stem=False)


def resnet18_imagenet(shape: Shape, classes: int) -> nn.Module:
    """With the ImageNet stem: 7x7, pooling."""
    return ResNet18(shape[0], classes, imagenet_stem=True)


class Block(nn.Module):
    """Two 3x3 convolutions around a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = (
            Conv3x3(inputs, outputs) if stride == 1 else nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        )
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = Conv3x3(outputs, outputs)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = (
            nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
            if stride != 1 or inputs != outputs
            else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) to (N, outputs, H / stride, W / stride)."""
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(y)) + self.downsample(x))


class ResNet18(nn.Module):
    """ResNet-18 with either stem; 512 features before `fc`."""

    def __init__(self, channels: int, classes: int, imagenet_stem: bool) -> None:
        super().__init__()
        kernel, stride, padding = (7, 2, 3) if imagenet_stem else (3, 1, 1)
        self.conv1 = nn.Conv2d(channels, 64, kernel, stride, padding, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, 2, padding=1) if imagenet_stem else nn.Identity()
        self.layer1 = nn.Sequential(Block(64, 64, 1), Block(64, 64, 1))
        self.layer2 = nn.Sequential(Block(64, 128, 2), Block(128, 128, 1))
        self.layer3 = nn.Sequential(Block(128, 256, 2), Block(256, 256, 1))
        self.layer4 = nn.Sequential(Block(256, 512, 2), Block(512, 512, 1))
        self.fc = nn.Linear(512, classes)
        for part in self.modules():
            if isinstance(part, nn.Conv2d):
                nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Logits (N, classes)."""
        x = self.maxpool(torch.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        logits: Tensor = self.fc(x.mean(dim=(2, 3)))
        return logits
