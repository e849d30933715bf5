"""Operands of cuBLAS, and the comparison of a call with numpy."""

import ctypes
import itertools
import sys

import numpy as np
from libraries import INT, Device, Failures, address, library, random

blas = library("cublas", 13)
rng = np.random.default_rng(7)
failures = Failures()
handle = ctypes.c_void_p()
if blas.cublasCreate_v2(ctypes.byref(handle)) != 0:
    print("cublasCreate fails")
    sys.exit(1)

TYPES = {"S": np.float32, "D": np.float64, "C": np.complex64, "Z": np.complex128}
INVALID, NOT_SUPPORTED, NOT_INITIALIZED = 7, 15, 1


def part(dtype):
    return np.dtype(np.float32 if dtype in (np.float32, np.complex64) else np.float64).type


class Vector:
    """A vector in a buffer with gaps. `view` has its elements in their order."""

    def __init__(self, n, step, dtype):
        self.buffer = random(rng, 1 + max(n - 1, 0) * abs(step), dtype)
        self.n, self.step, self.device = n, step, None
        self.view = self.of(self.buffer)

    def of(self, buffer):
        elements = buffer[:: abs(self.step) or 1][: self.n]
        return elements[::-1] if self.step < 0 else elements

    def args(self):
        self.device = Device(self.buffer)
        return [self.device.pointer, self.step]


class Matrix:
    """A matrix in columns with gaps between them. `view` is its rows and columns."""

    def __init__(self, rows, columns, dtype, gap=2):
        self.ld = max(rows + gap, 1)
        self.buffer = random(rng, self.ld * max(columns, 1), dtype)
        self.rows, self.columns, self.device = rows, columns, None
        self.view = self.of(self.buffer)

    def of(self, buffer):
        return buffer.reshape(-1, self.ld).T[: self.rows, : self.columns]

    def args(self):
        self.device = Device(self.buffer)
        return [self.device.pointer, self.ld]


class Packed:
    """A triangle without gaps."""

    def __init__(self, n, uplo, dtype):
        self.buffer = random(rng, max(n * (n + 1) // 2, 1), dtype)
        self.n, self.uplo, self.device = n, uplo, None

    def whole(self, buffer):
        full = np.zeros((self.n, self.n), buffer.dtype)
        index = 0
        for column in range(self.n):
            rows = range(column, self.n) if self.uplo == 0 else range(column + 1)
            for row in rows:
                full[row, column] = buffer[index]
                index += 1
        return full

    def packed(self, full):
        out = []
        for column in range(self.n):
            out.extend(full[column:, column] if self.uplo == 0 else full[: column + 1, column])
        return np.array(out or [0], full.dtype)

    def args(self):
        self.device = Device(self.buffer)
        return [self.device.pointer]


def op(matrix, trans):
    return matrix if trans == 0 else matrix.T if trans == 1 else matrix.conj().T


def triangle(full, uplo, unit=False):
    """Returns the triangular matrix of which this is one half."""
    half = np.tril(full) if uplo == 0 else np.triu(full)
    if unit:
        half = half - np.diag(np.diag(half)) + np.eye(len(half), dtype=full.dtype)
    return half


def mirrored(full, uplo, hermitian):
    half = triangle(full, uplo)
    other = triangle(full, uplo) - np.diag(np.diag(full))
    whole = half + (other.conj().T if hermitian else other.T)
    if hermitian:
        whole = whole - 1j * np.diag(np.diag(whole).imag) if whole.dtype.kind == "c" else whole
    return whole


class Factor:
    """A scalar where the pointer mode wants it."""

    def __init__(self, value, dtype, on_device):
        self.array = np.array([value], dtype)
        self.device = Device(self.array) if on_device else None

    def args(self):
        return [self.device.pointer if self.device else address(self.array)]


def call(name, args):
    """Calls a routine. Numbers are passed in the size that the name says."""
    number = ctypes.c_int64 if name.endswith("_64") else INT
    # Operations, triangles, sides and diagonals stay small whatever the sizes are.
    flat = []
    for arg in args:
        if isinstance(arg, (Vector, Matrix, Packed, Factor)):
            for value in arg.args():
                flat.append(number(value) if isinstance(value, int) else value)
        elif isinstance(arg, (int, np.integer)):
            flat.append(number(int(arg)))
        else:
            flat.append(arg)
    return getattr(blas, name)(handle, *flat)


def close(found, expected, dtype, scale=1):
    """Compares with a tolerance for `scale` additions."""
    epsilon = np.finfo(part(dtype)).eps
    with np.errstate(all="ignore"):
        return np.allclose(found, expected, rtol=0, atol=40 * epsilon * (scale + 1))


def verify(name, code, operand, model, dtype, scale, what):
    """Compares the whole buffer of an operand, with its gaps, with what `model` makes of it."""
    expected = operand.buffer.copy()
    model(expected)
    found = operand.device.read()
    failures.check(code == 0 and close(found, expected, dtype, scale), f"{name} {what}: {code}")


def names(letter, routine):
    return [f"cublas{letter}{routine}_v2", f"cublas{letter}{routine}_v2_64"]


def combinations(*choices):
    """Returns each combination of a pointer mode, which it sets, and of the choices."""
    for on_device in (False, True):
        blas.cublasSetPointerMode_v2(handle, INT(int(on_device)))
        for chosen in itertools.product(*choices):
            yield (on_device, *chosen)
    blas.cublasSetPointerMode_v2(handle, INT(0))


def updated(name, code, a, storage, whole, uplo, dtype, what, scale=4):
    """Checks that one triangle has new values, and that the other bytes are as before."""
    if storage == "packed":
        verify(
            name,
            code,
            a,
            lambda b: b.__setitem__(slice(None), a.packed(whole) if a.n else b),
            dtype,
            scale,
            what,
        )
        return

    def model(buffer):
        view = a.of(buffer)
        keep = (
            np.tril(np.ones(view.shape, bool)) if uplo == 0 else np.triu(np.ones(view.shape, bool))
        )
        view[keep] = whole[keep]

    verify(name, code, a, model, dtype, scale, what)
