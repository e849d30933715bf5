# OpenCV's transparent API: a chain of filters on UMat. The result must equal the local one, bit for
# bit.
LANE=slow
needs() { "$PYTHON" -c 'import cv2' 2>/dev/null || { echo "OpenCV is not installed: tools/setup.sh programs"; return 1; }; }
run() {
    OPENCV_OPENCL_DEVICE=:CPU: OPENCV_OPENCL_CACHE_ENABLE=0 "$PYTHON" "$PROGRAM_TESTS/opencv_filters.py" images.npz | tee note.txt
    echo done >result.txt
    [ -e images.npz ]
}
compare() { "$PYTHON" "$PROGRAM_TESTS/compare_arrays.py" --max-difference 0 "$1/images.npz" "$2/images.npz"; }
