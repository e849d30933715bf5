#!/bin/bash
# Installs what is missing to build and test Penstock on Debian 12 (or a relative of it).
#
#   tools/setup.sh [build] [lint] [demo] [test] [cuda] [programs] [openmm] [guest] [lammps] [ucx]
#                  [suites] [package] [slurm]
#
#   build     C compiler, OpenCL headers and loader; the Rust of rust-toolchain.toml through rustup, if
#             cargo is missing or old
#   lint      a Python environment in .venv with what checks and formats sources
#   demo      PoCL, the device of hosts without an accelerator
#   test      PoCL, the small real programs, two MPIs; a Python environment in .venv with PyOpenCL;
#             and everything in cuda
#   cuda      nvcc, Numba and Intel's OpenCL runtime for CPUs from PyPI, in .venv-cuda: for the CUDA
#             programs of the tests
#   programs  the larger programs: clpeak, OpenMM, OpenCV
#   openmm    OpenMM with its CUDA platform, in .venv-openmm
#   guest     QEMU; a kernel for guests and libvirt's schemas in target/guest;
#             vhost-device-vsock in target/tools
#   lammps    what building LAMMPS from Debian's source package needs
#   ucx       UCX, for builds with it: `make test-ucx`
#   suites    tests of numba-cuda and CuPy, and CUB and Thrust: `make test-suites`
#   package   what makes and tests packages: `make deb`, `make wheel`, `make test-packages`
#   slurm     Slurm, munge and what makes network namespaces: `make test-slurm`
#
# Without a group, installs build and test.
#
# Runs as root or with sudo. Reports what it does; prints nothing if everything is installed.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
cargo_home=${CARGO_HOME:-$HOME/.cargo}

say() { echo "setup: $*"; }

packages_of() {
    case $1 in
        build) echo gcc libc6-dev make pkg-config curl ca-certificates ocl-icd-opencl-dev opencl-headers ocl-icd-libopencl1 ;;
        lint) echo python3 python3-venv ;;
        demo) echo pocl-opencl-icd ocl-icd-libopencl1 ;;
        test)
            echo pocl-opencl-icd ocl-icd-libopencl1 clinfo clfft-client hashcat ffmpeg python3 python3-venv curl ca-certificates procps openssl
            # A server of SSH for tests, which starts it itself. No service is needed.
            echo openssh-client openssh-server
            # Containers. runc works where crun refuses the control groups of the host.
            echo bubblewrap podman runc
            # Both MPIs side by side; the network simulator; a C++ compiler, because one header must
            # compile as C++, too.
            echo openmpi-bin libopenmpi-dev mpich libmpich-dev libsimgrid-dev g++
            # What serves the calls of cuBLAS and cuFFT.
            echo libopenblas0-pthread libfftw3-single3 libfftw3-double3 ;;
        cuda)
            echo pocl-opencl-icd ocl-icd-libopencl1 g++ make python3 python3-venv
            echo libopenblas0-pthread libfftw3-single3 libfftw3-double3 ;;
        programs) echo clpeak ;;
        openmm) echo python3 python3-venv ;;
        guest) echo qemu-system-x86 busybox-static libxml2-utils ;;
        lammps) echo cmake g++ libfftw3-dev libjpeg-dev libpng-dev dpkg-dev xz-utils libopenmpi-dev openmpi-bin ;;
        ucx) echo libucx0 libucx-dev ;;
        suites) packages_of cuda ;;
        # The test starts all daemons itself. No service is needed.
        slurm) echo slurmctld slurmd slurm-client munge iproute2 util-linux ;;
        package) echo debhelper lintian mmdebstrap pkg-config python3 python3-venv gcc ;;
        *) echo "setup: no such group: $1 (build, lint, demo, test, cuda, programs, openmm, guest, lammps, ucx, suites, package, slurm)" >&2; exit 2 ;;
    esac
}

# quietly WHAT COMMAND...: runs a command and hides its output. If the command fails, shows its last
# lines and ends the script.
quietly() {
    local what=$1 log
    shift
    log=$(mktemp)
    if "$@" >"$log" 2>&1; then
        rm -f "$log"
        return 0
    fi
    tail -n 30 "$log" >&2
    rm -f "$log"
    say "failed: $what" >&2
    exit 1
}

install_packages() {
    local missing=() name
    for name in $(for group in "$@"; do packages_of "$group"; done | tr ' ' '\n' | sort -u); do
        # Some packages are provided by others (as virtual ones), so this asks for the state of the
        # name itself.
        dpkg-query -W -f '${Status}' "$name" 2>/dev/null | grep -q 'ok installed' || missing+=("$name")
    done
    [ ${#missing[@]} -eq 0 ] && return 0
    if ! command -v apt-get >/dev/null; then
        say "this is no Debian: going on as if what Debian has in these packages were here: ${missing[*]}" >&2
        return 0
    fi
    local as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null; then
            say "Debian packages are missing, and installing them needs root or sudo. Have root do this, then try again:" >&2
            say "  apt-get install --no-install-recommends ${missing[*]}" >&2
            exit 1
        fi
        as_root=(sudo)
    fi
    say "installing Debian packages: ${missing[*]}"
    quietly "apt-get update" "${as_root[@]}" apt-get update -q
    quietly "apt-get install" "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"
}

# Prints the oldest Rust version that the workspace accepts.
rust_wanted() { sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml | head -n 1; }

# Prints the version of cargo, or nothing if none works.
rust_here() {
    # shellcheck disable=SC1091
    [ -e "$cargo_home/env" ] && . "$cargo_home/env"
    cargo --version 2>/dev/null | awk '{print $2}'
}

rust_is_new_enough() { [ -n "$1" ] && [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

# Whether rustup has the toolchain that cargo uses in this folder.
rustup_has() { rustup toolchain list | grep -q "^$1-"; }

install_rust() {
    local wanted have pinned
    wanted=$(rust_wanted)
    pinned=$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
    RUSTUP_TOOLCHAIN=${RUSTUP_TOOLCHAIN:-$(tools/toolchain.sh)}
    if [ -n "$RUSTUP_TOOLCHAIN" ]; then export RUSTUP_TOOLCHAIN; else unset RUSTUP_TOOLCHAIN; fi
    if PATH=$cargo_home/bin:$PATH command -v rustup >/dev/null; then
        PATH=$cargo_home/bin:$PATH
        if [ -z "${RUSTUP_TOOLCHAIN:-}" ] && ! rustup_has "$pinned"; then
            # Only this folder uses it: other projects of this user keep their version.
            say "installing Rust $pinned with rustup, for this folder"
            quietly "rustup toolchain install $pinned" \
                rustup toolchain install --profile minimal -c clippy -c rustfmt "$pinned"
        fi
        have=$(rust_here)
        rust_is_new_enough "$have" "$wanted" && return 0
    else
        # Without rustup, nothing reads rust-toolchain.toml.
        have=$(rust_here)
        rust_is_new_enough "$have" "$wanted" && return 0
        say "cargo ${have:-is absent}${have:+ is too old}; installing Rust through rustup (https://rustup.rs) into $cargo_home"
        installer=$(mktemp)
        trap 'rm -f "$installer"' EXIT
        if ! curl --proto '=https' --tlsv1.2 -sSf --retry 3 -o "$installer" https://sh.rustup.rs; then
            say "Rust $wanted or newer is needed, and could not be fetched: install it by hand (https://rustup.rs), then try again" >&2
            exit 1
        fi
        quietly "the installer of rustup" sh "$installer" -y --profile minimal -c clippy -c rustfmt \
            --default-toolchain "$pinned"
    fi
    have=$(rust_here)
    rust_is_new_enough "$have" "$wanted" && return 0
    say "Rust $wanted or newer is needed; what \`cargo --version\` says is still: ${have:-nothing}" >&2
    exit 1
}

# make_environment FOLDER: creates a Python environment there, unless one works.
make_environment() {
    "$1/bin/python" -c '' 2>/dev/null && return 0
    say "making a Python environment in $1"
    rm -rf "$1"
    # Debian's own Python if it is installed: others may lack venv.
    if [ -x /usr/bin/python3 ] && /usr/bin/python3 -c 'import venv, ensurepip' 2>/dev/null; then
        /usr/bin/python3 -m venv "$1"
    else
        python3 -m venv "$1"
    fi
}

# install_python FILE [CONTAINED...]: installs the packages of a file of requirements, which contains
# those of the other files.
install_python() {
    local requirements=$1 stamp name
    stamp=.venv/installed-$(cat tools/python-requirements*.txt | sha256sum | cut -c 1-16)
    [ -e "$stamp-$(basename "$requirements" .txt)" ] && return 0
    make_environment .venv
    say "installing Python packages: $(grep -v '^[#-]' "$requirements" | tr '\n' ' ')"
    .venv/bin/pip install --quiet --disable-pip-version-check -r "$requirements"
    for name in "$@"; do touch "$stamp-$(basename "$name" .txt)"; done
}

# Parts of the wheels that nothing here uses: an LLVM plugin, a second form of NVRTC, static
# libraries of NVRTC.
cuda_unused=(icx-lto.so 'libnvrtc*.alt.so*' 'libnvrtc*_static.a' libintelocl_emu.so\*)

install_cuda() {
    local requirements=tools/cuda-requirements.txt env=.venv-cuda stamp toolkit name file twin
    stamp=$env/installed-$(sha256sum $requirements | cut -c 1-16)
    [ -e "$stamp" ] && return 0
    make_environment $env
    say "installing nvcc, Numba, CuPy and Intel's OpenCL runtime in $env: about 670 MB to fetch, 1.5 GB on the disk, some minutes the first time"
    # Of pip's output, only the lines with the names and sizes of downloads are shown.
    $env/bin/pip install --disable-pip-version-check --progress-bar off --no-compile -r $requirements |
        sed -un 's/^ *Downloading \(.* MB)\)$/setup:   \1/p; s/^\(Successfully\) .*/setup:   installed/p'
    [ "${PIPESTATUS[0]}" -eq 0 ] || { say "pip could not install what is in $requirements" >&2; exit 1; }

    for name in "${cuda_unused[@]}"; do find $env -name "$name" -delete; done
    # Wheels cannot contain links, so each library is there once per name.
    for file in $env/lib/*.so.*; do
        twin=${file%%.so.*}.so
        [ -e "$twin" ] && ! [ "$file" -ef "$twin" ] && cmp -s "$file" "$twin" && ln -f "$file" "$twin"
    done
    # The linker asks for the name without a version, which the wheel lacks.
    toolkit=$(echo $env/lib/python3*/site-packages/nvidia/cu13)
    ln -sfn libcudart.so.13 "$toolkit/lib/libcudart.so"
    # The wheel's entry for the ICD loader names another folder.
    mkdir -p $env/vendors
    echo "$root/$env/lib/libintelocl.so" >$env/vendors/intel.icd
    touch "$stamp"
}

install_openmm() {
    local requirements=tools/openmm-requirements.txt env=.venv-openmm stamp
    stamp=$env/installed-$(sha256sum $requirements | cut -c 1-16)
    [ -e "$stamp" ] && return 0
    make_environment $env
    say "installing OpenMM, NVRTC and cuFFT in $env: about 260 MB to fetch"
    quietly "pip install -r $requirements" \
        $env/bin/pip install --disable-pip-version-check --no-compile --no-deps -r $requirements
    find $env -name 'libnvrtc*_static.a' -delete
    touch "$stamp"
}

# Only PyOpenCL's source package contains its tests.
pyopencl_version=2026.1.4
pyopencl_sha256=6cb9544a004609061e86873fe36500da6c2101042e9c7b9c3b804a29a12b98bf

install_pyopencl_tests() {
    local folder=.cache/pyopencl-$pyopencl_version archive
    [ -e "$folder/test/test_wrapper.py" ] && return 0
    say "fetching the tests of PyOpenCL $pyopencl_version"
    mkdir -p .cache
    archive=.cache/pyopencl-$pyopencl_version.tar.gz
    .venv/bin/python tools/fetch-source.py pyopencl "$pyopencl_version" "$archive"
    echo "$pyopencl_sha256  $archive" | sha256sum --check --quiet
    tar -xzf "$archive" -C .cache "pyopencl-$pyopencl_version/test"
    rm -f "$archive"
}

target=${CARGO_TARGET_DIR:-$root/target}

# Only CuPy's source package contains its tests. The packages that the suites use beside those of
# .venv-cuda are in a folder of their own, because the tests of the lanes do without them.
cupy_version=14.2.0
cupy_sha256=cfed725e612178cfbdbf62f4a3a598b60edecbbca718c0d4580c21a16ae4a62c

install_suites() {
    local requirements=tools/suites-requirements.txt folder=$target/suites stamp archive new
    stamp=$folder/installed-$(sha256sum $requirements | cut -c 1-16)
    if [ ! -e "$stamp" ]; then
        say "installing pytest and what numba-cuda's and CuPy's tests use in $folder"
        quietly "pip install -r $requirements" .venv-cuda/bin/pip install \
            --disable-pip-version-check --upgrade --target "$folder/python" -r $requirements
        touch "$stamp"
    fi
    [ -e "$folder/cupy-$cupy_version/tests" ] && return 0
    say "fetching the tests of CuPy $cupy_version"
    archive=$folder/cupy-$cupy_version.tar.gz
    python3 tools/fetch-source.py cupy "$cupy_version" "$archive"
    echo "$cupy_sha256  $archive" | sha256sum --check --quiet
    # The folder gets its name when it is complete.
    new=$folder/new
    rm -rf "$new" "$folder/cupy-$cupy_version"
    mkdir "$new"
    tar -xzf "$archive" -C "$new" "cupy-$cupy_version/tests" "cupy-$cupy_version/pyproject.toml"
    mv "$new/cupy-$cupy_version" "$folder/"
    rm -rf "$new" "$archive"
}

# fetch_package NAME FOLDER: fetches a Debian package into FOLDER without installing it.
fetch_package() {
    mkdir -p "$2"
    if [ -z "$1" ] || ! (cd "$2" && apt-get download -q "$1" >log 2>&1); then
        cat "$2/log" >&2 2>/dev/null
        say "cannot fetch $1: run apt-get update as root, then try again" >&2
        exit 1
    fi
}

# Debian's kernel for machines in clouds, and libvirt's schemas: unpacked, and not installed.
install_guest_files() {
    local folder=$target/guest kernel
    [ -e "$folder/complete" ] && return 0
    say "fetching Debian's kernel for guests into $folder (27 MB)"
    rm -rf "$folder"
    # The package of the first name only depends on the one with the kernel.
    kernel=$(apt-cache depends linux-image-cloud-amd64 | awk '$1 == "Depends:" {print $2; exit}')
    fetch_package "$kernel" "$folder/kernel"
    dpkg-deb -x "$folder"/kernel/*.deb "$folder"
    fetch_package libvirt0 "$folder/libvirt"
    dpkg-deb -x "$folder"/libvirt/*.deb "$folder/libvirt"
    mv "$folder/libvirt/usr/share/libvirt/schemas" "$folder/schemas"
    rm -rf "$folder/kernel" "$folder/libvirt" "$folder/usr" "$folder"/boot/System.map-*
    touch "$folder/complete"
}

# The host's end of vsock where the kernel has none. It is built once for all clones of this user.
install_vsock_device() {
    local version=0.3.0 folder=$target/tools kept
    kept=${XDG_CACHE_HOME:-$HOME/.cache}/penstock/vhost-device-vsock-$version
    [ -x "$folder/bin/vhost-device-vsock" ] && return 0
    if [ ! -x "$kept/bin/vhost-device-vsock" ]; then
        say "building vhost-device-vsock $version in $kept (a minute or two)"
        # A folder of its own: its crates are none of this workspace.
        quietly "cargo install vhost-device-vsock" env CARGO_TARGET_DIR="$kept/build" \
            cargo install --locked --quiet --root "$kept" --version "$version" vhost-device-vsock
        rm -rf "$kept/build"
    fi
    mkdir -p "$folder/bin"
    cp "$kept/bin/vhost-device-vsock" "$folder/bin"
}

install_guest() {
    if ! command -v apt-get >/dev/null || [ "$(uname -m)" != x86_64 ]; then
        say "guests need Debian on x86-64: their tests are skipped here" >&2
        return 0
    fi
    install_guest_files
    install_rust
    install_vsock_device
}

groups=("$@")
[ ${#groups[@]} -eq 0 ] && groups=(build test)
for group in "${groups[@]}"; do packages_of "$group" >/dev/null; done
install_packages "${groups[@]}"
for group in "${groups[@]}"; do
    case $group in
        build) install_rust ;;
        lint) install_python tools/python-requirements-lint.txt ;;
        test)
            install_python tools/python-requirements.txt tools/python-requirements-lint.txt
            install_pyopencl_tests
            install_cuda ;;
        cuda) install_cuda ;;
        programs) install_python tools/python-requirements-programs.txt ;;
        openmm) install_openmm ;;
        guest) install_guest ;;
        suites)
            install_cuda
            install_suites ;;
        package) install_python tools/python-requirements-package.txt ;;
    esac
done
