#!/bin/bash
# Prints the name of the rustup toolchain to use in place of the one in rust-toolchain.toml, or
# nothing. It is rustup's default toolchain, if that has the same version and the other is not
# installed. rustup would download the same compiler again under its other name.
#
#   RUSTUP_TOOLCHAIN=$(tools/toolchain.sh)
cd "$(dirname "$0")/.." || exit 1
PATH=${CARGO_HOME:-$HOME/.cargo}/bin:$PATH
command -v rustup >/dev/null || exit 0
channel=$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
installed=$(rustup toolchain list 2>/dev/null)
if grep -q "^$channel-" <<<"$installed"; then exit 0; fi
default=$(sed -n 's/ (.*default.*)$//p' <<<"$installed")
[ -n "$default" ] || exit 0
if [ "$(rustc "+$default" --version 2>/dev/null | awk '{print $2}')" = "$channel" ]; then
    echo "$default"
fi
