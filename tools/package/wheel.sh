#!/bin/bash
# Makes a wheel of what `make build` has built: the command, the libraries, and the Python package
# of libWater. `pip install` puts them into an environment without root.
#
#   tools/package/wheel.sh [FOLDER]
#
# FOLDER is target/package if it is not given. PENSTOCK_BIN names the folder with the built
# programs. The time in the wheel is that of the commit, or SOURCE_DATE_EPOCH. The wheel has no
# libraries for MPI, because they need the host's MPI, and no units of systemd.
set -eu
. "$(dirname "$0")/../pool.sh"
. "$POOL_ROOT/tools/package/common.sh"
python=$POOL_ROOT/.venv/bin/python
"$python" -c 'import wheel' 2>/dev/null ||
    fail "Python has no wheel: run \`tools/setup.sh package\`"
tree=$work/tree
data=$tree/penstock-$version.data
info=$tree/penstock-$version.dist-info
mkdir -p "$tree" "$info"
make --no-print-directory -C "$POOL_ROOT" install "PREFIX=$data/data" DESTDIR= \
    "${BUILT[@]}" >"$work/install.log" 2>&1 ||
    { tail "$work/install.log" >&2; fail "nothing was installed"; }
mv "$data/data/bin" "$data/scripts"
lib=$data/data/lib
rm -rf "$lib"/{systemd,pkgconfig,penstock/vendors} "$lib"/penstock/{,cuda/}lib*_mpi_*.so
find "$data/scripts" "$lib" -type f ! -name penstock-bench -exec strip --strip-unneeded {} +
# A wheel has no links. A library that needs the other one serves as well.
for link in "$lib"/penstock/cuda/*.so; do
    [ -L "$link" ] || continue
    target=$(readlink "$link")
    rm "$link"
    gcc -shared -nostdlib -s -Wl,--build-id=none -Wl,--no-as-needed -Wl,-rpath,'$ORIGIN' \
        -o "$link" "-L$lib/penstock/cuda" "-l:$target"
done
cp -r "$POOL_ROOT/python/penstock_water" "$tree"
find "$tree" -name __pycache__ -prune -exec rm -r {} +

# The oldest C library that has all functions which the programs need.
glibc=$(find "$data" -type f -exec objdump -T {} + 2>/dev/null |
    sed -n 's/.*(\{0,1\}GLIBC_2\.\([0-9]*\).*/\1/p' | sort -n | tail -n 1)
cat >"$info/WHEEL" <<END
Wheel-Version: 1.0
Generator: penstock
Root-Is-Purelib: false
Tag: py3-none-manylinux_2_${glibc}_$(uname -m)
END
cat >"$info/METADATA" <<END
Metadata-Version: 2.1
Name: penstock
Version: $version
Summary: Use the accelerators of a whole cluster as if they were local
License: Apache-2.0
Requires-Python: >=3.9
Requires-Dist: numpy; extra == "water"
Provides-Extra: water
Description-Content-Type: text/markdown

$(sed -n '1,/^## /{/^## /!p}' "$POOL_ROOT/README.md")
END
"$here/third_party.py" "$info/licenses"
cp "$POOL_ROOT/LICENSE" "$info/licenses"
mv "$info/licenses/sbom.cdx.json" "$info"
# The archive has the rights of the files.
chmod -R u=rwX,go=rX "$tree"
"$python" -m wheel pack --dest-dir "$work" "$tree" >"$work/pack.log" ||
    { cat "$work/pack.log" >&2; exit 1; }
take_made "penstock-*.whl" "$work"/*.whl
