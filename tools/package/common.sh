# What `deb.sh` and `wheel.sh` (bash) share. Sets `here`, `folder` (the results), `version`,
# SOURCE_DATE_EPOCH and `work` (a folder that goes away), and makes PENSTOCK_BIN absolute.
#
#   take_made OLD NEW...   puts the new files into the folder in place of those that match OLD
here=$POOL_ROOT/tools/package
folder=$(realpath -m "${1:-$PENSTOCK_TARGET/package}")
fail() { echo "$1" >&2; exit 1; }
# rustup may have been installed a moment ago.
[ -e "${CARGO_HOME:-$HOME/.cargo}/env" ] && . "${CARGO_HOME:-$HOME/.cargo}/env"
[ -x "$PENSTOCK_BIN/penstock" ] || fail "no penstock in $PENSTOCK_BIN: run \`make build\` first"
PENSTOCK_BIN=$(realpath "$PENSTOCK_BIN")
# What `make` calls the folder with the built programs.
BUILT=("PROFILE=$(basename "$PENSTOCK_BIN")" "CARGO_TARGET_DIR=$(dirname "$PENSTOCK_BIN")")

SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$POOL_ROOT" log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$POOL_ROOT/Cargo.toml" | head -n 1)
work=$(mktemp -d "${TMPDIR:-/tmp}/penstock-package.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$folder"

take_made() {
    local file made
    find "$folder" -maxdepth 1 -name "$1" -delete
    for file in "${@:2}"; do
        mv -f "$file" "$folder"
        made=$folder/$(basename "$file")
        echo "$made: $(($(stat -c %s "$made") / 1024)) KiB"
    done
}
