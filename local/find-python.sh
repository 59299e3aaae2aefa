#!/bin/sh
# Prints a Python that Marginalia runs on: 3.12 or later, with venv. Looks on PATH, then among pyenv's versions.
# 3.11 and earlier lose cancellations (cpython#86296), so they are not taken.
fits() {
    "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 12))' 2>/dev/null
}

for name in python3.13 python3.12 python3.14 python3; do
    found=$(command -v "$name" 2>/dev/null) || continue
    if fits "$found"; then
        echo "$found"
        exit 0
    fi
done
for found in "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[2-9]*/bin/python3; do
    if [ -x "$found" ] && fits "$found"; then
        echo "$found"
        exit 0
    fi
done
echo "Marginalia needs Python 3.12 or later with venv; none was found on PATH or in pyenv. Install python3.13 (and python3.13-venv), or run: pyenv install 3.13" >&2
exit 1
