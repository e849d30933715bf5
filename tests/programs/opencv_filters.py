"""A chain of filters with OpenCV's UMat, which runs them on OpenCL."""

import sys
import time

import cv2
import numpy

assert cv2.ocl.haveOpenCL(), "OpenCV sees no OpenCL"
cv2.ocl.setUseOpenCL(True)
assert cv2.ocl.useOpenCL(), "OpenCV does not use OpenCL"
device = cv2.ocl.Device_getDefault()
random = numpy.random.default_rng(1)
picture = random.integers(0, 256, (480, 640, 3), dtype=numpy.uint8)
results = {}
start = time.perf_counter()
for turn in range(3):
    image = cv2.UMat(picture)
    gray = cv2.cvtColor(image, cv2.COLOR_BGR2GRAY)
    blurred = cv2.GaussianBlur(gray, (7, 7), 1.5)
    small = cv2.resize(blurred, (320, 240), interpolation=cv2.INTER_LINEAR)
    edges = cv2.Canny(small, 30, 90)
    grown = cv2.dilate(edges, None)
    _, black = cv2.threshold(small, 128, 255, cv2.THRESH_BINARY)
    mixed = cv2.addWeighted(grown, 0.5, black, 0.5, 0)
    lines = cv2.Sobel(small, cv2.CV_32F, 1, 0)
    # Read back in the middle, then processed further.
    half = small.get()
    for name, value in (("blurred", blurred), ("edges", edges), ("mixed", mixed), ("lines", lines)):
        results[f"{name}{turn}"] = value.get()
    results[f"half{turn}"] = half
    picture = cv2.flip(picture, turn - 1)
numpy.savez(sys.argv[1], **results)
print(f"{device.name()}: {len(results)} pictures in {time.perf_counter() - start:.2f} s")
