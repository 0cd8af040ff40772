"""Places the graphs of a program whose code stays as it is: experimental, `run` is supported.

Where the environment variable `TF_PLACER_PLACEMENT` names a placement file, importing this package
loads a pass into TensorFlow. It sets the devices of operations by their names, in graphs of
sessions and of functions alike, before TensorFlow places them. Without the variable the import does
nothing.
"""

from __future__ import annotations

from tf_placer.native_pass.loading import place_as_environment_says

place_as_environment_says()
