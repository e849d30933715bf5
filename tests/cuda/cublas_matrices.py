"""Level 3 of cuBLAS, and products of batches and of other types, against numpy."""

import ctypes
import itertools

import numpy as np
from cublas_operands import (
    INVALID,
    Factor,
    Matrix,
    Vector,
    blas,
    call,
    close,
    combinations,
    failures,
    handle,
    mirrored,
    names,
    op,
    part,
    rng,
    triangle,
    updated,
    verify,
)
from libraries import INT, Device, address, random


def level_3(letter, dtype):
    one = (0.7 - 0.4j, 0.3 + 0.2j) if letter in "CZ" else (0.7, -0.3)
    products(letter, dtype, one)
    for on_device, shape, side, uplo in combinations(((1, 1), (5, 3), (3, 5)), (0, 1), (0, 1)):
        what = (*shape, side, uplo, on_device)
        symmetric_products(letter, dtype, one, *what)
        triangles_3(letter, dtype, one, *what)
    ranks(letter, dtype, one)
    sums(letter, dtype, one)


def products(letter, dtype, one):
    for on_device, (m, n, k), ta, tb in combinations(
        ((1, 1, 1), (4, 5, 3), (7, 2, 0), (0, 3, 2)), (0, 1, 2), (0, 1, 2)
    ):
        for name in names(letter, "gemm"):
            a = Matrix(*((m, k) if ta == 0 else (k, m)), dtype)
            b, c = Matrix(*((k, n) if tb == 0 else (n, k)), dtype), Matrix(m, n, dtype)
            alpha, beta = (Factor(value, dtype, on_device) for value in one)
            code = call(name, [INT(ta), INT(tb), m, n, k, alpha, a, b, beta, c])
            product = alpha.array[0] * op(a.view, ta) @ op(b.view, tb) + beta.array[0] * c.view
            verify(
                name,
                code,
                c,
                lambda buffer: c.of(buffer).__setitem__(slice(None), product),
                dtype,
                2 * k + 2,
                (m, n, k, ta, tb, on_device),
            )


def symmetric_products(letter, dtype, one, *what):
    m, n, side, uplo, on_device = what
    order = m if side == 0 else n
    for routine in ("symm", "hemm") if letter in "CZ" else ("symm",):
        for name in names(letter, routine):
            a, b, c = Matrix(order, order, dtype), Matrix(m, n, dtype), Matrix(m, n, dtype)
            alpha, beta = (Factor(value, dtype, on_device) for value in one)
            code = call(name, [INT(side), INT(uplo), m, n, alpha, a, b, beta, c])
            whole = mirrored(a.view, uplo, routine == "hemm")
            product = whole @ b.view if side == 0 else b.view @ whole
            value = alpha.array[0] * product + beta.array[0] * c.view
            verify(
                name,
                code,
                c,
                lambda buffer: c.of(buffer).__setitem__(slice(None), value),
                dtype,
                4 * order,
                what,
            )


def triangles_3(letter, dtype, one, *what):
    m, n, side, uplo, on_device = what
    order = m if side == 0 else n
    for trans, unit in itertools.product((0, 1, 2), (0, 1)):
        for name in names(letter, "trmm") + names(letter, "trsm"):
            solves = "trsm" in name
            a, b, c = Matrix(order, order, dtype), Matrix(m, n, dtype), Matrix(m, n, dtype)
            if solves:
                a.view[range(order), range(order)] += 4
            alpha = Factor(one[0], dtype, on_device)
            code = call(
                name,
                [
                    INT(side),
                    INT(uplo),
                    INT(trans),
                    INT(unit),
                    m,
                    n,
                    alpha,
                    a,
                    b,
                    *([] if solves else [c]),
                ],
            )
            matrix = op(triangle(a.view, uplo, bool(unit)), trans)
            if solves:
                matrix = np.linalg.inv(matrix)
            value = alpha.array[0] * (matrix @ b.view if side == 0 else b.view @ matrix)
            target = b if solves else c
            scale = 8 * order * max(1, np.abs(value).max(initial=0), np.abs(matrix).max(initial=0))
            verify(
                name,
                code,
                target,
                lambda buffer: target.of(buffer).__setitem__(slice(None), value),
                dtype,
                scale,
                (*what, trans, unit),
            )


def ranks(letter, dtype, one):
    complex_ = letter in "CZ"
    forms = [("syrk", False), ("syr2k", False), ("syrkx", False)]
    if complex_:
        forms += [("herk", True), ("her2k", True), ("herkx", True)]
    for on_device, (n, k), uplo, trans in combinations(((1, 1), (5, 3), (4, 0)), (0, 1), (0, 1, 2)):
        for routine, hermitian in forms:
            refused = (trans == 1 and hermitian) or (trans == 2 and complex_ and not hermitian)
            for name in [
                f"cublas{letter}{routine}{'' if routine.endswith('x') else '_v2'}{wide}"
                for wide in ("", "_64")
            ]:
                shape = (n, k) if trans == 0 else (k, n)
                a, b, c = Matrix(*shape, dtype), Matrix(*shape, dtype), Matrix(n, n, dtype)
                real_alpha = hermitian and routine == "herk"
                alpha = Factor(
                    0.7 if real_alpha else one[0], part(dtype) if real_alpha else dtype, on_device
                )
                beta = Factor(
                    0.3 if hermitian else one[1], part(dtype) if hermitian else dtype, on_device
                )
                two = routine not in ("syrk", "herk")
                code = call(
                    name, [INT(uplo), INT(trans), n, k, alpha, a, *([b] if two else []), beta, c]
                )
                what = (n, k, uplo, trans, on_device)
                if refused:
                    failures.check(code == INVALID, f"{name} {what} gives {code}")
                    continue
                f, g = alpha.array[0], beta.array[0]
                left = op(a.view, trans)
                other = op(b.view, trans) if two else left
                flip = (lambda v: v.conj().T) if hermitian else (lambda v: v.T)
                value = f * left @ flip(other)
                if routine in ("syr2k", "her2k"):
                    value = value + (np.conj(f) if hermitian else f) * other @ flip(left)
                value = (value + g * c.view).astype(dtype)
                if hermitian:
                    value = value - 1j * np.diag(np.diag(value).imag)
                updated(name, code, c, "full", value.astype(dtype), uplo, dtype, what, 8 * k + 8)


def sums(letter, dtype, one):
    for on_device, (m, n), ta, tb in combinations(((1, 1), (5, 3)), (0, 1, 2), (0, 1, 2)):
        for name in (f"cublas{letter}geam", f"cublas{letter}geam_64"):
            a = Matrix(*((m, n) if ta == 0 else (n, m)), dtype)
            b, c = Matrix(*((m, n) if tb == 0 else (n, m)), dtype), Matrix(m, n, dtype)
            alpha, beta = (Factor(value, dtype, on_device) for value in one)
            code = call(name, [INT(ta), INT(tb), m, n, alpha, a, beta, b, c])
            value = alpha.array[0] * op(a.view, ta) + beta.array[0] * op(b.view, tb)
            verify(
                name,
                code,
                c,
                lambda buffer: c.of(buffer).__setitem__(slice(None), value),
                dtype,
                4,
                (m, n, ta, tb),
            )
    for (m, n), side, step in itertools.product(((1, 1), (5, 3)), (0, 1), (1, -2)):
        for name in (f"cublas{letter}dgmm", f"cublas{letter}dgmm_64"):
            a, x, c = (
                Matrix(m, n, dtype),
                Vector(m if side == 0 else n, step, dtype),
                Matrix(m, n, dtype),
            )
            code = call(name, [INT(side), m, n, a, x, c])
            value = x.view[:, None] * a.view if side == 0 else a.view * x.view[None, :]
            verify(
                name,
                code,
                c,
                lambda buffer: c.of(buffer).__setitem__(slice(None), value),
                dtype,
                2,
                (m, n, side, step),
            )


def batches(letter, dtype):
    m, n, k, count = 3, 4, 5, 3
    one = Factor(1, dtype, False), Factor(2, dtype, False)
    for ta, tb in itertools.product((0, 1), (0, 1)):
        a_shape, b_shape = (m, k) if ta == 0 else (k, m), (k, n) if tb == 0 else (n, k)
        sets = [
            [Matrix(*shape, dtype) for _ in range(count)] for shape in (a_shape, b_shape, (m, n))
        ]
        devices = [[Device(it.buffer) for it in group] for group in sets]
        lists = [
            Device(np.array([it.pointer.value for it in group], np.uint64)) for group in devices
        ]
        sizes = [INT(v) for v in (ta, tb, m, n, k)]
        code = getattr(blas, f"cublas{letter}gemmBatched")(
            handle,
            *sizes,
            *one[0].args(),
            lists[0].pointer,
            INT(sets[0][0].ld),
            lists[1].pointer,
            INT(sets[1][0].ld),
            *one[1].args(),
            lists[2].pointer,
            INT(sets[2][0].ld),
            INT(count),
        )
        for index in range(count):
            a, b, c = (group[index] for group in sets)
            expected = c.buffer.copy()
            c.of(expected)[:] = op(a.view, ta) @ op(b.view, tb) + 2 * c.view
            failures.check(
                code == 0 and close(devices[2][index].read(), expected, dtype, 2 * k),
                f"{letter}gemmBatched {ta} {tb}: {code}",
            )
        joined = [Device(np.concatenate([it.buffer for it in group])) for group in sets]
        strides = [ctypes.c_longlong(group[0].buffer.size) for group in sets]
        code = getattr(blas, f"cublas{letter}gemmStridedBatched")(
            handle,
            *sizes,
            *one[0].args(),
            joined[0].pointer,
            INT(sets[0][0].ld),
            strides[0],
            joined[1].pointer,
            INT(sets[1][0].ld),
            strides[1],
            *one[1].args(),
            joined[2].pointer,
            INT(sets[2][0].ld),
            strides[2],
            INT(count),
        )
        found = joined[2].read().reshape(count, -1)
        for index in range(count):
            a, b, c = (group[index] for group in sets)
            expected = c.buffer.copy()
            c.of(expected)[:] = op(a.view, ta) @ op(b.view, tb) + 2 * c.view
            failures.check(
                code == 0 and close(found[index], expected, dtype, 2 * k),
                f"{letter}gemmStridedBatched {ta} {tb}: {code}",
            )
    triangles_in_batches(letter, dtype, one[0])


def triangles_in_batches(letter, dtype, one):
    m, n, count = 3, 4, 3
    triangles = [Matrix(m, m, dtype) for _ in range(count)]
    for it in triangles:
        it.view[range(m), range(m)] += 4
    sides = [Matrix(m, n, dtype) for _ in range(count)]
    devices = [[Device(it.buffer) for it in group] for group in (triangles, sides)]
    lists = [Device(np.array([it.pointer.value for it in group], np.uint64)) for group in devices]
    code = getattr(blas, f"cublas{letter}trsmBatched")(
        handle,
        INT(0),
        INT(1),
        INT(0),
        INT(0),
        INT(m),
        INT(n),
        *one.args(),
        lists[0].pointer,
        INT(triangles[0].ld),
        lists[1].pointer,
        INT(sides[0].ld),
        INT(count),
    )
    for index in range(count):
        expected = sides[index].buffer.copy()
        sides[index].of(expected)[:] = np.linalg.solve(
            np.triu(triangles[index].view), sides[index].view
        )
        failures.check(
            code == 0 and close(devices[1][index].read(), expected, dtype, 50),
            f"{letter}trsmBatched: {code}",
        )


def narrow_types():
    """Products whose matrices have half precision, or the upper half of single precision."""
    m, n, k = 4, 3, 6
    kinds = {np.float16: 2, np.float32: 0}
    for a_type, c_type in (
        (np.float16, np.float16),
        (np.float16, np.float32),
        (np.float32, np.float32),
    ):
        a, b, c = Matrix(m, k, a_type), Matrix(k, n, a_type), Matrix(m, n, c_type)
        alpha, beta = Factor(0.5, np.float32, False), Factor(2, np.float32, False)
        args = [INT(0), INT(0), m, n, k, *alpha.args()]
        devices = [Device(it.buffer) for it in (a, b, c)]
        sizes = [INT(v) if isinstance(v, int) else v for v in args]
        code = blas.cublasGemmEx(
            handle,
            *sizes,
            devices[0].pointer,
            INT(kinds[a_type]),
            INT(a.ld),
            devices[1].pointer,
            INT(kinds[a_type]),
            INT(b.ld),
            *beta.args(),
            devices[2].pointer,
            INT(kinds[c_type]),
            INT(c.ld),
            INT(68),
            INT(-1),
        )
        expected = c.buffer.copy()
        wide = lambda it: it.view.astype(np.float32)
        c.of(expected)[:] = (0.5 * wide(a) @ wide(b) + 2 * wide(c)).astype(c_type)
        atol = 4e-3 if c_type == np.float16 else 1e-5
        failures.check(
            code == 0 and np.allclose(devices[2].read(), expected, atol=atol, rtol=0),
            f"GemmEx {a_type} {c_type}: {code}",
        )
    half_precision(m, n, k)
    upper_halves(m, n, k)
    types_that_do_not_fit()


def types_that_do_not_fit():
    """NVIDIA's library has products of one type, into this type or into single precision."""
    values, one, size = Device(np.ones(16, np.float32)), np.ones(1, np.float32), INT(4)
    for a_kind, b_kind, c_kind in ((0, 2, 0), (2, 0, 0), (2, 14, 0), (2, 2, 14), (0, 0, 2)):
        at = lambda kind: (values.pointer, INT(kind), size)
        shape = (INT(0), INT(0), size, size, size, address(one), *at(a_kind), *at(b_kind))
        code = blas.cublasGemmEx(handle, *shape, address(one), *at(c_kind), INT(68), INT(-1))
        failures.check(code == 15, f"GemmEx {a_kind} {b_kind} {c_kind}: {code}")
    failures.check(np.array_equal(values.read(), np.ones(16, np.float32)), "GemmEx has written")


def half_precision(m, n, k):
    half = [Device(random(rng, s, np.float16)) for s in (m * k, k * n, m * n)]
    one = np.ones(1, np.float16)
    code = blas.cublasHgemm(
        handle,
        INT(0),
        INT(0),
        INT(m),
        INT(n),
        INT(k),
        address(one),
        half[0].pointer,
        INT(m),
        half[1].pointer,
        INT(k),
        address(one),
        half[2].pointer,
        INT(m),
    )
    shaped = [
        it.array.astype(np.float32).reshape(s, order="F")
        for it, s in zip(half, ((m, k), (k, n), (m, n)))
    ]
    expected = shaped[0] @ shaped[1] + shaped[2]
    failures.check(
        code == 0 and np.allclose(half[2].read().reshape((m, n), order="F"), expected, atol=4e-3),
        f"Hgemm: {code}",
    )


def upper_halves(m, n, k):
    brain = lambda values: (values.view(np.uint32) >> 16).astype(np.uint16)
    a, b = (random(rng, s, np.float32) for s in (m * k, k * n))
    narrow, target = [Device(brain(it)) for it in (a, b)], Device(np.zeros(m * n, np.float32))
    one, none = np.ones(1, np.float32), np.zeros(1, np.float32)
    code = blas.cublasGemmEx(
        handle,
        INT(0),
        INT(0),
        INT(m),
        INT(n),
        INT(k),
        address(one),
        narrow[0].pointer,
        INT(14),
        INT(m),
        narrow[1].pointer,
        INT(14),
        INT(k),
        address(none),
        target.pointer,
        INT(0),
        INT(m),
        INT(68),
        INT(-1),
    )
    widen = lambda it, s: (it.array.astype(np.uint32) << 16).view(np.float32).reshape(s, order="F")
    expected = widen(narrow[0], (m, k)) @ widen(narrow[1], (k, n))
    failures.check(
        code == 0 and np.allclose(target.read().reshape((m, n), order="F"), expected, atol=1e-5),
        f"GemmEx bf16: {code}",
    )
