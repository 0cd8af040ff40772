#!/usr/bin/env bash
# The main job: sets up .venv where it is missing, then makes a language model's training step faster
# on two workers of this machine. Arguments go to benchmarks/live/language_model_job.py.
set -eu
source "$(dirname "${BASH_SOURCE[0]}")/../tests/setup.sh"
setup_python cpu
cd "$root"
exec "$python" -m benchmarks.live.language_model_job "$@"
