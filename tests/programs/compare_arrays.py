"""Compares the arrays in two .npz files: --max-difference X (absolute) or --relative-rms X."""

import sys

import numpy

kind, limit, first, second = (
    sys.argv[1],
    float(sys.argv[2]),
    numpy.load(sys.argv[3]),
    numpy.load(sys.argv[4]),
)
bad = sorted(first.files) != sorted(second.files)
if bad:
    print(f"different arrays: {first.files} and {second.files}")
for name in set(first.files) & set(second.files):
    a, b = first[name].astype(float), second[name].astype(float)
    if a.shape != b.shape:
        print(f"{name}: shapes {a.shape} and {b.shape}")
        bad = True
        continue
    if kind == "--relative-rms":
        value = numpy.sqrt(((a - b) ** 2).mean()) / max(numpy.sqrt((a**2).mean()), 1e-30)
    else:
        value = numpy.abs(a - b).max()
    print(f"{name}: {value:g} (limit {limit:g})")
    bad = bad or not value <= limit
sys.exit(1 if bad else 0)
