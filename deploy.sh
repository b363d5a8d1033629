#!/bin/sh
# Installs this tree, a checkout or an unpacked release, on another host over ssh.
#
#   deploy.sh [--ssh-config FILE] HOST [options of install.sh]
#
# The runtime files are compared with the manifest here, copied into a scratch folder there, and
# installed by the same install.sh: compared again, compiled, imported, checked for health, and
# rolled back if need be.  Its status is ours.
set -eu
unset CDPATH

fail() {
    printf 'agentsdock: %s\n' "$*" >&2
    exit 1
}

# One word for the shell of the other side.
quote() {
    printf "'%s'" "$(printf '%s' "$1" | sed "s/'/'\\\\''/g")"
}

# Run there by sh.  The scratch folder goes, however it ends.
# shellcheck disable=SC2016  # expanded over there
receive='set -eu
umask 077
folder=$(mktemp -d "${TMPDIR:-/tmp}/agentsdock-deploy.XXXXXX")
trap "rm -rf \"\$folder\"" EXIT
trap "exit 130" INT TERM HUP
tar -xf - -C "$folder"
sh "$folder"/agentsdock-*/install.sh --non-interactive "$@"'

config=''
if [ "${1:-}" = --ssh-config ]; then
    [ $# -ge 2 ] || fail "--ssh-config needs a file"
    config=$2
    shift 2
fi
case ${1:-} in
    '' | -*) fail "usage: deploy.sh [--ssh-config FILE] HOST [options of install.sh]" ;;
esac
host=$1
shift

command -v ssh >/dev/null 2>&1 || fail "ssh is missing: install the OpenSSH client"
tree=$(cd -P "$(dirname -- "$0")" && pwd -P)
work=$(mktemp -d "${TMPDIR:-/tmp}/agentsdock-deploy.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP

"${PYTHON:-python3}" -B -s "$tree/packaging/runtime_manifest.py" "$tree" >"$work/runtime.tar"
words=''
for word in "$@"; do
    words="$words $(quote "$word")"
done
ssh -o BatchMode=yes -o ConnectTimeout=20 -o ServerAliveInterval=15 ${config:+-F "$config"} \
    -- "$host" "sh -c $(quote "$receive") deploy.sh$words" <"$work/runtime.tar"
