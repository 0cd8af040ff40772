"""Places the graphs of an unchanged program by a pass inside of TensorFlow.

This is experimental; the command `run` is the supported way. If the environment variable
`TF_PLACER_PLACEMENT` names a placement file, importing this package loads the pass into TensorFlow.
It sets the devices of operations by their names, in graphs of sessions and of functions, before
TensorFlow places them. Without the variable the import does nothing.
"""

from __future__ import annotations

from tf_placer.native_pass.loading import place_by_environment

place_by_environment()
