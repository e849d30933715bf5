"""Levels 1 and 2 of cuBLAS against numpy."""

import itertools

import numpy as np
from cublas_operands import (
    Factor,
    Matrix,
    Packed,
    Vector,
    call,
    close,
    combinations,
    failures,
    mirrored,
    names,
    op,
    part,
    triangle,
    updated,
    verify,
)
from libraries import INT, Device, address


def level_1(letter, dtype):
    complex_ = letter in "CZ"
    value = 0.7 - 0.4j if complex_ else 0.7
    for on_device, n, (incx, incy) in combinations((0, 1, 9), ((1, 1), (2, -3), (-1, 2))):
        what = (n, incx, incy, on_device)
        for name in names(letter, "axpy"):
            x, y, alpha = (
                Vector(n, incx, dtype),
                Vector(n, incy, dtype),
                Factor(value, dtype, on_device),
            )
            code = call(name, [n, alpha, x, y])
            verify(
                name, code, y, lambda b: y.of(b).__iadd__(alpha.array[0] * x.view), dtype, 2, what
            )
        for name in names(letter, "scal") + (
            names("Cs" if letter == "C" else "Zd", "scal") if complex_ else []
        ):
            real = name.startswith(("cublasCss", "cublasZds"))
            x = Vector(n, incx, dtype)
            alpha = Factor(0.7 if real else value, part(dtype) if real else dtype, on_device)
            code = call(name, [n, alpha, x])
            factor = alpha.array[0] if incx > 0 else 1
            verify(name, code, x, lambda b: x.of(b).__imul__(dtype(factor)), dtype, 2, what)
        for name in names(letter, "copy"):
            x, y = Vector(n, incx, dtype), Vector(n, incy, dtype)
            code = call(name, [n, x, y])
            verify(
                name, code, y, lambda b: y.of(b).__setitem__(slice(None), x.view), dtype, 0, what
            )
        for name in names(letter, "swap"):
            x, y = Vector(n, incx, dtype), Vector(n, incy, dtype)
            code = call(name, [n, x, y])
            verify(
                name, code, y, lambda b: y.of(b).__setitem__(slice(None), x.view), dtype, 0, what
            )
            verify(
                name, code, x, lambda b: x.of(b).__setitem__(slice(None), y.view), dtype, 0, what
            )
        sines = [("rot", value, dtype)]
        if complex_:
            sines.append(("srot" if letter == "C" else "drot", 0.4, part(dtype)))
        for routine, sine, sine_type in sines:
            for name in names(letter, routine):
                x, y = Vector(n, incx, dtype), Vector(n, incy, dtype)
                c, s = Factor(0.6, part(dtype), on_device), Factor(sine, sine_type, on_device)
                code = call(name, [n, x, y, c, s])
                xs, ys, cs, ss = x.view.copy(), y.view.copy(), c.array[0], s.array[0]
                verify(
                    name,
                    code,
                    x,
                    lambda b: x.of(b).__setitem__(slice(None), cs * xs + ss * ys),
                    dtype,
                    2,
                    what,
                )
                verify(
                    name,
                    code,
                    y,
                    lambda b: y.of(b).__setitem__(slice(None), cs * ys - np.conj(ss) * xs),
                    dtype,
                    2,
                    what,
                )
        reductions(letter, dtype, n, (incx, incy), on_device)


def reductions(letter, dtype, n, steps, on_device):
    lower, (incx, incy) = letter.lower(), steps
    dots = [("dotu", False), ("dotc", True)] if letter in "CZ" else [("dot", False)]
    cases = []
    for routine, conjugate in dots:
        for name in names(letter, routine):
            x, y = Vector(n, incx, dtype), Vector(n, incy, dtype)
            left = x.view.conj() if conjugate else x.view
            cases.append((name, [n, x, y], dtype, np.sum(left * y.view)))
    prefix = {"S": "S", "D": "D", "C": "Sc", "Z": "Dz"}[letter]
    for routine in ("nrm2", "asum"):
        for name in names(prefix, routine):
            x = Vector(n, incx, dtype)
            view = x.view if incx > 0 else x.view[:0]
            norm = np.sqrt(np.sum(np.abs(view) ** 2))
            total = np.sum(np.abs(view.real) + np.abs(view.imag))
            cases.append((name, [n, x], part(dtype), norm if routine == "nrm2" else total))
    for routine in ("amax", "amin"):
        for name in names("I" + lower, routine):
            x = Vector(n, incx, dtype)
            sizes = np.abs(x.view.real) + np.abs(x.view.imag)
            pick = np.argmax if routine == "amax" else np.argmin
            index = pick(sizes) + 1 if n > 0 and incx > 0 else 0
            cases.append((name, [n, x], np.int64 if name.endswith("_64") else np.int32, index))
    for name, args, kind, expected in cases:
        result = np.full(1, 77, kind)
        target = Device(result) if on_device else None
        code = call(name, args + [target.pointer if target else address(result)])
        found = target.read()[0] if target else result[0]
        failures.check(
            code == 0 and close(found, expected, dtype, n),
            f"{name} {(n, steps, on_device)}: {code}, {found} for {expected}",
        )


def level_2(letter, dtype):
    complex_ = letter in "CZ"
    one = (0.7 - 0.4j, 0.3 + 0.2j) if complex_ else (0.7, -0.3)
    shapes = ((1, 1), (5, 3), (3, 6), (0, 4))
    steps = ((1, 1), (-2, 3))
    for on_device, (m, n), (incx, incy), trans in combinations(shapes, steps, (0, 1, 2)):
        what = (m, n, incx, incy, trans, on_device)
        for wide, name in enumerate(names(letter, "gemv")):
            a = Matrix(m, n, dtype)
            x, y = (
                Vector(k, s, dtype)
                for k, s in ((n if trans == 0 else m, incx), (m if trans == 0 else n, incy))
            )
            alpha, beta = (Factor(value, dtype, on_device) for value in one)
            code = call(name, [INT(trans), m, n, alpha, a, x, beta, y])
            # "If m or n is 0, nothing is done."
            scaled = lambda b: (
                y.of(b).__setitem__(
                    slice(None),
                    alpha.array[0] * op(a.view, trans) @ x.view + beta.array[0] * y.view,
                )
                if m and n
                else None
            )
            verify(name, code, y, scaled, dtype, 2 * n, what)
        for name in names(letter, "gbmv"):
            below, above = min(1, max(m - 1, 0)), min(2, max(n - 1, 0))
            a = Matrix(below + above + 1, n, dtype)
            full = np.zeros((m, n), dtype)
            for i, j in itertools.product(range(m), range(n)):
                if -above <= i - j <= below:
                    full[i, j] = a.view[above + i - j, j]
            x, y = (
                Vector(k, s, dtype)
                for k, s in ((n if trans == 0 else m, incx), (m if trans == 0 else n, incy))
            )
            alpha, beta = (Factor(value, dtype, on_device) for value in one)
            code = call(name, [INT(trans), m, n, below, above, alpha, a, x, beta, y])
            scaled = lambda b: (
                y.of(b).__setitem__(
                    slice(None), alpha.array[0] * op(full, trans) @ x.view + beta.array[0] * y.view
                )
                if m and n
                else None
            )
            verify(name, code, y, scaled, dtype, 2 * n, what)
        if trans:
            continue
        for routine in ("geru", "gerc") if complex_ else ("ger",):
            for name in names(letter, routine):
                a, x, y = Matrix(m, n, dtype), Vector(m, incx, dtype), Vector(n, incy, dtype)
                alpha = Factor(one[0], dtype, on_device)
                code = call(name, [m, n, alpha, x, y, a])
                right = y.view.conj() if routine == "gerc" else y.view
                verify(
                    name,
                    code,
                    a,
                    lambda b: a.of(b).__iadd__(alpha.array[0] * np.outer(x.view, right)),
                    dtype,
                    2,
                    what,
                )
    triangles_2(letter, dtype, one)


def triangles_2(letter, dtype, one):
    for on_device, n, uplo, (incx, incy) in combinations((0, 1, 6), (0, 1), ((1, 1), (2, -1))):
        what = (n, uplo, incx, incy, on_device)
        symmetric_products(letter, dtype, one, *what)
        symmetric_updates(letter, dtype, one, *what)
        triangular_products(letter, dtype, *what)


def width_of_band(n):
    return min(2, max(n - 1, 0))


def operand(storage, n, uplo, dtype):
    """Returns an operand, its parameters, and the triangle that it stores."""
    if storage == "full":
        a = Matrix(n, n, dtype)
        return a, [a], a.view.copy()
    if storage == "packed":
        a = Packed(n, uplo, dtype)
        return a, [a], a.whole(a.buffer)
    width = width_of_band(n)
    a = Matrix(width + 1, n, dtype)
    return a, [a], rebuild(a, storage, n, uplo, width, dtype)


def symmetric_products(letter, dtype, one, *what):
    n, uplo, incx, incy, on_device = what
    products = (
        [
            ("symv", "full", False),
            ("hemv", "full", True),
            ("hbmv", "band", True),
            ("hpmv", "packed", True),
        ]
        if letter in "CZ"
        else [("symv", "full", False), ("sbmv", "band", False), ("spmv", "packed", False)]
    )
    for routine, storage, hermitian in products:
        for name in names(letter, routine):
            a, args, half = operand(storage, n, uplo, dtype)
            x, y = Vector(n, incx, dtype), Vector(n, incy, dtype)
            alpha, beta = (Factor(value, dtype, on_device) for value in one)
            between = [width_of_band(n)] if storage == "band" else []
            code = call(name, [INT(uplo), n, *between, alpha, *args, x, beta, y])
            whole = mirrored(half, uplo, hermitian)
            verify(
                name,
                code,
                y,
                lambda b: y.of(b).__setitem__(
                    slice(None), alpha.array[0] * whole @ x.view + beta.array[0] * y.view
                ),
                dtype,
                2 * n,
                what,
            )


def symmetric_updates(letter, dtype, one, *what):
    n, uplo, incx, incy, on_device = what
    updates = (
        [
            ("syr", "full", False, 1),
            ("her", "full", True, 1),
            ("hpr", "packed", True, 1),
            ("syr2", "full", False, 2),
            ("her2", "full", True, 2),
            ("hpr2", "packed", True, 2),
        ]
        if letter in "CZ"
        else [
            ("syr", "full", False, 1),
            ("spr", "packed", False, 1),
            ("syr2", "full", False, 2),
            ("spr2", "packed", False, 2),
        ]
    )
    for routine, storage, hermitian, count in updates:
        for name in names(letter, routine):
            a, args, half = operand(storage, n, uplo, dtype)
            x, y = Vector(n, incx, dtype), Vector(n, incy, dtype)
            real = hermitian and count == 1
            alpha = Factor(0.7 if real else one[0], part(dtype) if real else dtype, on_device)
            code = call(name, [INT(uplo), n, alpha, x, *([y] if count == 2 else []), *args])
            f, right = alpha.array[0], (lambda v: v.conj()) if hermitian else (lambda v: v)
            if count == 1:
                added = f * np.outer(x.view, right(x.view))
            else:
                added = f * np.outer(x.view, right(y.view)) + right(f) * np.outer(
                    y.view, right(x.view)
                )
            sum_ = half + added
            if hermitian and letter in "CZ":
                sum_ = sum_ - 1j * np.diag(np.diag(sum_).imag)
            updated(name, code, a, storage, sum_.astype(dtype), uplo, dtype, what)


def triangular_products(letter, dtype, *what):
    n, uplo, incx, _, _ = what
    width = width_of_band(n)
    for routine, trans, unit in itertools.product(
        ("trmv", "tbmv", "tpmv", "trsv", "tbsv", "tpsv"), (0, 1, 2), (0, 1)
    ):
        storage = {"r": "full", "b": "band", "p": "packed"}[routine[1]]
        for name in names(letter, routine):
            a, args, half = operand(storage, n, uplo, dtype)
            if routine.endswith("sv"):
                # Far from singular.
                boost(a, storage, n, uplo, width)
                half = rebuild(a, storage, n, uplo, width, dtype)
            x = Vector(n, incx, dtype)
            between = [width] if storage == "band" else []
            code = call(name, [INT(uplo), INT(trans), INT(unit), n, *between, *args, x])
            matrix = op(triangle(half, uplo, bool(unit)), trans)
            value = np.linalg.solve(matrix, x.view) if routine.endswith("sv") else matrix @ x.view
            scale = 4 * n * max(1, np.abs(value).max(initial=0))
            verify(
                name,
                code,
                x,
                lambda b: x.of(b).__setitem__(slice(None), value),
                dtype,
                scale,
                (*what, trans, unit),
            )


def boost(a, storage, n, uplo, width):
    if storage == "full":
        a.view[range(n), range(n)] += 4
    elif storage == "band":
        a.view[0 if uplo == 0 else width, :] += 4
    else:
        full = a.whole(a.buffer)
        full[range(n), range(n)] += 4
        a.buffer[:] = a.packed(full)


def rebuild(a, storage, n, uplo, width, dtype):
    if storage == "full":
        return a.view.copy()
    if storage == "packed":
        return a.whole(a.buffer)
    full = np.zeros((n, n), dtype)
    for j, d in itertools.product(range(n), range(width + 1)):
        i = j + d if uplo == 0 else j - d
        if 0 <= i < n:
            full[i, j] = a.view[d if uplo == 0 else width - d, j]
    return full
