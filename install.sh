#!/bin/sh
# install.sh [--prefix DIR]: installs what boxdfs needs from the distribution's packages, builds a
# release build and installs it: to /usr/local as root, to ~/.local otherwise.
#   --no-packages        trust that everything needed is there
#   --packages NAME...   install what the build needs and these packages (Debian's names), then stop
# Environment: DESTDIR, BOXDFS_RELEASE_BUILD (build-release).
set -eu
export DEBIAN_FRONTEND=noninteractive
cd "$(dirname "$0")"

exec 3>&2 # a failure is told even where a command's output goes to the log
say() { echo "install.sh: $*"; }
stop() {
    echo "install.sh: $*" >&3
    exit 1
}

# What the build and boxdfs need, by distribution. Tried on Debian 12; the other rows are the names
# those distributions give the same things, untried.
debian="gcc libc6-dev meson ninja-build pkg-config libfuse3-dev libnghttp2-dev libssl-dev libuv1-dev
    libcurl4-openssl-dev libprotobuf-c-dev protobuf-c-compiler libcjson-dev fuse3 uidmap"
fedora="gcc glibc-static meson ninja-build pkgconf-pkg-config fuse3-devel libnghttp2-devel openssl-devel
    libuv-devel libcurl-devel protobuf-c-devel protobuf-c-compiler cjson-devel fuse3 shadow-utils"
arch="gcc meson ninja pkgconf fuse3 libnghttp2 openssl libuv curl protobuf-c cjson shadow"
suse="gcc glibc-devel-static meson ninja pkgconf fuse3-devel libnghttp2-devel libopenssl-devel libuv-devel
    libcurl-devel libprotobuf-c-devel protobuf-c cJSON-devel fuse3 shadow"
alpine="gcc musl-dev meson ninja pkgconf fuse3-dev nghttp2-dev openssl-dev libuv-dev curl-dev
    protobuf-c-dev protobuf-c-compiler cjson-dev fuse3 shadow-uidmap"

# as_root COMMAND: says the command, where root's rights cannot be had.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null 2>&1 && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
        sudo env DEBIAN_FRONTEND=noninteractive "$@"
    else
        stop "packages are missing; run this as root, then start again: $*"
    fi
}

missing_debian() {
    for p in "$@"; do
        dpkg-query -W -f '${db:Status-Abbrev}' "$p" 2>/dev/null | grep -q '^ii' || echo "$p"
    done
}

install_debian() {
    missing=$(missing_debian "$@")
    [ -n "$missing" ] || return 0
    say "installing" $missing
    # Lists may be absent on a fresh system, or too old to name files that still exist.
    as_root apt-get install -qy --no-install-recommends $missing >"$log" || {
        as_root apt-get update -q >"$log" || { cat "$log" && stop "apt-get update failed"; }
        as_root apt-get install -qy --no-install-recommends $missing >"$log" || {
            cat "$log" && stop "apt-get install failed"
        }
    }
}

install_packages() {
    if command -v apt-get >/dev/null 2>&1; then
        install_debian $debian "$@"
    elif command -v dnf >/dev/null 2>&1; then
        untried && as_root dnf install -y $fedora
    elif command -v pacman >/dev/null 2>&1; then
        untried && as_root pacman -S --needed --noconfirm $arch
    elif command -v zypper >/dev/null 2>&1; then
        untried && as_root zypper --non-interactive install $suse
    elif command -v apk >/dev/null 2>&1; then
        untried && as_root apk add $alpine
    else
        say "no known package manager; these are needed, by Debian's names:" $debian
    fi
}
untried() {
    say "package names for this distribution are untried; Debian 12 is what boxdfs is tested on"
}

prefix='' packages=yes only=''
while [ $# -gt 0 ]; do
    case $1 in
    --prefix)
        [ $# -gt 1 ] || stop "--prefix needs a directory"
        prefix=$2 && shift
        ;;
    --prefix=*) prefix=${1#*=} ;;
    --no-packages) packages='' ;;
    --packages)
        only=yes && shift
        break
        ;;
    -h | --help)
        sed -n '2,/^[^#]/s/^# \{0,1\}//p' install.sh
        exit 0
        ;;
    *) stop "unknown option '$1' (see sh install.sh --help)" ;;
    esac
    shift
done

log=$(mktemp)
trap 'rm -f "$log"' EXIT
if [ -n "$packages" ]; then install_packages "$@"; fi
[ -z "$only" ] || exit 0

if [ -z "$prefix" ]; then
    if [ "$(id -u)" = 0 ]; then prefix=/usr/local; else prefix=$HOME/.local; fi
fi
case $prefix in /*) ;; *) prefix=$PWD/$prefix ;; esac
build=${BOXDFS_RELEASE_BUILD:-$PWD/build-release}

say "building in $build"
if [ -e "$build/build.ninja" ]; then set -- --reconfigure; else set --; fi
meson setup "$@" "$build" --buildtype=release --prefix="$prefix" --libdir=lib \
    -Dwerror=false >"$log" 2>&1 || { cat "$log" && stop "meson setup failed"; }
ninja -C "$build" >"$log" 2>&1 || { tail -50 "$log" && stop "the build failed"; }
say "installing to ${DESTDIR:-}$prefix"
meson install -C "$build" --no-rebuild >"$log" 2>&1 || { cat "$log" && stop "installing failed"; }

boxdfs=${DESTDIR:-}$prefix/bin/boxdfs
if [ -n "${DESTDIR:-}" ]; then
    [ -x "$boxdfs" ] || stop "'$boxdfs' is not there after installing"
else
    "$boxdfs" version || stop "'$boxdfs' was installed but does not run"
fi
case :$PATH: in
*:"$prefix/bin":*) ;;
*) say "$prefix/bin is not in PATH: export PATH=\"$prefix/bin:\$PATH\"" ;;
esac
