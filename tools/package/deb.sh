#!/bin/bash
# Makes Debian packages of what `make build` has built: penstock, penstockd and penstock-dev.
#
#   tools/package/deb.sh [FOLDER]
#
# FOLDER is target/package if it is not given. PENSTOCK_BIN names the folder with the built
# programs. PENSTOCK_REVISION is Debian's revision of the package, 1 if it is not given. The time in
# the packages is that of the commit, or SOURCE_DATE_EPOCH.
set -eu
. "$(dirname "$0")/../pool.sh"
. "$POOL_ROOT/tools/package/common.sh"
command -v dh >/dev/null || fail "no debhelper: run \`tools/setup.sh package\`"

source=$work/penstock
mkdir -p "$source"
cp -r "$POOL_ROOT/packaging/debian" "$POOL_ROOT/packaging/penstockd.env" "$source"
"$here/third_party.py" "$source/doc"
cp "$POOL_ROOT/README.md" "$POOL_ROOT/CHANGELOG.md" "$source/doc"
# `dh_installsystemd` finds the units here.
unit() { sed 's|@PREFIX@|/usr|' "$POOL_ROOT/packaging/$1.service.in" >"$source/debian/$2.service"; }
unit penstockd penstockd
unit penstock penstock.user
date=$(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")
cat >"$source/debian/changelog" <<END
penstock ($version-${PENSTOCK_REVISION:-1}) unstable; urgency=medium

  * See CHANGELOG.md.

 -- Penstock's maintainers <maintainers@penstock.invalid>  $date
END
for mpi in openmpi mpich; do
    [ -e "$PENSTOCK_BIN/libwtr_mpi_$mpi.so" ] ||
        echo "the packages have no libraries for $mpi: this host has no mpicc.$mpi" >&2
done
log=$work/build.log
(
    cd "$source"
    export PENSTOCK_ROOT=$POOL_ROOT "${BUILT[@]}"
    dpkg-buildpackage --build=binary --unsigned-changes --no-check-builddeps
) >"$log" 2>&1 || { tail -n 40 "$log" >&2; fail "the packages could not be built"; }
take_made "penstock*.deb" "$work"/*.deb
