#!/usr/bin/env bash
# Tests everything: sets up .venv, Bazel, Scotch and Chromium where they are missing, then runs `bazel test //...`.
# Arguments go to `bazel test`, as options or as targets instead of `//...`.
set -eu
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
setup_python cpu report
setup_bazel
setup_scotch
setup_chromium
cd "$root"
targets=(//...)
for argument in "$@"; do
  case $argument in -*) ;; *) targets=() ;; esac
done
# Bazel 7 and later take the python3 of PATH.
PATH=$(dirname "$python"):$PATH exec bazel test "$@" "${targets[@]}"
