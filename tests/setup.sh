# Sourced by benchmarks/run.sh and tests/run.sh: makes a Debian machine ready, and does nothing when
# it is. Python packages go into .venv, unless $TF_PLACER_PYTHON names an interpreter that has them.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=$root/.venv

die() {
  echo "tf_placer: $*" >&2
  exit 1
}

say() {
  echo "tf_placer: $*" >&2
}

# Installs Debian packages.
apt_install() {
  local as_root=()
  command -v apt-get >/dev/null || die "please install $* (there is no apt-get here to do it)"
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || die "please run as root: apt-get install $*"
    as_root=(sudo)
  fi
  say "installing $*"
  "${as_root[@]}" apt-get update -qq >&2
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -qq -y --no-install-recommends "$@" </dev/null >&2 ||
    die "apt-get could not install $*"
}

# Prints the first interpreter on PATH of a version that has TensorFlow wheels.
system_python() {
  local candidate
  for candidate in python3 python3.13 python3.12 python3.11; do
    if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
      2>/dev/null; then
      command -v "$candidate"
      return
    fi
  done
  return 1
}

make_venv() {
  local base
  if ! base=$(system_python); then
    apt_install python3 python3-venv
    base=$(system_python) || die "Python 3.11 to 3.13 is needed, and Debian's is $(python3 -V)"
  fi
  if ! "$base" -c 'import ensurepip, venv' 2>/dev/null; then
    # Debian's Python comes without these two.
    apt_install "$("$base" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"
  fi
  say "creating $venv with $base"
  "$base" -m venv "$venv" || die "could not create $venv"
}

# Sets $python to an interpreter with tf_placer's dependencies.
# Arguments: the extras of pyproject.toml that are needed.
setup_python() {
  local extra missing=() stamp
  # The core is compiled, by pip and by Bazel.
  command -v c++ >/dev/null || apt_install g++
  if [ -n "${TF_PLACER_PYTHON:-}" ]; then
    python=$(command -v "$TF_PLACER_PYTHON") || die "there is no TF_PLACER_PYTHON=$TF_PLACER_PYTHON"
    python=$(cd "$(dirname "$python")" && pwd)/$(basename "$python")
    export TF_PLACER_PYTHON=$python # tests/bazel/repositories.bzl needs it absolute
    "$python" -c 'import absl, networkx, numpy, pymetis, scipy, tensorflow' 2>/dev/null ||
      die "TF_PLACER_PYTHON=$python does not have tensorflow, networkx, numpy, pymetis, scipy and absl-py"
    return
  fi
  python=$venv/bin/python3
  "$python" -m pip --version >/dev/null 2>&1 || make_venv
  stamp=$(cat "$root/pyproject.toml" "$root/setup.py" "$root"/tf_placer/native/*.{cc,h} | sha256sum | cut -d ' ' -f 1)
  for extra in "$@"; do
    [ "$(cat "$venv/tf_placer-$extra.stamp" 2>/dev/null)" = "$stamp" ] || missing+=("$extra")
  done
  [ ${#missing[@]} = 0 ] && return
  say "installing Python packages into $venv"
  (cd "$root" && "$python" -m pip install --quiet --disable-pip-version-check \
    --editable ".[$(IFS=,; echo "${missing[*]}")]") >&2 || die "pip could not install the packages"
  # Bazel 4 looks for an interpreter again when this value changes.
  echo "build --repo_env=TF_PLACER_VENV=$stamp" >"$venv/bazelrc"
  for extra in "${missing[@]}"; do
    echo "$stamp" >"$venv/tf_placer-$extra.stamp"
  done
}

# Makes sure that there is a `bazel`.
setup_bazel() {
  command -v bazel >/dev/null || apt_install bazel-bootstrap
}

# Makes sure that there is Scotch, where that is possible: without it, the tests of the placers that
# need it are skipped.
setup_scotch() {
  (cd "$root" && "$python" -c 'from tf_placer.placers.heuristics import scotch_library
scotch_library.require_scotch("scotch")' 2>/dev/null) && return
  (apt_install libscotch-7.0) || say "the tests of the placers scotch and mincut are skipped"
}

# Makes sure that there is a Chromium, where that is possible: without it, the tests of how the page
# of a search looks and works in a browser are skipped.
setup_chromium() {
  (cd "$root" && "$python" -c 'import sys
from tests.browser import find_chromium
sys.exit(find_chromium() is None)' 2>/dev/null) && return
  (apt_install chromium-headless-shell) || say "the tests of pages in a browser are skipped"
}
