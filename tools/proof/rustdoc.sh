#!/bin/bash
# Stands in for rustdoc while `cargo test --doc` runs (variable RUSTDOC), which calls it once for
# each library, with all libraries already built. Makes the documentation of the library, in which a
# warning is an error, and then runs the examples in it.
#
# Each library has a folder of its own. In one folder for all libraries, rustdoc would read and
# write the index of all of them each time, which takes as long as the rest.
checked=${CARGO_TARGET_DIR:-target}/doc-checked
rest=()
while [ $# -gt 0 ]; do
    case $1 in
        --test-args | --test-run-directory | --test-builder) test+=("$1" "$2"); shift ;;
        --test | --test-args=* | --test-run-directory=*) test+=("$1") ;;
        --crate-name) name=$2 rest+=("$1" "$2"); shift ;;
        *.rs) sources=$(dirname "$1") rest+=("$1") ;;
        *) rest+=("$1") ;;
    esac
    shift
done
rustdoc "${rest[@]}" -D warnings -o "$checked/$name" || exit
# Without a block of code in the documentation there is no example.
words='rust|ignore|no_run|should_panic|compile_fail'
code="//[/!] *(\`\`\`|~~~)(\$|\`|[a-z_,]*($words))|//[/!] {5,}|/\*[*!]"
if ! grep -rqE -e "$code" -e 'doc = include_str' "$sources"; then
    printf 'running 0 tests\ntest result: ok. 0 passed; 0 failed; 0 ignored; 0 measured\n'
    exit
fi
exec rustdoc "${rest[@]}" "${test[@]}"
