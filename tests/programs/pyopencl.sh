# PyOpenCL's own tests, from its source package. Its wheel contains its own loader.
tests=$CACHE/pyopencl-2026.1.4/test
needs() { [ -e "$tests/test_wrapper.py" ] || { echo "its tests are not there: tools/setup.sh test"; return 1; }; }
run() {
    local code
    # One line of the tests is wrong (an image has no attribute `image`). On PoCL the tests never
    # reach it.
    sed '/^ *img\.image\.depth/d' "$tests/test_wrapper.py" >test_wrapper.py
    cp "$tests/empty-header.h" . 2>/dev/null
    PYOPENCL_TEST=0:0 PYTHONDONTWRITEBYTECODE=1 "$PYTHON" -m pytest -v -p no:cacheprovider --tb=short test_wrapper.py >out.txt 2>&1
    code=$?
    cat out.txt
    # The names of the tests contain the names of the devices.
    sed -nE 's/^(test_wrapper\.py::[a-z_A-Z0-9]+).* (PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS).*/\1 \2/p' out.txt | sort >result.txt
    tail -n 1 out.txt | sed 's/=//g; s/ in .*//; s/^ *//' >note.txt
    [ "$code" -eq 0 ]
}
# The tests check the vendor's name and expect image tests to fail on PoCL itself. The pool has no
# fine-grained shared memory, so the test for it does not apply.
compare() {
    diff -u <(sed -E 's/(test_image_[23]d) XFAIL/\1 as expected/; s/(test_fine_grain_svm) PASSED/\1 as expected/' "$1/result.txt") \
        <(sed -E 's/(test_image_[23]d) (PASSED|SKIPPED|XFAIL)/\1 as expected/; s/(test_fine_grain_svm) (PASSED|SKIPPED)/\1 as expected/' "$2/result.txt")
}
