#!/bin/bash
# Runs the tests, with one line and the time of each; the last line counts the cases.
#
#   tools/test.sh                      what `make test` does: installs, builds, runs
#   tools/test.sh --only STAGE,...     runs stages on what is built
#   tools/test.sh --help               all options
#
# The stages and their lanes are in tools/proof/stages.py.
set -u
cd "$(dirname "$0")/.." || exit 1
RUSTUP_TOOLCHAIN=${RUSTUP_TOOLCHAIN:-$(tools/toolchain.sh)}
if [ -n "$RUSTUP_TOOLCHAIN" ]; then export RUSTUP_TOOLCHAIN; else unset RUSTUP_TOOLCHAIN; fi
export CARGO_TARGET_DIR=$(realpath -m "${CARGO_TARGET_DIR:-target}")
# One profile and one compiler for programs and tests, so that each crate is compiled once. Clippy's
# driver is the compiler with Clippy's lints; what it warns of is an error.
export PROFILE=proof RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-Dwarnings
# PENSTOCK_BIN names another build.
export PENSTOCK_BIN=${PENSTOCK_BIN:-$CARGO_TARGET_DIR/$PROFILE}
case " $* " in
    *" --list "* | *" --help "* | *" -h "*) ;;
    *" --only"* | *" --repeat"*)
        # A build by hand leaves the libraries of CUDA programs as they were.
        [ ! -e "$PENSTOCK_BIN/libpenstock_cuda.so" ] || tools/cuda/link.sh "$PENSTOCK_BIN" || exit 1
        ;;
    *)
        # A build of a fresh clone never reads what incremental compilation saves: 6 GB beside 3 GB
        # of results. Cargo keeps the incremental build of the inner loop beside this one.
        export CARGO_INCREMENTAL=${CARGO_INCREMENTAL-0}
        tools/setup.sh build test guest || exit 1
        # A test that lacks what the setup installs fails, and is not skipped.
        there=compiler,opencl,intel,cuda-toolkit,mpi,programs,bubblewrap,guest,openssl
        export PENSTOCK_TEST_REQUIRE=${PENSTOCK_TEST_REQUIRE-$there}
        ;;
esac
[ -e "${CARGO_HOME:-$HOME/.cargo}/env" ] && . "${CARGO_HOME:-$HOME/.cargo}/env"
if ! command -v clippy-driver >/dev/null; then
    echo "the tests are built by Clippy, which is missing: rustup component add clippy" >&2
    exit 1
fi
python=.venv/bin/python
[ -x $python ] || python=python3
exec $python tools/proof "$@"
