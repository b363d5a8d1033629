#!/bin/sh
# Removes agentsdock; chats, files and token are kept unless --purge-state is given.
# Without --prefix it removes the installation that it lies in, else the usual one.
set -eu
unset CDPATH

here=$(cd -P "$(dirname -- "$0")" && pwd -P)
above=$(dirname -- "$(dirname -- "$here")")
[ ! -f "$above/.agentsdock" ] || set -- --prefix "$above" "$@"
for python in ${PYTHON:+"$PYTHON"} python3 "$here/venv/bin/python"; do
    if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        # The program is in memory before its file is removed.
        exec "$python" -B -s "$here/packaging/uninstall.py" "$@"
    fi
done
printf 'agentsdock: Python 3.11 or newer is missing\n' >&2
exit 1
