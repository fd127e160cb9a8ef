#!/bin/sh
# The CUDA tests, then W1 to W3 on the GPU beside the sequential loop on the same device,
# then the threshold of the two bases and what each open step must show.
# Writes benchmarks/results/gpu-NAME-DATE.json. Without a device: one line, exit code 2.
# With --device pretend: the same on the device of tests/simulate/device, which needs no GPU.
#
#   benchmarks/gpu.sh [--repeats 5] [--output FOLDER] [--device pretend]
#
# PYTHON names the interpreter; by default .venv/bin/python where there is one, else python3.
set -eu
cd "$(dirname "$0")/.."
if [ -z "${PYTHON:-}" ]; then
  PYTHON=python3
  [ -x .venv/bin/python ] && PYTHON=.venv/bin/python
fi
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
# Reproducible cuBLAS results, which the tests compare.
export CUBLAS_WORKSPACE_CONFIG="${CUBLAS_WORKSPACE_CONFIG:-:4096:8}"
"$PYTHON" benchmarks/gpu.py --check "$@"
TESTS=tests/simulate/cuda
case " $* " in *pretend*) TESTS=tests/simulate/device/test_alone.py ;; esac
"$PYTHON" -m pytest -q -m "slow or not slow" "$TESTS"
"$PYTHON" benchmarks/gpu.py "$@"
case " $* " in *pretend*) exit ;; esac
"$PYTHON" benchmarks/bases.py --device cuda
"$PYTHON" benchmarks/gpu_steps.py
