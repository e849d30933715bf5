"""The binding with a real libwater.so, on two devices of PoCL."""

import gc
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import penstock_water as water

SCALE = """
kernel void scale(global float *data, const float factor) { data[get_global_id(0)] *= factor; }
kernel void sum_of_group(global const float *data, global float *sums, local float *tile) {
    const size_t lane = get_local_id(0), lanes = get_local_size(0);
    tile[lane] = data[get_global_id(0)];
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lane == 0) {
        float sum = 0;
        for (size_t i = 0; i < lanes; i++) sum += tile[i];
        sums[get_group_id(0)] = sum;
    }
}
"""
SLOW = "kernel void slow(global float *data) { float x = data[get_global_id(0)]; for (int i = 0; i < 30000000; i++) x = x * 0.5f + 1; data[get_global_id(0)] = x; }"


@pytest.fixture
def run():
    with water.Run() as run:
        assert len(run.devices) == 2, "these tests want two devices"
        yield run


def test_a_chain_of_commands_runs_in_order(run):
    data = np.arange(1000, dtype=np.float32)
    result = np.zeros_like(data)
    device = run.devices[0]
    kernel, buffer = device.kernel(SCALE, "scale"), device.upload(data)
    ran = kernel.run(data.size, [buffer, np.float32(3)])
    again = kernel.run(data.size, [buffer, np.float32(2)], after=ran)
    buffer.read(result, after=again).wait()
    assert np.array_equal(result, data * 6)


def test_local_memory_and_work_groups(run):
    data = np.arange(64, dtype=np.float32)
    sums = np.zeros(4, dtype=np.float32)
    device = run.devices[1]
    target = device.buffer(sums.nbytes)
    ran = device.kernel(SCALE, "sum_of_group").run(
        64, [device.upload(data), target, water.Local(16 * 4)], local_size=16
    )
    target.read(sums, after=ran).wait()
    assert np.array_equal(sums, data.reshape(4, 16).sum(axis=1))


def test_a_copy_goes_from_device_to_device(run):
    data = np.arange(100, dtype=np.int32)
    result = np.full(50, -1, dtype=np.int32)
    source, target = run.devices[0].upload(data), run.devices[1].buffer(50 * 4)
    copied = source.copy_to(target, offset=50 * 4)
    target.read(result, after=copied).wait()
    assert np.array_equal(result, data[50:])


def test_offsets_write_and_read_a_part(run):
    buffer = run.devices[0].upload(np.zeros(10, dtype=np.int32))
    written = buffer.write(np.array([7, 8], dtype=np.int32), offset=3 * 4)
    result = np.full(4, -1, dtype=np.int32)
    buffer.read(result, after=written, offset=2 * 4).wait()
    assert result.tolist() == [0, 7, 8, 0]


def test_an_array_that_the_program_forgets_lives_until_its_command_ended(run):
    device = run.devices[0]
    slow = device.kernel(SLOW, "slow")
    blocked = slow.run(1, [device.upload(np.ones(1, dtype=np.float32))])
    buffers = [device.buffer(1 << 16) for _ in range(100)]
    written = water.merge(
        *(
            buffer.write(np.full(1 << 14, i, dtype=np.int32), after=blocked)
            for i, buffer in enumerate(buffers)
        )
    )
    gc.collect()
    written.wait()
    for i, buffer in enumerate(buffers):
        result = np.zeros(1 << 14, dtype=np.int32)
        buffer.read(result).wait()
        assert (result == i).all()


def test_an_event_knows_when_its_command_ran(run):
    device = run.devices[0]
    ran = device.kernel(SCALE, "scale").run(10, [device.buffer(40), np.float32(1)])
    ran.wait()
    assert ran.has_ended and ran.error is None
    profile = ran.profile
    assert 0 < profile.queued <= profile.started <= profile.ended


def test_a_build_that_fails_tells_the_log_and_what_waits_for_it_fails_too(run):
    device = run.devices[0]
    kernel = device.kernel(
        "kernel void broken(global int *x) { x[0] = nothing_of_this_name; }", "broken"
    )
    ran = kernel.run(1, [device.buffer(4)])
    with pytest.raises(water.WaterError, match="nothing_of_this_name") as raised:
        ran.wait()
    assert "nothing_of_this_name" in raised.value.log
    assert raised.value.device == device.name
    assert ran.error is not None and ran.error.code == raised.value.code < 0


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT ALL WHERE colour = red", "colour"),
        ("SELECT EVERYTHING", "EVERYTHING"),
        ("SELECT ALL WHERE type = custom", "custom"),
    ],
)
def test_a_query_that_is_wrong_or_empty_says_so(query, message):
    with pytest.raises(water.WaterError, match=message):
        water.Run(query)
    with water.Run() as run:  # The failed one left nothing behind.
        assert run.devices


def test_a_query_picks_a_device(run):
    assert run.device("SELECT POS 2").attribute("device_index") == run.devices[1].attribute(
        "device_index"
    )
    assert run.device("SELECT POS 3") is None


def test_arguments_that_cannot_be_right_are_refused(run):
    device = run.devices[0]
    kernel, buffer = device.kernel(SCALE, "scale"), device.buffer(40)
    with pytest.raises(TypeError, match="argument 1 is a float"):
        kernel.run(10, [buffer, 2.0])
    with pytest.raises(ValueError, match="dimensions"):
        kernel.run((10, 1), [buffer, np.float32(1)], local_size=5)
    with pytest.raises(ValueError, match="contiguous"):
        buffer.write(np.zeros((10, 10), dtype=np.float32)[:, 0])
    readonly = np.zeros(10, dtype=np.float32)
    readonly.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        buffer.read(readonly)
    with pytest.raises(water.WaterError, match="do not lie within"):
        buffer.read(np.zeros(11, dtype=np.float32))
    with pytest.raises(water.WaterError, match="another device"):
        kernel.run(10, [run.devices[1].buffer(40), np.float32(1)])


def test_a_run_that_is_over_refuses_commands():
    with water.Run() as run:
        buffer = run.devices[0].buffer(4)
    with pytest.raises(RuntimeError, match="over"):
        buffer.write(np.zeros(1, dtype=np.int32))


def test_parts_follow_weights():
    with water.Run():
        assert water.partition(10, 2) == [5, 5]
        assert water.partition(100, 2, weights=[3, 1]) == [75, 25]
        assert sum(water.partition(10, 3, granularity=4)) == 10


def test_the_example_multiplies():
    example = pathlib.Path(__file__).resolve().parents[1] / "examples/matrix_product.py"
    environment = {**os.environ, "PYTHONPATH": str(example.parents[1])}
    done = subprocess.run(
        [sys.executable, example, "--size", "100"],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 devices" in done.stdout and "right" in done.stdout
