#!/bin/bash
# Builds LAMMPS with its OpenCL package from Debian's source package into .cache/lammps (about 10
# minutes, once). Prints nothing and ends at once if it is built. Changes nothing outside .cache.
set -eu
cd "$(dirname "$0")/.."
home=$PWD/.cache/lammps
[ -x "$home/lmp" ] && [ -e "$home/bench/in.lj" ] && exit 0
tools/setup.sh build lammps
mkdir -p "$home/apt/lists/partial" "$home/apt/cache/archives/partial"
cd "$home"
# A separate package list from the archive that the machine uses: the machine's own list may lack
# the source packages.
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
archive=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Identifier: Packages' | awk '$3 == "main" {print $1, $2, $3; exit}')
echo "deb-src [signed-by=$keyring] $archive" >apt/sources.list
apt=(apt-get -q -o Dir::Etc::sourcelist="$home/apt/sources.list" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$home/apt/lists"
    -o Dir::Cache="$home/apt/cache" -o APT::Sandbox::User=root)
if ! ls -d lammps-*/ >/dev/null 2>&1; then
    echo "setup: fetching the source of LAMMPS"
    { "${apt[@]}" update && "${apt[@]}" source --download-only lammps && dpkg-source --no-check -x lammps_*.dsc; } >fetch.log 2>&1 ||
        { tail -n 20 fetch.log >&2; exit 1; }
fi
source=$(ls -d lammps-*/ | head -n 1)
echo "setup: building LAMMPS with OpenCL (about 10 minutes)"
{
    cmake -S "$source/cmake" -B build -DCMAKE_BUILD_TYPE=Release -DBUILD_MPI=on -DPKG_GPU=on -DGPU_API=opencl -DUSE_STATIC_OPENCL_LOADER=off \
        -DPKG_MOLECULE=on -DPKG_KSPACE=on -DPKG_RIGID=on -DBUILD_TOOLS=off -DWITH_JPEG=off -DWITH_PNG=off -DWITH_CURL=off &&
        nice cmake --build build --target lmp -j "$(nproc)"
} >build.log 2>&1 || { tail -n 30 build.log >&2; exit 1; }
cp build/lmp lmp
mkdir -p bench
cp "$source"/bench/in.lj "$source"/bench/in.rhodo "$source"/bench/data.rhodo bench/
rm -rf build "$source" lammps_*
