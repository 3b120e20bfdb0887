"""MD4 on ImageNet downsampled to 64 × 64: arXiv:2406.04329. The run on CIFAR-10 with larger images and a larger network.

The published network is convolutional with attention and has 198 million weights; 21 layers of width 768 have as many in our
Transformer. A text is an image, 64 × 64 × 3 = 12,288 channels of 256 levels. Batch, steps, learning rate and dropout could not
be looked up: they are those of the run on CIFAR-10 with a batch of 512.
"""

from unnoise.published_tables import reported
from unnoise.recipes.md4_cifar10 import md4_cifar10

md4_imagenet64 = md4_cifar10.variant(
    title="MD4 on ImageNet 64 × 64, 256 levels, bits per dimension",
    published=reported("images", "MD4", "imagenet64"),
    differs="our Transformer, 21 layers of 768 over 12,288 positions, in place of a convolutional network; batch, steps, rate "
    "and dropout are not confirmed",
    image=(64, 64, 3),
    options={"data": "imagenet64.npz", "length": 12_288, "width": 768, "depth": 21, "heads": 12, "batch": 512, "dropout": 0.0},
)
