"""TensorFlow's C++ runtime without its Python interface, for processes that only serve.

`import tensorflow` takes 4 s here, and these imports half a second. They leave the module
`tensorflow` unusable, so that a process which needs it must not call `import_runtime`.
"""

from __future__ import annotations

import importlib.util
import pathlib
import sys
import types
from typing import Any

__all__ = ["import_runtime"]

# Op libraries that `import tensorflow` loads in addition; a version may lack some of them.
_OP_LIBRARIES = ("lite/experimental/microfrontend/python/ops/_audio_microfrontend_op.so",)
_PACKAGE = "tensorflow"


def import_runtime() -> tuple[Any, Any]:
    """Imports the runtime with all operations and kernels that `import tensorflow` registers.

    Returns:
        The module of TensorFlow's C interface, and that of `ServerDef`. If a version of TensorFlow
        cannot be imported in part, it is imported as a whole.
    """
    try:
        return _import_part()
    except Exception:
        for name in [name for name in sys.modules if name.partition(".")[0] == _PACKAGE]:
            del sys.modules[name]
        import tensorflow as tf  # noqa: F401

        return _import_interface()


def _import_part() -> tuple[Any, Any]:
    spec = importlib.util.find_spec(_PACKAGE)
    assert spec is not None and spec.submodule_search_locations
    package = types.ModuleType(_PACKAGE)
    package.__spec__, package.__path__ = spec, list(spec.submodule_search_locations)
    sys.modules[_PACKAGE] = package
    c_api, server_proto = _import_interface()
    from tensorflow.python.platform import _pywrap_tf2

    _pywrap_tf2.enable(True)  # As `import tensorflow` does.
    for library in _OP_LIBRARIES:
        path = next(
            (path for root in package.__path__ if (path := pathlib.Path(root, library)).exists()),
            None,
        )
        if path is not None:
            c_api.TF_LoadLibrary(str(path))
    return c_api, server_proto


def _import_interface() -> tuple[Any, Any]:
    from tensorflow.core.protobuf import tensorflow_server_pb2
    from tensorflow.python import pywrap_tensorflow  # noqa: F401
    from tensorflow.python.client import pywrap_tf_session

    return pywrap_tf_session, tensorflow_server_pb2
