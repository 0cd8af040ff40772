"""Repositories that let Bazel 4 test this project offline."""

def _native_rules_impl(ctx):
    ctx.file(ctx.attr.package + "/BUILD", "")
    ctx.file(ctx.attr.package + "/defs.bzl", "".join([
        "{0} = native.{0}\n".format(rule)
        for rule in ctx.attr.rules
    ]))

native_rules = repository_rule(
    implementation = _native_rules_impl,
    doc = "Re-exports Bazel's built-in rules under the label of the repository that replaced them.",
    attrs = {
        "package": attr.string(mandatory = True),
        "rules": attr.string_list(mandatory = True),
    },
)

def _empty_targets_impl(ctx):
    ctx.file("BUILD", "".join([
        "filegroup(name = \"{}\", visibility = [\"//visibility:public\"])\n".format(target)
        for target in ctx.attr.targets
    ]))

empty_targets = repository_rule(
    implementation = _empty_targets_impl,
    doc = "Declares targets without content.",
    attrs = {"targets": attr.string_list(mandatory = True)},
)

_FINDS_TENSORFLOW = "import importlib.util, sys; sys.exit(importlib.util.find_spec('tensorflow') is None)"

_TOOLCHAIN = """\
load("@bazel_tools//tools/python:toolchain.bzl", "py_runtime_pair")

py_runtime(name = "runtime", interpreter_path = "{0}", python_version = "PY3", stub_shebang = "#!{0}")

py_runtime_pair(name = "runtimes", py3_runtime = ":runtime")

toolchain(
    name = "toolchain",
    toolchain = ":runtimes",
    toolchain_type = "@bazel_tools//tools/python:toolchain_type",
)
"""

def _local_python_impl(ctx):
    candidates = [
        ctx.os.environ.get("TF_PLACER_PYTHON"),
        str(ctx.path(Label("//:WORKSPACE")).dirname) + "/.venv/bin/python3",
        ctx.which("python3"),
    ]
    for candidate in candidates:
        if candidate and ctx.path(candidate).exists:
            if ctx.execute([candidate, "-c", _FINDS_TENSORFLOW]).return_code == 0:
                ctx.file("BUILD", _TOOLCHAIN.format(candidate))
                return
    fail("No Python with TensorFlow found: run tests/run.sh, or set TF_PLACER_PYTHON, or activate an environment.")

local_python = repository_rule(
    implementation = _local_python_impl,
    doc = "A toolchain for the first interpreter that has TensorFlow installed.",
    # tests/setup.sh changes TF_PLACER_VENV (in .venv/bazelrc) whenever it changes .venv.
    environ = ["PATH", "TF_PLACER_PYTHON", "TF_PLACER_VENV"],
    local = True,
)
