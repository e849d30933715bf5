"""cuFFT: transforms of one to three dimensions, of all types, in place and out of place, in batches
and with strides, against numpy; the order with other work of the stream; and calls that make no
sense."""

import ctypes
import itertools

import numpy as np
from libraries import INT, Device, Failures, address, cuda, good, library, random

fft = library("cufft", 12)
rng = np.random.default_rng(11)
failures = Failures()
FORWARD, INVERSE = -1, 1
R2C, C2R, C2C, D2Z, Z2D, Z2Z = 0x2A, 0x2C, 0x29, 0x6A, 0x6C, 0x69
INVALID_PLAN, INVALID_TYPE, INVALID_VALUE, INVALID_SIZE, NOT_SUPPORTED = 1, 3, 4, 8, 16
SINGLE, DOUBLE = (np.float32, np.complex64), (np.float64, np.complex128)


def ints(values):
    return (INT * len(values))(*values)


def plan_of(sizes, kind, batch=1):
    """Makes a plan by the function for the number of dimensions, or by cufftPlanMany."""
    plan = INT()
    if len(sizes) == 1:
        code = fft.cufftPlan1d(ctypes.byref(plan), INT(sizes[0]), INT(kind), INT(batch))
    elif batch == 1:
        make = fft.cufftPlan2d if len(sizes) == 2 else fft.cufftPlan3d
        code = make(ctypes.byref(plan), *[INT(size) for size in sizes], INT(kind))
    else:
        code = fft.cufftPlanMany(
            ctypes.byref(plan),
            INT(len(sizes)),
            ints(sizes),
            None,
            INT(1),
            INT(0),
            None,
            INT(1),
            INT(0),
            INT(kind),
            INT(batch),
        )
    failures.check(code == 0, f"a plan of {sizes}: {code}")
    return plan


def close(found, expected, real):
    epsilon = np.finfo(real).eps
    scale = max(1, np.abs(expected).max(initial=0)) * np.log2(expected.size + 2)
    return np.allclose(found, expected, rtol=0, atol=8 * epsilon * scale)


def axes(sizes):
    return tuple(range(1, len(sizes) + 1))


def complex_transforms(sizes, batch, types):
    real, complex_ = types
    kind, execute = (C2C, fft.cufftExecC2C) if real == np.float32 else (Z2Z, fft.cufftExecZ2Z)
    plan = plan_of(sizes, kind, batch)
    for direction, in_place in itertools.product((FORWARD, INVERSE), (False, True)):
        values = random(rng, (batch, *sizes), complex_)
        source = Device(values)
        target = source if in_place else Device(np.zeros_like(values))
        code = execute(plan, source.pointer, target.pointer, INT(direction))
        expected = np.fft.fftn(values, axes=axes(sizes))
        if direction == INVERSE:
            expected = np.fft.ifftn(values, axes=axes(sizes)) * np.prod(sizes)
        what = f"{real.__name__} {sizes} x {batch}, {direction}, in place {in_place}"
        failures.check(code == 0 and close(target.read(), expected, real), f"{what}: {code}")
        if not in_place:
            failures.check(np.array_equal(source.read(), values), f"{what} changes its input")
    failures.check(fft.cufftDestroy(plan) == 0, "the end of a plan")


def real_transforms(sizes, batch, types):
    real, complex_ = types
    single = real == np.float32
    half = (*sizes[:-1], sizes[-1] // 2 + 1)
    padded = (*sizes[:-1], 2 * half[-1])
    values = random(rng, (batch, *sizes), real)
    expected = np.fft.rfftn(values, axes=axes(sizes))
    plan = plan_of(sizes, R2C if single else D2Z, batch)
    execute = fft.cufftExecR2C if single else fft.cufftExecD2Z
    source, target = Device(values), Device(np.zeros((batch, *half), complex_))
    code = execute(plan, source.pointer, target.pointer)
    failures.check(
        code == 0 and close(target.read(), expected, real), f"from real {sizes} x {batch}: {code}"
    )
    room = np.zeros((batch, *padded), real)
    room[..., : sizes[-1]] = values
    both = Device(room)
    code = execute(plan, both.pointer, both.pointer)
    failures.check(
        code == 0 and close(both.read().view(complex_), expected, real),
        f"from real in place {sizes} x {batch}: {code}",
    )
    fft.cufftDestroy(plan)

    plan = plan_of(sizes, C2R if single else Z2D, batch)
    execute = fft.cufftExecC2R if single else fft.cufftExecZ2D
    spectrum = expected.astype(complex_)
    back = values * np.prod(sizes)
    source, target = Device(spectrum), Device(np.zeros((batch, *sizes), real))
    code = execute(plan, source.pointer, target.pointer)
    failures.check(
        code == 0 and close(target.read(), back, real), f"to real {sizes} x {batch}: {code}"
    )
    both = Device(spectrum)
    code = execute(plan, both.pointer, both.pointer)
    found = both.read().view(real).reshape(batch, *padded)[..., : sizes[-1]]
    failures.check(
        code == 0 and close(found, back, real), f"to real in place {sizes} x {batch}: {code}"
    )
    fft.cufftDestroy(plan)


def strides():
    """Elements with gaps, in arrays that are larger than the transform."""
    for sizes, room, stride, make in itertools.product(
        ((6,), (4, 3), (2, 3, 5)), (0, 2), (1, 3), ("plan", "make", "make64")
    ):
        batch = 2
        embed = [size + room for size in sizes]
        distance = int(np.prod(embed)) * stride + 1
        out_embed, out_stride = [size + 1 for size in sizes], 2
        out_distance = int(np.prod(out_embed)) * out_stride
        source_values = random(rng, batch * distance, np.complex64)
        target_values = random(rng, batch * out_distance, np.complex64)
        source, target = Device(source_values), Device(target_values)
        layout = (embed, stride, distance, out_embed, out_stride, out_distance)
        plan, code = strided_plan(make, sizes, layout, batch)
        code |= fft.cufftExecC2C(plan, source.pointer, target.pointer, INT(FORWARD))
        expected = target_values.copy()
        for b in range(batch):
            taken = np.empty(sizes, np.complex64)
            for index in np.ndindex(*sizes):
                taken[index] = source_values[b * distance + stride * flat(index, embed)]
            made = np.fft.fftn(taken)
            for index in np.ndindex(*sizes):
                expected[b * out_distance + out_stride * flat(index, out_embed)] = made[index]
        failures.check(
            code == 0 and close(target.read(), expected, np.float32),
            f"strides {sizes} {room} {stride} {make}: {code}",
        )
        fft.cufftDestroy(plan)


def strided_plan(make, sizes, layout, batch):
    """Returns a plan made by the call `make`, and the call's code."""
    embed, stride, distance, out_embed, out_stride, out_distance = layout
    plan = INT()
    if make == "plan":
        code = fft.cufftPlanMany(
            ctypes.byref(plan),
            INT(len(sizes)),
            ints(sizes),
            ints(embed),
            INT(stride),
            INT(distance),
            ints(out_embed),
            INT(out_stride),
            INT(out_distance),
            INT(C2C),
            INT(batch),
        )
    else:
        bytes_, long = ctypes.c_size_t(5), ctypes.c_longlong
        code = fft.cufftCreate(ctypes.byref(plan))
        if make == "make":
            code |= fft.cufftMakePlanMany(
                plan,
                INT(len(sizes)),
                ints(sizes),
                ints(embed),
                INT(stride),
                INT(distance),
                ints(out_embed),
                INT(out_stride),
                INT(out_distance),
                INT(C2C),
                INT(batch),
                ctypes.byref(bytes_),
            )
        else:
            lists = [(long * len(sizes))(*values) for values in (sizes, embed, out_embed)]
            code |= fft.cufftMakePlanMany64(
                plan,
                INT(len(sizes)),
                lists[0],
                lists[1],
                long(stride),
                long(distance),
                lists[2],
                long(out_stride),
                long(out_distance),
                INT(C2C),
                long(batch),
                ctypes.byref(bytes_),
            )
        failures.check(bytes_.value == 0, "the size of a work area")
    return plan, code


def flat(index, embed):
    place = 0
    for position, size in zip(index, embed):
        place = place * size + position
    return place


def order():
    """Fills and transforms of several streams follow the program's order."""
    n = 1 << 12
    streams = [ctypes.c_void_p() for _ in range(2)]
    for stream in streams:
        good(cuda.cudaStreamCreateWithFlags(ctypes.byref(stream), INT(1)))
    event, plan = ctypes.c_void_p(), plan_of((n,), C2C)
    good(cuda.cudaEventCreate(ctypes.byref(event)))
    one = np.frombuffer(b"\x3f" * 8, np.complex64)[0]
    for turn in range(30):
        values = Device(np.zeros(n, np.complex64))
        before, after = streams[turn % 2], streams[(turn + 1) % 2]
        code = fft.cufftSetStream(plan, before)
        good(cuda.cudaMemsetAsync(values.pointer, INT(0x3F), ctypes.c_size_t(8 * n), before))
        code |= fft.cufftExecC2C(plan, values.pointer, values.pointer, INT(FORWARD))
        good(cuda.cudaEventRecord(event, before))
        good(cuda.cudaStreamWaitEvent(after, event, INT(0)))
        code |= fft.cufftSetStream(plan, after)
        code |= fft.cufftExecC2C(plan, values.pointer, values.pointer, INT(INVERSE))
        back = np.empty(n, np.complex64)
        good(
            cuda.cudaMemcpyAsync(
                address(back), values.pointer, ctypes.c_size_t(8 * n), INT(2), after
            )
        )
        good(cuda.cudaStreamSynchronize(after))
        failures.check(code == 0 and np.allclose(back, n * one, rtol=1e-5), f"order {turn}: {code}")
    fft.cufftDestroy(plan)


def expect(code, wanted, what):
    failures.check(code == wanted, f"{what} gives {code}")


def garbage():
    plan, values = INT(), Device(np.zeros(64, np.complex64))
    at = values.pointer
    make = lambda n, kind, batch: fft.cufftPlan1d(ctypes.byref(plan), INT(n), INT(kind), INT(batch))
    expect(make(0, C2C, 1), INVALID_SIZE, "a transform of nothing")
    expect(make(-5, C2C, 1), INVALID_SIZE, "a negative size")
    expect(make(16, 0x77, 1), INVALID_TYPE, "a type that is none")
    expect(make(16, C2C, 0), INVALID_SIZE, "no transforms")
    expect(fft.cufftPlan1d(None, INT(8), INT(C2C), INT(1)), INVALID_VALUE, "no place for a plan")
    expect(fft.cufftExecC2C(INT(12345), at, at, INT(FORWARD)), INVALID_PLAN, "a plan that is none")
    expect(fft.cufftExecC2C(INT(-1), at, at, INT(FORWARD)), INVALID_PLAN, "a negative plan")
    expect(fft.cufftCreate(ctypes.byref(plan)), 0, "a plan without a transform")
    expect(fft.cufftExecC2C(plan, at, at, INT(FORWARD)), INVALID_PLAN, "a plan without a transform")
    fft.cufftDestroy(plan)
    expect(make(64, C2C, 1), 0, "a plan")
    expect(fft.cufftExecC2C(plan, at, at, INT(5)), INVALID_VALUE, "a direction that is none")
    expect(fft.cufftExecC2C(plan, None, at, INT(FORWARD)), INVALID_VALUE, "no input")
    expect(
        fft.cufftExecC2C(plan, ctypes.c_void_p(0x12345), at, INT(FORWARD)),
        INVALID_VALUE,
        "an address that is none",
    )
    expect(
        fft.cufftExecC2C(plan, ctypes.c_void_p(at.value + 8), at, INT(FORWARD)),
        INVALID_VALUE,
        "an input past its memory",
    )
    expect(fft.cufftExecR2C(plan, at, at), INVALID_TYPE, "another type than the plan's")
    expect(fft.cufftXtSetCallback(plan, None, INT(0), None), NOT_SUPPORTED, "a callback")
    expect(fft.cufftDestroy(plan), 0, "the end of a plan")
    expect(fft.cufftDestroy(plan), INVALID_PLAN, "the second end of a plan")
    expect(fft.cufftExecC2C(plan, at, at, INT(FORWARD)), INVALID_PLAN, "a plan that has ended")
    huge = fft.cufftPlan3d(
        ctypes.byref(plan), INT(2**31 - 1), INT(2**31 - 1), INT(2**31 - 1), INT(Z2Z)
    )
    expect(huge, INVALID_SIZE, "a transform of all memory")
    garbage_in_layouts(plan)
    number = INT()
    failures.check(
        fft.cufftGetVersion(ctypes.byref(number)) == 0 and number.value // 1000 == 12, "the version"
    )
    failures.check(not values.read().any(), "a refused call has written")


def garbage_in_layouts(plan):
    small = fft.cufftPlanMany(
        ctypes.byref(plan),
        INT(2),
        ints((4, 4)),
        ints((4, 3)),
        INT(1),
        INT(16),
        ints((4, 4)),
        INT(1),
        INT(16),
        INT(C2C),
        INT(1),
    )
    expect(small, INVALID_SIZE, "an array that is too small")
    expect(
        fft.cufftPlanMany(
            ctypes.byref(plan),
            INT(4),
            ints((2, 2, 2, 2)),
            None,
            INT(1),
            INT(1),
            None,
            INT(1),
            INT(1),
            INT(C2C),
            INT(1),
        ),
        INVALID_VALUE,
        "four dimensions",
    )


for sizes, batch in itertools.product(
    ((1,), (2,), (7,), (64,), (1000,), (5, 4), (16, 9), (3, 4, 5), (8, 2, 7)), (1, 3)
):
    for types in (SINGLE, DOUBLE):
        complex_transforms(sizes, batch, types)
        real_transforms(sizes, batch, types)
strides()
order()
garbage()
failures.end("cufft")
