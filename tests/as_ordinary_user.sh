#!/usr/bin/env bash
# Runs the tests whose subject differs between root and an ordinary user, as an ordinary user, from a world-readable copy
# with a virtual environment of the system's own python3.
set -euo pipefail
cd "$(dirname "$0")/.."
place=$(mktemp -d /var/tmp/sandbox-kernel-ordinary.XXXXXX)
trap 'rm -rf "$place"' EXIT
chmod 755 "$place"
mkdir "$place/home" "$place/source"
git ls-files -z | tar --null -T - -cf - | tar -xf - -C "$place/source"
/usr/bin/python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet -c constraints.txt "$place/source[test]"
chmod -R a+rX "$place"
chown -R 65534:65534 "$place/home"
cd "$place/source"
setpriv --reuid 65534 --regid 65534 --clear-groups \
  env -i HOME="$place/home" PATH=/usr/bin:/bin LANG=C.UTF-8 SANDBOX_KERNEL_REQUIRE_ALL="${SANDBOX_KERNEL_REQUIRE_ALL:-}" \
  "$place/venv/bin/python" -m pytest -n auto --dist loadfile -p no:cacheprovider -q --reruns 2 tests/attacks tests/jail tests/backends/test_process.py tests/backends/test_network.py "$@"
