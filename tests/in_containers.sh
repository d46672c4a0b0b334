#!/usr/bin/env bash
# Prints what the report says under the restrictions of containers (tests/jail/containers.py), with the system's python3 and
# the packages of .venv, where an ordinary user can read them. Needs root. Not part of CI.
set -euo pipefail
cd "$(dirname "$0")/.."
place=$(mktemp -d /opt/sandbox-kernel-containers.XXXXXX)
trap 'rm -rf "$place"' EXIT
chmod 755 "$place"
mkdir "$place/source" "$place/home"
git ls-files -z --cached --others --exclude-standard | tar --null -T - -cf - | tar -xf - -C "$place/source"
/usr/bin/python3 -m venv --without-pip "$place/venv"
own=$(echo "$place"/venv/lib/python3*/site-packages)
rmdir "$own"
cp -al ".venv/lib/$(basename "$(dirname "$own")")/site-packages" "$own"
rm -f "$own"/*sandbox_kernel*.pth
chmod -R a+rX "$place"
chmod 777 "$place/home"
cd "$place/source"
env -i HOME="$place/home" PATH=/usr/bin:/bin:/usr/sbin:/sbin LANG=C.UTF-8 "$place/venv/bin/python" -m tests.jail.containers
