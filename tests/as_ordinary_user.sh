#!/usr/bin/env bash
# Runs the tests whose subject differs between root and an ordinary user, as an ordinary user, from a world-readable copy
# with a virtual environment of the system's own python3.
set -euo pipefail
cd "$(dirname "$0")/.."
place=$(mktemp -d /opt/sandbox-kernel-ordinary.XXXXXX)
trap 'rm -rf "$place"' EXIT
chmod 755 "$place"
mkdir "$place/home" "$place/source"
git ls-files -z | tar --null -T - -cf - | tar -xf - -C "$place/source"
/usr/bin/python3 -m venv "$place/venv"
version='import sys; print("python%d.%d" % sys.version_info[:2])'
ours=".venv/lib/$(.venv/bin/python -c "$version" 2>/dev/null)/site-packages"
theirs="$place/venv/lib/$(/usr/bin/python3 -c "$version")/site-packages"
if [ -d "$ours" ] && [ "$(basename "$(dirname "$ours")")" = "$(basename "$(dirname "$theirs")")" ]; then
  # The same packages for the same Python: linked, not fetched again. Only our own come from the copy of the source.
  rm -rf "$theirs"
  cp -al "$ours" "$theirs" 2>/dev/null || cp -a "$ours" "$theirs"
  rm -f "$theirs"/*sandbox_kernel*.pth
  echo "$place/source" > "$theirs/source.pth"
  # JupyterLab's pages lie outside of its package.
  cp -al .venv/share "$place/venv/" 2>/dev/null || cp -a .venv/share "$place/venv/"
else
  "$place/venv/bin/pip" install --quiet -c constraints.txt "$place/source[all,test]"
fi
# What was compiled for root is compiled for this user too; the store checks it before it is used.
cache="${XDG_CACHE_HOME:-$HOME/.cache}/sandbox-kernel"
if [ -d "$cache" ]; then
  mkdir "$place/home/.cache"
  cp -a "$cache" "$place/home/.cache/"
fi
# This user may not write there, and what is not compiled is compiled again at each start of a jail or a kernel.
"$place/venv/bin/python" -m compileall -q -j 0 "$place/source/sandbox_kernel" "$place/source/tests"
chmod -R a+rX "$place/source" "$place/venv"
mkdir "$place/source/artifacts"
chown -R 65534:65534 "$place/home" "$place/source/artifacts"
# The record of second tries of this part lies with those of the other parts, where this user may not write: it is copied
# in before the tests and back after them, whether they passed or not.
records="${SANDBOX_KERNEL_RECORDS:-}"
record=second-tries-ordinary-user.json
mkdir "$place/records"
if [ -n "$records" ] && [ -f "$records/$record" ]; then
  cp "$records/$record" "$place/records/"
fi
chown -R 65534:65534 "$place/records"
commit=$(git rev-parse HEAD)
# Two programs in Rust are left out: its compiler may lie in root's own home.
tests=(
  tests/attacks/walls
  tests/attacks/sessions/test_programs_as_cells.py
  tests/jail
  tests/session/worker/test_memory_budget.py
  tests/session/test_every_limit.py
  tests/session/test_rollback.py
  tests/session/worker/test_fork_authorization.py
  tests/session/worker/test_frozen_copies.py
  tests/session/test_mapped_files.py
  tests/backends/test_process.py
  tests/backends/test_network.py
  tests/backends/test_program_lookup.py
  tests/test_odd_places.py
  tests/box/test_here.py
  tests/workspace/overlay
  tests/session/test_rights.py
  tests/policy/test_grants.py
  tests/notebook/test_folder_notebook.py
  tests/notebook/test_permission_prompts.py
  tests/workspace/test_kept_work.py
  tests/browser/panel/test_every_control.py
  tests/session/test_light_python_behind_walls.py
)
cd "$place/source"
status=0
setpriv --reuid 65534 --regid 65534 --clear-groups \
  env -i HOME="$place/home" PATH=/usr/bin:/bin LANG=C.UTF-8 SANDBOX_KERNEL_REQUIRE_ALL="${SANDBOX_KERNEL_REQUIRE_ALL:-}" \
  SANDBOX_KERNEL_RECORDS="$place/records" SANDBOX_KERNEL_PART=ordinary-user SANDBOX_KERNEL_COMMIT="$commit" \
  "$place/venv/bin/python" -m pytest -n "$(($(nproc) + 2))" --dist loadfile -p no:cacheprovider -q --reruns 2 \
  -k "not leaks-of-many-threads and not secrets-by-macros" "${tests[@]}" "$@" || status=$?
if [ -n "$records" ] && [ -f "$place/records/$record" ]; then
  mkdir -p "$records"
  cp "$place/records/$record" "$records/"
fi
exit "$status"
