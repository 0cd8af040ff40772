#!/usr/bin/env bash
# Tests everything: sets up .venv, Bazel and Scotch where they are missing, then runs `bazel test //...`.
# Arguments go to `bazel test`, as options or as targets instead of `//...`.
set -eu
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
setup_python cpu
setup_bazel
setup_scotch
cd "$root"
targets=(//...)
for argument in "$@"; do
  case $argument in -*) ;; *) targets=() ;; esac
done
# The simulator is compiled once, not by every test. A sandbox with a /tmp of its own compiles again.
options=("--test_env=NUMBA_CACHE_DIR=/tmp/tf_placer_numba_$(id -u)")
# Bazel 7 and later take the python3 of PATH.
PATH=$(dirname "$python"):$PATH exec bazel test "${options[@]}" "$@" "${targets[@]}"
