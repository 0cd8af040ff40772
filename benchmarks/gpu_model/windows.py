"""Windows of convolutions and pooling: the padding that sizes of images and outputs need."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["channels_first", "padding_of"]


def padding_of(
    image: Sequence[int], output: Sequence[int], size: Sequence[int], strides: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Finds the padding of a window from heights and widths.

    TensorFlow pads the end of an image by one more than its beginning where the padding is odd, and
    copies it into a larger one for that. PyTorch pads both ends alike. Where that is not the same,
    the image itself is made larger beforehand, and the measurement leaves out the copy.

    Returns:
        What is added to both ends of an image, and what makes the image larger beforehand.
    """
    needed = [
        max((made - 1) * stride + window - given, 0)
        for given, made, window, stride in zip(image, output, size, strides, strict=True)
    ]
    if any(each % 2 for each in needed):
        return [0, 0], needed
    return [each // 2 for each in needed], [0, 0]


def channels_first(shape: Sequence[int]) -> tuple[int, ...]:
    """Orders sizes as TensorFlow gives them to cuDNN."""
    batch, height, width, channels = shape
    return batch, channels, height, width
