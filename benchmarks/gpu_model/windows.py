"""Windows of convolutions and pooling: the padding that sizes of images and outputs need."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

__all__ = ["Window", "data_sizes"]


def data_sizes(shape: Sequence[int], data_format: str) -> tuple[int, int, int, int]:
    """Puts four sizes, one for each dimension of images, in the order NCHW.

    Args:
        shape: the sizes in the order of `data_format`.
        data_format: "NHWC" or "NCHW".
    """
    batch, channels, height, width = (shape[data_format.index(each)] for each in "NCHW")
    return batch, channels, height, width


@dataclasses.dataclass(frozen=True)
class Window:
    """A window that moves over images.

    TensorFlow pads the end of an image by one more than its beginning where the padding is odd, and
    copies it into a larger one for that. PyTorch pads both ends alike. Where that is not the same,
    `extra` makes the image itself larger beforehand, and the measurement leaves out the copy.

    Attributes:
        size: its height and width.
        strides: how far it moves.
        dilations: the distance of its elements.
        padding: what is added to both ends of an image in height and width.
        extra: what makes the image larger beforehand.
    """

    size: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    padding: tuple[int, int]
    extra: tuple[int, int]

    @classmethod
    def of(
        cls,
        image: Sequence[int],
        output: Sequence[int],
        size: Sequence[int],
        strides: Sequence[int],
        dilations: Sequence[int],
    ) -> Window:
        """Finds the padding.

        Args:
            image: height and width of images.
            output: height and width of what is made of them.
            size: height and width of the window.
            strides: how far it moves.
            dilations: the distance of its elements.
        """
        needed = []
        for axis in range(2):
            reach = (size[axis] - 1) * dilations[axis] + 1
            needed.append(max((output[axis] - 1) * strides[axis] + reach - image[axis], 0))
        is_even = all(each % 2 == 0 for each in needed)
        halves = (needed[0] // 2, needed[1] // 2)
        nothing = (0, 0)
        return cls(
            (size[0], size[1]),
            (strides[0], strides[1]),
            (dilations[0], dilations[1]),
            halves if is_even else nothing,
            nothing if is_even else (needed[0], needed[1]),
        )

    def padded(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """Computes the sizes of images, NCHW, after they are made larger beforehand."""
        batch, channels, height, width = sizes
        return batch, channels, height + self.extra[0], width + self.extra[1]

    @property
    def note(self) -> str:
        """The difference from the operation, as a part of a text; empty if there is none."""
        return ", image padded beforehand" if any(self.extra) else ""
