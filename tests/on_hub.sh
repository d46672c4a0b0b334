#!/usr/bin/env bash
# Runs a real JupyterHub with our recipe, as an ordinary user without control groups: jupyterhub from the Python registry,
# its proxy from npm, packages of .venv for the system's python3. Needs root, to become that user. Not part of CI.
set -euo pipefail
cd "$(dirname "$0")/.."
place=$(mktemp -d /opt/sandbox-kernel-hub.XXXXXX)
trap 'rm -rf "$place"' EXIT
chmod 755 "$place"
mkdir "$place/home" "$place/source"
git ls-files -z --cached --others --exclude-standard | tar --null -T - -cf - | tar -xf - -C "$place/source"
/usr/bin/python3 -m venv --without-pip "$place/venv"
own=$(echo "$place"/venv/lib/python3*/site-packages)
# The same packages as in .venv, linked; our own come from the copy of the source.
rmdir "$own"
cp -al "$(echo .venv/lib/"$(basename "$(dirname "$own")")"/site-packages)" "$own"
rm -f "$own"/*sandbox_kernel*.pth
echo "$place/source" > "$own/source.pth"
"$place/venv/bin/python" -m pip install --quiet -c constraints.txt jupyterhub
npm install --silent --no-fund --no-audit --prefix "$place/proxy" configurable-http-proxy@5
mkdir -p "$place/venv/share/jupyter/kernels"
cp -r kernelspec/sandbox "$place/venv/share/jupyter/kernels/"
chmod -R a+rX "$place"
"$place/venv/bin/python" -m sandbox_kernel wrap python3 --sys-prefix --memory 1G
chmod -R a+rX "$place/venv/share"
chown -R 65534:65534 "$place/home"
cd "$place/source"
setpriv --reuid 65534 --regid 65534 --clear-groups \
  env -i HOME="$place/home" PATH="$place/venv/bin:/usr/bin:/bin" LANG=C.UTF-8 \
  SANDBOX_KERNEL_HUB="$place/proxy/node_modules/.bin/configurable-http-proxy" \
  "$place/venv/bin/python" -m pytest -p no:cacheprovider -q --timeout 300 tests/wrapped/hub "$@"
