import pathlib
import runpy

import setuptools

native = pathlib.Path("tf_placer", "native")
digest = runpy.run_path(str(native / "digest.py"))["compute_sources_digest"](native)

# All other metadata is in pyproject.toml.
setuptools.setup(
    ext_modules=[
        setuptools.Extension(
            "tf_placer.native._core",
            sources=[str(native / "core.cc")],
            depends=[str(header) for header in native.glob("*.h")],
            include_dirs=["."],
            language="c++",
            define_macros=[("TF_PLACER_NATIVE_DIGEST", f'"{digest}"')],
            # Without fused multiply-add every processor rounds alike.
            extra_compile_args=["-std=c++17", "-O3", "-ffp-contract=off"],
        )
    ]
)
