#!/usr/bin/env bash
# Runs the tests and the benchmark of accelerators on a machine that has one, with torch in some Python's packages, and
# reaches no package registry. Leaves a record.
#
#   tests/on_gpu.sh WHEELS RECORD TORCH_SITE_PACKAGES
#
# WHEELS is filled as tests/from_wheels.sh says, and with nvidia-ml-py.
set -uo pipefail
cd "$(dirname "$0")/.."
wheels=$(realpath "$1") record=$(realpath -m "$2") torch=$(realpath "$3")
mkdir -p "$record"
place=$(mktemp -d /opt/sandbox-kernel-gpu.XXXXXX)
trap 'rm -rf "$place"' EXIT
chmod 755 "$place"
mkdir "$place/source"
tar --exclude=./.git --exclude=./.venv --exclude=./artifacts --exclude=./wheels -cf - . | tar -xf - -C "$place/source" --no-same-owner
/usr/bin/python3 -m venv "$place/venv"
site=$("$place/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
# Hard links where that is possible: a sandbox shows the packages of its Python, and torch is large.
cp -aln "$torch/." "$site/" 2>/dev/null || cp -an "$torch/." "$site/"
"$place/venv/bin/python" -m pip install --quiet --no-index --no-deps "$wheels"/*.whl || exit 1
"$place/venv/bin/python" - "$place/source" <<'END'
import pathlib, sys, sysconfig
pathlib.Path(sysconfig.get_path("purelib"), "sandbox-kernel-source.pth").write_text(sys.argv[1] + "\n")
END
chmod -R a+rX "$place/source" "$place/venv"
cd "$place/source"
{
  uname -srm; nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
  "$place/venv/bin/python" -c 'import torch; print("torch", torch.__version__)'
} > "$record/gpu-machine.txt" 2>&1
status=0
"$place/venv/bin/python" -m pytest -q -p no:cacheprovider tests/jail/test_gpu.py tests/session/test_state_on_gpu.py \
  > "$record/gpu-tests.txt" 2>&1 || status=1
"$place/venv/bin/python" -m benchmarks.bench_gpu > "$record/gpu-benchmark.txt" 2>&1 || status=1
"$place/venv/bin/python" -m sandbox_kernel report --gpu > "$record/gpu-report.txt" 2>&1 || status=1
tail -n 40 "$record"/gpu-*.txt
exit "$status"
