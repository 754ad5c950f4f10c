#!/usr/bin/env bash
# setup_venv.sh PYTHON core|test|sweep|serve: make .venv on PYTHON and install what the main job (core), the tests or an extra need.
# An interpreter that already has torch keeps its own (system site packages); a machine without network works if nothing is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$1 what=$2
quiet=(--quiet --disable-pip-version-check)

command -v "$python" >/dev/null || { echo "setup: no interpreter '$python'; set PYTHON=/path/to/python (3.11 or newer)" >&2; exit 2; }
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "setup: $("$python" --version) is too old; Python 3.11 or newer is needed (make setup PYTHON=/path/to/python)" >&2; exit 2; }

if [ ! -x .venv/bin/python ]; then
    flags=()
    if "$python" -c 'import torch' 2>/dev/null; then flags=(--system-site-packages); fi
    echo "setup: making .venv on $("$python" --version)${flags:+, with its own torch}"
    "$python" -m venv "${flags[@]}" .venv
fi
py=.venv/bin/python

if [ "$what" = core ]; then
    if ! "$py" -c 'import torch, numpy, yaml, rich' 2>/dev/null; then
        extra=$("$py" -c 'import torch' 2>/dev/null && echo "" || echo "[torch]")
        echo "setup: installing what the main job needs${extra:+ (torch included, about a minute)}"
        "$py" -m pip install "${quiet[@]}" -e ".$extra"
    fi
    touch .venv/.core
else
    scripts/setup_venv.sh "$python" core
    extras=$what
    [ "$what" != test ] || extras=test,lint
    echo "setup: installing what '$what' needs"
    "$py" -m pip install "${quiet[@]}" -e ".[$extras]"
    touch ".venv/.$what"
fi
