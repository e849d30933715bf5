"""cuBLASLt: products described by attributes, against numpy; in batches, in several types, in the
order of a stream; and what is not served. Needs no kernel, so it also runs on a stand-in."""

import ctypes
import itertools

import numpy as np
from libraries import INT, Device, Failures, address, cuda, good, library, random

blas = library("cublasLt", 13)
rng = np.random.default_rng(11)
failures = Failures()
handle = ctypes.c_void_p()
failures.check(blas.cublasLtCreate(ctypes.byref(handle)) == 0, "cublasLtCreate")
INVALID, NOT_SUPPORTED = 7, 15
# The number of a type in cudaDataType, and of the type in which its products are computed.
TYPES = {
    np.float32: (0, 68, 0),
    np.float64: (1, 70, 1),
    np.complex64: (4, 68, 4),
    np.complex128: (5, 70, 5),
    np.float16: (2, 68, 0),
}
TRANSPOSE_A, TRANSPOSE_B, EPILOGUE, BIAS, BIAS_TYPE = 3, 4, 7, 8, 26
ORDER, COUNT, DISTANCE = 1, 5, 6


class Described:
    """A description that the library has allocated, and its attributes."""

    def __init__(self, kind, *args):
        self.kind, self.at = kind, ctypes.c_void_p()
        code = getattr(blas, f"cublasLt{kind}Create")(ctypes.byref(self.at), *args)
        failures.check(code == 0, f"cublasLt{kind}Create gives {code}")

    def set(self, attribute, value):
        function = getattr(blas, f"cublasLt{self.kind}SetAttribute")
        code = function(
            self.at, INT(attribute), ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value))
        )
        failures.check(code == 0, f"attribute {attribute} of {self.kind} gives {code}")
        return self

    def get(self, attribute, value):
        written = ctypes.c_size_t()
        function = getattr(blas, f"cublasLt{self.kind}GetAttribute")
        code = function(
            self.at,
            INT(attribute),
            ctypes.byref(value),
            ctypes.c_size_t(ctypes.sizeof(value)),
            ctypes.byref(written),
        )
        return value.value if code == 0 and written.value == ctypes.sizeof(value) else None

    def __del__(self):
        getattr(blas, f"cublasLt{self.kind}Destroy")(self.at)


def layout(kind, rows, columns, ld, count=1, distance=0):
    made = Described(
        "MatrixLayout",
        INT(kind),
        ctypes.c_uint64(rows),
        ctypes.c_uint64(columns),
        ctypes.c_int64(ld),
    )
    if count != 1:
        made.set(COUNT, INT(count)).set(DISTANCE, ctypes.c_int64(distance))
    return made


def found(product, a, b, c, d):
    """Returns the code and the number of algorithms."""
    preference, results = Described("MatmulPreference"), (ctypes.c_uint64 * 12)()
    count = INT(-1)
    code = blas.cublasLtMatmulAlgoGetHeuristic(
        handle,
        product.at,
        a.at,
        b.at,
        c.at,
        d.at,
        preference.at,
        INT(1),
        results,
        ctypes.byref(count),
    )
    return code, count.value


def multiply(product, factors, matrices, layouts, stream=None):
    """`matrices` and `layouts` are those of A, B, C and D."""
    (alpha, beta), (a, b, c, d), (of_a, of_b, of_c, of_d) = factors, matrices, layouts
    return blas.cublasLtMatmul(
        handle,
        product.at,
        alpha,
        a,
        of_a.at,
        b,
        of_b.at,
        beta,
        c,
        of_c.at,
        d,
        of_d.at,
        None,
        None,
        ctypes.c_size_t(0),
        stream,
    )


def products(dtype, ta, tb, count, has_bias=False):
    kind, compute, scale = TYPES[dtype]
    m, n, k, gap = 5, 4, 3, 2
    wide = np.float32 if dtype == np.float16 else dtype
    product = Described("MatmulDesc", INT(compute), INT(scale))
    product.set(TRANSPOSE_A, INT(ta)).set(TRANSPOSE_B, INT(tb))
    shapes = [(m, k) if ta == 0 else (k, m), (k, n) if tb == 0 else (n, k), (m, n)]
    buffers = [random(rng, count * (rows + gap) * columns, dtype) for rows, columns in shapes]
    layouts = [
        layout(kind, rows, columns, rows + gap, count, (rows + gap) * columns)
        for rows, columns in shapes
    ]
    a, b, c = (Device(buffer) for buffer in buffers)
    bias = random(rng, m, dtype) if has_bias else np.zeros(m, dtype)
    on_device = Device(bias)
    if has_bias:
        product.set(EPILOGUE, INT(4)).set(BIAS, ctypes.c_uint64(on_device.pointer.value))
    alpha, beta = np.array([0.5], wide), np.array([2], wide)
    what = f"{dtype.__name__} {ta} {tb} {count} {has_bias}"
    failures.check(found(product, *layouts, layouts[2]) == (0, 1), f"an algorithm for {what}")
    code = multiply(
        product,
        (address(alpha), address(beta)),
        (a.pointer, b.pointer, c.pointer, c.pointer),
        (*layouts, layouts[2]),
    )
    expected = buffers[2].copy()

    def views(flat, rows, columns):
        return flat.reshape(count, columns, rows + gap).transpose(0, 2, 1)[:, :rows]

    def op(matrix, trans):
        turned = matrix if trans == 0 else matrix.transpose(0, 2, 1)
        return turned.conj() if trans == 2 else turned

    left, right, target = (
        views(flat, *shape) for flat, shape in zip((buffers[0], buffers[1], expected), shapes)
    )
    value = 0.5 * op(left.astype(wide), ta) @ op(right.astype(wide), tb) + 2 * target.astype(wide)
    value = value + bias.astype(wide)[None, :, None]
    target[:] = value.astype(dtype)
    atol = 4e-3 if dtype == np.float16 else 100 * np.finfo(dtype).eps
    failures.check(
        code == 0 and np.allclose(c.read(), expected, atol=atol, rtol=0), f"{what}: {code}"
    )


def order():
    """A product has its turn in the stream that its call names."""
    stream, n = ctypes.c_void_p(), 32
    good(cuda.cudaStreamCreateWithFlags(ctypes.byref(stream), INT(1)))
    product, square = Described("MatmulDesc", INT(70), INT(1)), layout(1, n, n, n)
    x, y, eye = Device(np.zeros(n * n)), Device(np.zeros(n * n)), Device(2 * np.eye(n).ravel())
    one, zero = np.ones(1), np.zeros(1)
    good(cuda.cudaMemsetAsync(x.pointer, INT(0x3F), ctypes.c_size_t(8 * n * n), stream))
    code = multiply(
        product,
        (address(one), address(zero)),
        (x.pointer, eye.pointer, y.pointer, y.pointer),
        [square] * 4,
        stream,
    )
    good(cuda.cudaMemsetAsync(x.pointer, INT(0), ctypes.c_size_t(8 * n * n), stream))
    good(cuda.cudaStreamSynchronize(stream))
    expected = 2 * np.frombuffer(b"\x3f" * 8, np.float64)[0]
    failures.check(code == 0 and np.all(y.read() == expected), f"the order of a stream: {code}")
    good(cuda.cudaStreamDestroy(stream))


def what_is_not_served():
    square, one = layout(0, 4, 4, 4), np.ones(1, np.float32)
    x = Device(np.ones(16, np.float32))
    plain = Described("MatmulDesc", INT(68), INT(0))
    failures.check(plain.get(0, INT()) == 68 and plain.get(EPILOGUE, INT()) == 1, "attributes")
    failures.check(square.get(4, ctypes.c_int64()) == 4, "the distance of a layout")
    failures.check(square.get(4, INT()) is None, "an attribute in too few bytes")
    rectified = Described("MatmulDesc", INT(68), INT(0)).set(EPILOGUE, INT(2))
    biased = Described("MatmulDesc", INT(68), INT(0)).set(EPILOGUE, INT(4))
    biased.set(BIAS, ctypes.c_uint64(x.pointer.value)).set(BIAS_TYPE, INT(1))
    rows = layout(0, 4, 4, 4).set(ORDER, INT(1))
    scaled = Described("MatmulDesc", INT(68), INT(0)).set(17, ctypes.c_uint64(x.pointer.value))
    other_scale = Described("MatmulDesc", INT(68), INT(1))
    for product, layouts, what in (
        (rectified, [square] * 4, "an activation"),
        (biased, [square] * 4, "a bias of another type"),
        (scaled, [square] * 4, "a scale of a matrix"),
        (other_scale, [square] * 4, "factors of another type"),
        (plain, [rows, square, square, square], "rows"),
        (plain, [square, square, square, layout(0, 4, 4, 8)], "another layout of the result"),
        (plain, [layout(3, 4, 4, 4), square, square, square], "a type that is none"),
        (plain, [square, layout(2, 4, 4, 4), square, square], "factors of two types"),
        (plain, [layout(14, 4, 4, 4), layout(2, 4, 4, 4), square, square], "two narrow types"),
        (plain, [square, square, *[layout(2, 4, 4, 4)] * 2], "a result that is narrower"),
        (plain, [layout(2, 4, 4, 4)] * 2 + [layout(14, 4, 4, 4)] * 2, "another narrow result"),
    ):
        matrices = [x.pointer] * 4
        code = multiply(product, [address(one)] * 2, matrices, layouts)
        failures.check(code == NOT_SUPPORTED, f"{what} gives {code}")
        failures.check(found(product, *layouts) == (0, 0), f"an algorithm for {what}")
    slim = layout(0, 4, 3, 4)
    failures.check(found(plain, slim, square, square, square)[0] == INVALID, "shapes that differ")
    code = multiply(plain, [address(one)] * 2, [x.pointer] * 4, [slim, square, square, square])
    failures.check(code == INVALID, f"shapes that differ give {code}")
    far = ctypes.c_void_p(0x1234567)
    code = multiply(plain, [address(one)] * 2, [far, *[x.pointer] * 3], [square] * 4)
    failures.check(code == INVALID, f"an address that is none gives {code}")
    # A bias is written into the result before the product is added.
    biased = Described("MatmulDesc", INT(68), INT(0)).set(EPILOGUE, INT(4))
    biased.set(BIAS, ctypes.c_uint64(x.pointer.value))
    tight = layout(0, 4, 4, 3)
    for matrices, first, what in (
        ([far, *[x.pointer] * 3], square, "A"),
        ([x.pointer, far, *[x.pointer] * 2], square, "B"),
        ([x.pointer] * 4, tight, "the distance of columns"),
    ):
        code = multiply(biased, [address(one)] * 2, matrices, [first, square, square, square])
        failures.check(code == INVALID, f"a bias and {what} that is none give {code}")
    failures.check(np.array_equal(x.read(), np.ones(16, np.float32)), "a refused call has written")


for dtype, ta, tb, count in itertools.product(TYPES, (0, 1), (0, 1), (1, 3)):
    products(dtype, ta, tb, count)
products(np.complex64, 2, 2, 1)
for dtype in TYPES:
    products(dtype, 1, 0, 1, has_bias=True)
order()
what_is_not_served()
failures.end("cublasLt")
