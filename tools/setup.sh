#!/bin/bash
# Installs what is missing to build and test Penstock on Debian 12 (or a relative of it).
#
#   tools/setup.sh [build] [test] [programs] [lammps]     default: build test
#
#   build     C compiler, OpenCL headers and loader; Rust through rustup, only where cargo is absent or too old
#   test      PoCL and the small real programs; a Python environment in .venv with PyOpenCL
#   programs  the larger ones: clpeak, OpenMM, OpenCV
#   lammps    what LAMMPS needs to be built from Debian's source package
#
# Runs as root or with sudo. Says what it does; says nothing and is quick when all is there.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"

say() { echo "setup: $*"; }

packages_of() {
    case $1 in
        build) echo gcc libc6-dev make pkg-config curl ca-certificates ocl-icd-opencl-dev opencl-headers ocl-icd-libopencl1 ;;
        test) echo pocl-opencl-icd ocl-icd-libopencl1 clinfo clfft-client hashcat ffmpeg python3 python3-venv curl ca-certificates procps ;;
        programs) echo clpeak ;;
        lammps) echo cmake g++ libfftw3-dev libjpeg-dev libpng-dev dpkg-dev xz-utils libopenmpi-dev openmpi-bin ;;
        *) echo "setup: no such group: $1 (build, test, programs, lammps)" >&2; exit 2 ;;
    esac
}

install_packages() {
    local missing=() name
    for name in $(for group in "$@"; do packages_of "$group"; done | tr ' ' '\n' | sort -u); do
        # Some packages are provided by others (as virtual ones): ask for the state of the name itself.
        dpkg-query -W -f '${Status}' "$name" 2>/dev/null | grep -q 'ok installed' || missing+=("$name")
    done
    [ ${#missing[@]} -eq 0 ] && return 0
    if ! command -v apt-get >/dev/null; then
        say "this is no Debian; please install by hand: ${missing[*]}"
        return 0
    fi
    local as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || { say "root rights or sudo are needed to install: ${missing[*]}" >&2; exit 1; }
        as_root=(sudo)
    fi
    say "installing Debian packages: ${missing[*]}"
    local log
    log=$(mktemp)
    if ! { "${as_root[@]}" apt-get update -q &&
        "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
        tail -n 30 "$log" >&2
        rm -f "$log"
        say "apt-get failed" >&2
        exit 1
    fi
    rm -f "$log"
}

# The oldest Rust the workspace takes.
rust_wanted() { sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml | head -n 1; }

install_rust() {
    local wanted have
    wanted=$(rust_wanted)
    [ -e "$HOME/.cargo/env" ] && . "$HOME/.cargo/env"
    have=$(cargo --version 2>/dev/null | awk '{print $2}')
    if [ -n "$have" ] && [ "$(printf '%s\n%s\n' "$wanted" "$have" | sort -V | head -n 1)" = "$wanted" ]; then return 0; fi
    if command -v rustup >/dev/null; then
        say "cargo ${have:-is absent}; installing Rust $wanted with rustup"
        rustup toolchain install --profile minimal -c clippy -c rustfmt "$wanted" >/dev/null 2>&1
        rustup default "$wanted" >/dev/null 2>&1
        return 0
    fi
    say "cargo ${have:-is absent}; installing Rust through rustup (https://rustup.rs)"
    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --profile minimal -c clippy -c rustfmt >/dev/null 2>&1
}

install_python() {
    local requirements=$1 stamp
    stamp=.venv/installed-$(cat tools/python-requirements*.txt | sha256sum | cut -c 1-16)-$(basename "$requirements" .txt)
    [ -e "$stamp" ] && return 0
    if ! .venv/bin/python -c '' 2>/dev/null; then
        say "making a Python environment in .venv"
        rm -rf .venv
        # Debian's own Python where it is there: others may lack venv.
        if [ -x /usr/bin/python3 ] && /usr/bin/python3 -c 'import venv, ensurepip' 2>/dev/null; then
            /usr/bin/python3 -m venv .venv
        else
            python3 -m venv .venv
        fi
    fi
    say "installing Python packages: $(grep -v '^[#-]' "$requirements" | tr '\n' ' ')"
    .venv/bin/pip install --quiet --disable-pip-version-check -r "$requirements"
    touch "$stamp"
}

# PyOpenCL's own tests are in its source package only.
pyopencl_version=2026.1.4
pyopencl_sha256=6cb9544a004609061e86873fe36500da6c2101042e9c7b9c3b804a29a12b98bf
pyopencl_path=0a/a9/b6133777fc20be05faa88c4dbae9cc0d26d6dc1395c45770ec49b56edc4b

install_pyopencl_tests() {
    local folder=.cache/pyopencl-$pyopencl_version archive
    [ -e "$folder/test/test_wrapper.py" ] && return 0
    say "fetching the tests of PyOpenCL $pyopencl_version"
    mkdir -p .cache
    archive=.cache/pyopencl-$pyopencl_version.tar.gz
    curl -sSfL --retry 3 -o "$archive" "https://files.pythonhosted.org/packages/$pyopencl_path/pyopencl-$pyopencl_version.tar.gz"
    echo "$pyopencl_sha256  $archive" | sha256sum --check --quiet
    tar -xzf "$archive" -C .cache "pyopencl-$pyopencl_version/test"
    rm -f "$archive"
}

groups=("$@")
[ ${#groups[@]} -eq 0 ] && groups=(build test)
install_packages "${groups[@]}"
for group in "${groups[@]}"; do
    case $group in
        build) install_rust ;;
        test)
            install_python tools/python-requirements.txt
            install_pyopencl_tests ;;
        programs) install_python tools/python-requirements-programs.txt ;;
    esac
done
