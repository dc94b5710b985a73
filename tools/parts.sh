#!/bin/sh
# Install what the tests need and no wheel has: sh tools/parts.sh pgbouncer strace postgresql-15 prometheus
#
# A part that is there is left alone, and then nothing is asked of the network. Where this may not install
# (no root, no apt-get) or cannot, it says what to do and goes on: a test without its part is skipped with
# the same words, and fails under CI=true. No service is started by what it installs, and none is left to
# start by itself later.
set -eu

PATH="$PATH:/usr/sbin:/usr/local/sbin"
export DEBIAN_FRONTEND=noninteractive

policy=/usr/sbin/policy-rc.d
clusters=/etc/postgresql-common/createcluster.d/perdure-tests.conf
made=

present() {
    case $1 in
        postgresql-*) [ -x "/usr/lib/postgresql/${1#postgresql-}/bin/postgres" ] ;;
        *) command -v "$1" >/dev/null 2>&1 ;;
    esac
}

absent() {
    for part; do present "$part" || printf '%s ' "$part"; done
}

put_back() {
    for file in $made; do rm -f "$file"; done
    rmdir /etc/postgresql-common/createcluster.d /etc/postgresql-common 2>/dev/null || true
}

# A package may start its service when it is installed, and PostgreSQL's makes a cluster and starts that.
keep_quiet() {
    trap put_back EXIT
    trap 'exit 1' HUP INT TERM
    if [ ! -e "$policy" ]; then
        made="$policy"
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
    fi
    case $1 in
        *postgresql-*)
            made="$made $clusters"
            mkdir -p "${clusters%/*}"
            echo 'create_main_cluster = false' >"$clusters"
            ;;
    esac
}

apt() {
    apt-get -qq -o DPkg::Lock::Timeout=300 "$@" </dev/null
}

install_all() {
    # A fresh container has no package lists.
    apt install -y --no-install-recommends "$@" >/dev/null 2>&1 ||
        { apt update && apt install -y --no-install-recommends "$@" >/dev/null; }
}

wanted=$(absent "$@")
[ -n "$wanted" ] || exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "parts: installing $wanted"
    keep_quiet "$wanted"
    # shellcheck disable=SC2086  # a list of words
    install_all $wanted || true
    for service in pgbouncer prometheus; do
        case $wanted in
            *$service*) if command -v systemctl >/dev/null 2>&1; then systemctl --quiet disable "$service" 2>/dev/null || true; fi ;;
        esac
    done
    wanted=$(absent "$@")
fi
if [ -n "$wanted" ]; then
    {
        echo "parts: MISSING $wanted"
        echo "parts: the tests that need them are skipped, and fail under CI=true. To install them:"
        echo "parts:   sudo apt-get install --no-install-recommends $wanted"
    } >&2
fi
