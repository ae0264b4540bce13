#!/usr/bin/env bash
# Programs outside Python that some tests need. Root on Debian gets the missing ones from apt; for anyone else the
# tests that need them are skipped. Where CI is set a program that stays missing is an error.
set -euo pipefail

missing() {
  local pair
  for pair in "$@"; do
    command -v "${pair%%:*}" >/dev/null 2>&1 || echo "${pair##*:}"
  done
}

# program:Debian package
needed="git:git chromium:chromium chromedriver:chromium-driver"

lacking=$(missing $needed)
[ -n "$lacking" ] || exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
  echo "system: apt-get install" $lacking >&2
  export DEBIAN_FRONTEND=noninteractive
  { apt-get update -qq && apt-get install -qq -y --no-install-recommends $lacking; } >/dev/null || true
  lacking=$(missing $needed)
  [ -n "$lacking" ] || exit 0
fi

echo "system: not installed:" $lacking "(on Debian: apt-get install" $lacking")" >&2
if [ -n "${CI:-}" ]; then exit 1; fi
echo "system: the tests that need them are skipped" >&2
