#!/bin/bash
# Plants one violation of each rule in a copy of the sources, and demands that the stage of
# tools/test.sh that checks the rule fails and names it.
#
#   tools/policy/planted.sh [NAME...]
#
# Prints one line per violation; the last line counts them. The copy is in target/planted. This
# takes some minutes, because several rules are those of the compiler. `make planted` runs it.
set -u
cd "$(dirname "$0")/../.." || exit 1
root=$PWD
CARGO_TARGET_DIR=$(realpath -m "${CARGO_TARGET_DIR:-target}")
export CARGO_TARGET_DIR
copy=$CARGO_TARGET_DIR/planted
log=$CARGO_TARGET_DIR/planted.log
python=$root/.venv/bin/python
chosen=("$@")
passed=0 failed=0

renew() {
    rm -rf "$copy"
    mkdir -p "$copy"
    git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
        if [ -e "$file" ]; then printf '%s\0' "$file"; fi
    done | xargs -0 cp --parents -t "$copy"
    ln -s "$root/.venv" "$copy/.venv"
    git -C "$copy" init -q
    git -C "$copy" add -A
}

# fails NAME PATTERN FILE TEXT COMMAND...: appends TEXT to FILE in the copy, runs COMMAND there,
# which must fail and print PATTERN, and restores FILE. With the option `-e` before NAME, TEXT is a
# script for sed that changes FILE.
fails() {
    local how=append name pattern file text was
    if [ "$1" = -e ]; then how=edit; shift; fi
    name=$1 pattern=$2 file=$copy/$3 text=$4
    shift 4
    case " ${chosen[*]:-$name} " in *" $name "*) ;; *) return ;; esac
    was=$(mktemp)
    if [ -e "$file" ]; then cp "$file" "$was"; else rm "$was"; fi
    if [ $how = edit ]; then sed -i -e "$text" "$file"; else printf '%s\n' "$text" >>"$file"; fi
    if [ -e "$was" ] && cmp -s "$file" "$was"; then
        report FAIL "$name" "nothing was planted in $file"
    elif (cd "$copy" && "$@") >"$log" 2>&1; then
        report FAIL "$name" "the violation was not found"
    elif ! grep -qE -- "$pattern" "$log"; then
        report FAIL "$name" "the output does not say: $pattern"
    else
        report ok "$name" "$(grep -m 1 -E -- "$pattern" "$log" | cut -c 1-90)"
    fi
    if [ -e "$was" ]; then mv "$was" "$file"; else rm -f "$file"; fi
}
report() {
    printf '%-4s planted/%-24s %s\n' "$@"
    if [ "$1" = ok ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        tail -n 30 "$log" 2>/dev/null | sed 's/^/        | /'
    fi
}

policy() { "$python" tools/policy/check.py --rule "$1"; }
# Does not look at allowed.toml.
without_list() {
    ! "$python" tools/policy/check.py --rule "$1" --json | tee /dev/stderr | grep -q '"rule"'
}
clippy() { cargo clippy --quiet -p "$1" --all-targets -- -D warnings; }
doc() { RUSTDOCFLAGS="-D warnings" cargo doc --quiet -p "$1" --no-deps; }
# Runs the tests of a crate as `make test` does, and fails if one failed or, with the word `skips`,
# if one was skipped.
tests() {
    local tally
    tally=$(mktemp)
    TEST_TALLY=$tally TEST_LOGS=$CARGO_TARGET_DIR/planted-logs \
        tools/cargo-tests.py all -p "$1" --lib
    awk -v skips="${2:-}" '
        $1 != "plan" {f += $2; s += $3} END {exit f > 0 || (skips && s > 0)}
    ' "$tally"
}

# Prints a script for sed that adds a test `planted` with this body to a file with tests.
test_with() {
    printf '0,/^    #\\[test\\]/s//    #[test]\\n    fn planted() { %s }\\n\\n&/' "$1"
}

# Makes five files that import each other in a circle.
circle() {
    local files=(a b c d e a) at
    mkdir -p crates/pool/dql/src/planted
    for at in 0 1 2 3 4; do
        echo "use super::${files[at + 1]}::X;" >"crates/pool/dql/src/planted/${files[at]}.rs"
    done
    policy circles
}

# Raises a budget in a commit that also has other files.
raise() {
    local who=(-c user.name=planted -c user.email=planted)
    local commit=(git "${who[@]}" -c commit.gpgsign=false commit -qam)
    git add -A
    "${commit[@]}" 'all'
    sed -i 's/^wire = .*/wire = 99999/' tools/policy/budget.toml
    echo '# planted' >>tools/setup.sh
    "${commit[@]}" 'more'
    policy budgets
}

renew
dql=crates/pool/dql/src
unsafe='pub fn planted() { unsafe { std::hint::unreachable_unchecked() } }'
format=(tools/format.sh --check)
fails format-rust 'planted' $dql/lib.rs 'pub  fn planted( ) { }' "${format[@]}"
fails format-c 'clang-format-violations' tests/c/harness.c 'int  a( void ){return 1;}' \
    "${format[@]}"
fails format-python 'would be reformatted' tools/planted.py 'x=[1,2 ,3]' "${format[@]}"
fails clippy 'casting `usize` to `u8`' \
    $dql/lib.rs 'pub fn planted(bytes: &[u8]) -> u8 { bytes.len() as u8 }' clippy penstock-dql
fails unsafe-forbidden 'usage of an `unsafe` block' $dql/lib.rs "$unsafe" clippy penstock-dql
fails unsafe-undocumented 'missing a safety comment' \
    crates/base/process/src/lib.rs "$unsafe" clippy penstock-process
fails indexing-clippy 'indexing may panic' \
    crates/pool/wire/src/args.rs 'pub fn planted(bytes: &[u8]) -> u8 { bytes[0] }' \
    clippy penstock-wire
fails -e oldest-rust-clippy 'current MSRV .* is `1.85' \
    Cargo.toml 's/^rust-version = .*/rust-version = "1.85"/' clippy penstock-wire
fails -e oldest-rust 'wants Rust 1.999 at least' \
    Cargo.toml 's/^rust-version = .*/rust-version = "1.999"/' tools/oldest-rust.sh
fails doc 'unresolved link to `Nothing`' $dql/lib.rs '/// See [`Nothing`].
pub fn planted() {}' doc penstock-dql
# The word is put together here, because this file is checked, too.
fails spelling 'should be `receive' README.md "The worker $(printf 'rec%sves' ie) it." \
    .venv/bin/typos --config typos.toml --format brief
fails -e arrows 'arrows: dql depends on client' crates/pool/dql/Cargo.toml \
    's/^\[lints\]/[dependencies.penstock-client]\nworkspace = true\n\n[lints]/' policy arrows
fails -e map 'the map is not that of' \
    crates/pool/dql/Cargo.toml 's/^description = .*/description = "planted"/' policy map
fails document-bytes 'document-bytes: SECURITY.md' \
    SECURITY.md "$(printf 'word\n%.0s' {1..2000})" policy document-bytes
fails unsafe-place 'unsafe: crates/pool/dql' $dql/planted.rs "$unsafe" policy unsafe
fails -e indexing 'crates/pool/wire/src/lib.rs does not deny' \
    crates/pool/wire/src/lib.rs 's/clippy::indexing_slicing/clippy::todo/' without_list indexing
fails times 'times: crates/pool/dql/tests/planted.rs' crates/pool/dql/tests/planted.rs \
    'fn f() { assert!(began.elapsed() < LIMIT); }' policy times
fails file-lines 'file-lines: tools/planted.py' \
    tools/planted.py "$(printf 'x = 1\n%.0s' {1..601})" policy file-lines
fails function-lines 'function-lines: .*planted' $dql/planted.rs \
    "$(echo 'fn planted() {'; printf '    f();\n%.0s' {1..70}; echo '}')" policy function-lines
fails width 'width: tools/planted.py' \
    tools/planted.py "# $(printf 'x%.0s' {1..100})" policy width
fails -e dependencies-banned 'is banned' \
    tools/policy/policy.toml 's/^banned = \[/&"serde", /' policy dependencies
fails -e dependencies-licence 'licence' tools/policy/policy.toml 's/"ISC", //' policy dependencies
fails circles 'circles: 5 files of crates/pool/dql' \
    $dql/planted.rs 'mod a; mod b; mod c; mod d; mod e;' circle
fails repetition 'stand again in crates/pool/dql/src/planted.rs' $dql/planted.rs \
    "$(for name in a b; do echo "fn $name() {"; printf 'f%s();\n' {1..6}; echo '}'; done)" \
    policy repetition
fails repetition-explained 'these files do not repeat lines' tools/policy/policy.toml \
    '[repetition-explained."crates/pool/dql/src/lib.rs = crates/pool/dql/src/planted.rs"]
lines = 6' policy repetition
long='void planted(void) {'
for line in {1..70}; do long+=$'\n'"    f($line);"; done
fails function-lines-c 'function-lines: tests/c/planted.c:1: planted has 72 lines' \
    tests/c/planted.c "$long"$'\n}' policy function-lines
fails function-lines-python 'function-lines: tools/planted.py:1: planted has 71 lines' \
    tools/planted.py "$(echo 'def planted():'; printf '    f()\n%.0s' {1..70})" \
    policy function-lines
fails threads 'starts the thread `planted`' $dql/planted.rs \
    'fn planted() { spawn_quiet("planted", 8, work); }' policy threads
fails threads-otherwise 'planted.rs:1 starts a thread' $dql/planted.rs \
    'fn planted() { std::thread::spawn(work); }' policy threads
fails -e budgets 'budgets: dql has .* its budget is 1:' tools/policy/budget.toml \
    's/^dql = .*/dql = 1/' policy budgets
fails tuples 'tuples: crates/pool/dql/src/planted.rs:1: planted' $dql/planted.rs \
    'fn planted(it: (u8, u8, u8)) {}' policy tuples
fails -e fuzz 'panicked at .*dql/src/query.rs' $dql/query.rs \
    '0,/pub fn parse.*/s//&\n        assert!(!text.starts_with("PLAN"), "planted");/' \
    tools/fuzz.sh --short 10 queries
skip='skip(Need::Graphviz, "it is planted");'
fails -e skip-counted 'skipped: skip::tests::planted: it is planted' \
    crates/base/trial/src/skip.rs "$(test_with "$skip")" tests penstock-trial skips
fails -e skip-required 'names graphviz, and it is missing' \
    crates/base/trial/src/skip.rs "$(test_with "$skip")" \
    env PENSTOCK_TEST_REQUIRE=graphviz bash -c "$(declare -f tests); tests penstock-trial"
fails -e skip-in-no-test 'not in the thread of a test' \
    crates/base/trial/src/skip.rs "$(test_with "thread::spawn(|| { $skip }).join().unwrap();")" \
    tests penstock-trial
fails -e test-that-fails 'planted.*FAILED' \
    crates/base/trial/src/skip.rs "$(test_with 'panic!();')" tests penstock-trial
# The last one, because it commits.
fails -e budget-raised 'raises the budget of wire and changes tools/setup.sh' \
    tools/policy/budget.toml 's/^wire = .*/wire = 99998/' raise
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
