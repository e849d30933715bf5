#!/bin/bash
# Makes Debian packages of what `make build` has built: penstock, penstockd and penstock-dev.
#
#   tools/package/deb.sh [FOLDER]
#
# FOLDER is target/package if it is not given. PENSTOCK_BIN names the folder with the built
# programs. PENSTOCK_REVISION is Debian's revision of the package, 1 if it is not given. The time in
# the packages is that of the commit, or SOURCE_DATE_EPOCH.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../pool.sh"
folder=$(realpath -m "${1:-$PENSTOCK_TARGET/package}")
fail() { echo "$1" >&2; exit 1; }
# rustup may have been installed a moment ago.
[ -e "${CARGO_HOME:-$HOME/.cargo}/env" ] && . "${CARGO_HOME:-$HOME/.cargo}/env"
[ -x "$PENSTOCK_BIN/penstock" ] || fail "no penstock in $PENSTOCK_BIN: run \`make build\` first"
PENSTOCK_BIN=$(realpath "$PENSTOCK_BIN")
command -v dh >/dev/null || fail "no debhelper: run \`tools/setup.sh package\`"

epoch=${SOURCE_DATE_EPOCH:-$(git -C "$POOL_ROOT" log -1 --format=%ct)}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$POOL_ROOT/Cargo.toml" | head -n 1)
work=$(mktemp -d "${TMPDIR:-/tmp}/penstock-deb.XXXXXX")
trap 'rm -rf "$work"' EXIT
source=$work/penstock
mkdir -p "$source" "$folder"
cp -r "$POOL_ROOT/packaging/debian" "$POOL_ROOT/packaging/penstockd.env" "$source"
"$here/third_party.py" "$source/doc"
cp "$POOL_ROOT/README.md" "$POOL_ROOT/CHANGELOG.md" "$source/doc"
# `dh_installsystemd` finds the units here.
unit() { sed 's|@PREFIX@|/usr|' "$POOL_ROOT/packaging/$1.service.in" >"$source/debian/$2.service"; }
unit penstockd penstockd
unit penstock penstock.user
cat >"$source/debian/changelog" <<END
penstock ($version-${PENSTOCK_REVISION:-1}) unstable; urgency=medium

  * See CHANGELOG.md.

 -- Penstock's maintainers <maintainers@penstock.invalid>  $(LC_ALL=C date -u -R -d "@$epoch")
END
for mpi in openmpi mpich; do
    [ -e "$PENSTOCK_BIN/libwtr_mpi_$mpi.so" ] ||
        echo "the packages have no libraries for $mpi: this host has no mpicc.$mpi" >&2
done
log=$work/build.log
profile=$(basename "$PENSTOCK_BIN")
(
    cd "$source"
    export SOURCE_DATE_EPOCH=$epoch PENSTOCK_ROOT=$POOL_ROOT
    export PROFILE=$profile CARGO_TARGET_DIR=$(dirname "$PENSTOCK_BIN")
    dpkg-buildpackage --build=binary --unsigned-changes --no-check-builddeps
) >"$log" 2>&1 || { tail -n 40 "$log" >&2; fail "the packages could not be built"; }
rm -f "$folder"/penstock*.deb
for package in "$work"/*.deb; do
    mv -f "$package" "$folder"
    made=$folder/$(basename "$package")
    echo "$made: $(($(stat -c %s "$made") / 1024)) KiB"
done
