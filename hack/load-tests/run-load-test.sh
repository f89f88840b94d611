#!/usr/bin/env bash
# The limit test under its old name and with its old flags: -t target, -n name, -m multi-pipeline, -b backpressure,
# -d seconds (1200 where not given), -r rate, -s body bytes. Everything is done by `sluice load-test`, whose other options
# can be given as well. SLUICE is the binary, else the release build of this repository, else the one in PATH.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
sluice=${SLUICE:-${CARGO_TARGET_DIR:-$root/target}/release/sluice}
if [ ! -x "$sluice" ]; then
  sluice=$(command -v sluice) || {
    echo "run-load-test.sh: no sluice binary: run 'make build', or set SLUICE to its path" >&2
    exit 1
  }
fi

duration=(-d 1200)
for argument in "$@"; do
  case $argument in
    # A search has tries, and its own length for them.
    -d* | --duration | --duration=* | --find-limit | report | -h | --help) duration=() ;;
  esac
done
exec "$sluice" load-test "$@" ${duration[@]+"${duration[@]}"}
