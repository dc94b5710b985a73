#!/bin/sh
# Make .venv: the pinned tools of requirements/dev.txt, and perdure itself, editable.
#
# Runs from the project root (make does that). Needs Python >= 3.11 and some pip; neither ensurepip nor a
# system-wide uv. Safe to run again: an existing .venv is brought up to date in place, so that processes
# that use it go on, and is made anew only when its Python no longer runs or the checkout has moved.
set -eu

stamp=$1  # named after the checkout's path, so that a moved checkout is set up again

newest_python() {
    if [ -n "${PYTHON:-}" ]; then set -- "$PYTHON"; else set -- python3.13 python3.12 python3.11 python3; fi
    for candidate; do
        # Run it: a name on the PATH may be a shim for an interpreter that is not there.
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    echo "setup: no Python >= 3.11 (tried: $*); install one, or name it: make setup PYTHON=/path/to/python3" >&2
    return 1
}

# The pinned uv with its hashes, as a requirements file of its own.
uv_pin() {
    awk '/^uv==/ { on = 1 } on { print } on && !/\\$/ { exit }' requirements/dev.txt
}

fetch_uv() {
    rm -rf .venv/uv
    uv_pin >.venv/uv.txt
    export PIP_ROOT_USER_ACTION=ignore  # the target is ours, whoever runs this
    for candidate in "$python" python3 python; do
        "$candidate" -m pip --version >/dev/null 2>&1 || continue
        # --target also works where the system forbids installs into itself (PEP 668).
        "$candidate" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
            --target .venv/uv -r .venv/uv.txt
        return
    done
    .venv/bin/python -m ensurepip >/dev/null 2>&1 || {
        echo "setup: no pip found; install it (Debian, Ubuntu: apt install python3-pip)" >&2
        return 1
    }
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
        --target .venv/uv -r .venv/uv.txt
}

python=$(newest_python)
if [ ! -e "$stamp" ] && ls .venv/.ready-* >/dev/null 2>&1; then
    rm -rf .venv  # its scripts and its link to src/ point to where the checkout was
fi
if ! .venv/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    "$python" -m venv --clear --without-pip .venv
fi

uv=.venv/bin/uv
if ! [ -x "$uv" ]; then
    fetch_uv
    uv=.venv/uv/bin/uv
fi
"$uv" pip sync --quiet --python .venv/bin/python --require-hashes requirements/dev.txt
# hatchling is among the pins, so building needs no network.
"$uv" pip install --quiet --python .venv/bin/python --no-deps --no-build-isolation --editable .
rm -rf .venv/uv .venv/uv.txt
touch "$stamp"
echo "setup: .venv is ready ($(.venv/bin/python --version))"
