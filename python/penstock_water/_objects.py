"""Runs, devices, buffers, kernels and events."""

from __future__ import annotations

import ctypes
import dataclasses
import enum
import os
from collections.abc import Iterable, Sequence
from ctypes import byref, c_size_t, c_void_p
from typing import Optional, Union

import numpy as np

from ._library import CProfile, Slot, WaterError, call, call_quietly

NOT_ENDED = 1  # of wtr_event_status
# A device's attribute is at most this long, in bytes; the longest known is a list of extensions, of some 2 KiB.
ATTRIBUTE_BYTES_MAX = 1 << 16
# Events that keep arrays alive are looked through when they have become so many more.
LOOK_THROUGH_EVERY = 64

After = Union["Event", Iterable["Event"], None]


class MemoryFlag(enum.IntEnum):
    """What kernels do with a buffer. As ``CL_MEM_*``."""

    READ_WRITE = 1
    WRITE_ONLY = 2
    READ_ONLY = 4


class _Source(enum.IntEnum):
    """wtr_kernel_flag"""

    FILE = 0
    STRING = 1


@dataclasses.dataclass(frozen=True)
class Local:
    """A kernel argument: that many bytes of local memory."""

    size: int


@dataclasses.dataclass(frozen=True)
class Profile:
    """When a command ran, in ns of a clock that all nodes share; 0 is unknown."""

    queued: int
    received: int
    started: int
    ended: int


class Event:
    """The end of a command, or of several."""

    def __init__(self, run: Run, handle: Optional[int] = None):
        self._run = run
        self._slot = c_void_p(handle)
        self._keeps: tuple = ()

    def __del__(self):
        if self._slot and self._run.is_open:
            call_quietly("wtr_release_event", self._slot)

    def wait(self) -> None:
        """Until it has ended. Raises `WaterError` if it failed."""
        self._run.check_open()
        call("wtr_wait_for_events_v", 1, (Slot * 1)(ctypes.pointer(self._slot)))

    @property
    def has_ended(self) -> bool:
        """Well or not. Does not wait."""
        return not self._run.is_open or call_quietly("wtr_event_status", self._slot) != NOT_ENDED

    @property
    def error(self) -> Optional[WaterError]:
        """Why it failed; None if it did not, or has not ended."""
        self._run.check_open()
        error = call_quietly("wtr_event_error", self._slot)
        return WaterError.of(error.contents) if error else None

    @property
    def profile(self) -> Profile:
        """When its last command ran."""
        self._run.check_open()
        told = CProfile()
        call("wtr_event_profile", self._slot, byref(told))
        return Profile(told.queued, told.received, told.started, told.ended)


def merge(*events: Event) -> Event:
    """An event that ends when all of these have ended."""
    if not events:
        raise ValueError("no event to merge")
    run = events[0]._run
    run.check_open()
    slots = (Slot * len(events))(*(ctypes.pointer(event._slot) for event in events))
    return Event(run, call("wtr_merge_events_v", len(events), slots))


def partition(
    total: int, parts: int, granularity: int = 1, weights: Optional[Sequence[float]] = None
) -> list[int]:
    """Splits ``total`` units into parts that are multiples of ``granularity``: equal ones, or by ``weights``."""
    if weights is not None and len(weights) != parts:
        raise ValueError(f"{len(weights)} weights for {parts} parts")
    sizes = (c_size_t * parts)()
    call(
        "wtr_partition",
        total,
        granularity,
        parts,
        None if weights is None else (ctypes.c_double * parts)(*weights),
        sizes,
    )
    return list(sizes)


class Run:
    """All devices that a query selects, from here to the end of the ``with`` block, which waits for all commands. There is one run at a time."""

    def __init__(self, query: str = "SELECT ALL"):
        self.is_open = False
        self._keeping: list[Event] = []
        self._look_through_at = LOOK_THROUGH_EVERY
        call("wtr_init_devices_v", query.encode())
        self.is_open = True
        count = call("wtr_get_num_devices")
        self.devices = [
            Device(self, call("wtr_get_device_v", f"SELECT POS {i}".encode()))
            for i in range(1, count + 1)
        ]

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_exception) -> None:
        if self.is_open:
            self.release()

    def check_open(self) -> None:
        """Raises if the run is over."""
        if not self.is_open:
            raise RuntimeError("the run is over")

    def release(self) -> None:
        """Waits for all commands, and gives the devices back."""
        self.check_open()
        try:
            call("wtr_release_devices")
        finally:
            self.is_open = False
            self._keeping.clear()

    def device(self, query: str) -> Optional[Device]:
        """The device of a query ``SELECT POS i …``; None if there is none."""
        self.check_open()
        handle = call("wtr_get_device_v", query.encode())
        return Device(self, handle) if handle else None

    def flush(self) -> None:
        """Sends what was issued so far, without waiting."""
        self.check_open()
        call("wtr_flush")

    def _keep(self, event: Event, *objects) -> Event:
        """The objects live until the event has ended, even if the program forgets it."""
        event._keeps = objects
        self._keeping.append(event)
        if len(self._keeping) >= self._look_through_at:
            self._keeping = [kept for kept in self._keeping if not kept.has_ended]
            self._look_through_at = len(self._keeping) + LOOK_THROUGH_EVERY
        return event


def _wait_slot(after: After, *needs: Event):
    """The event to wait for, as C wants it, and the event itself, which must live as long."""
    events = [after] if isinstance(after, Event) else list(after or [])
    events += [event for event in needs if event not in events]
    waiting = events[0] if len(events) == 1 else merge(*events)
    return byref(waiting._slot), waiting


class Device:
    """One device of a run."""

    def __init__(self, run: Run, handle: int):
        self._run = run
        self._handle = handle

    def attribute(self, name: str) -> str:
        """What is known of it: by a name of the query language, as ``"global_memory"``; the value as that language writes it."""
        self._run.check_open()
        value = ctypes.create_string_buffer(ATTRIBUTE_BYTES_MAX)
        call("wtr_device_attribute", self._handle, name.encode(), value, len(value))
        return value.value.decode(errors="replace")

    @property
    def name(self) -> str:
        """Its name."""
        return self.attribute("name")

    def buffer(self, size: int, flag: MemoryFlag = MemoryFlag.READ_WRITE) -> Buffer:
        """A new buffer of ``size`` bytes."""
        self._run.check_open()
        made = Event(self._run)
        return Buffer(
            self._run,
            call("wtr_create_buffer", self._handle, flag, size, byref(made._slot)),
            size,
            made,
        )

    def upload(self, array: np.ndarray, flag: MemoryFlag = MemoryFlag.READ_WRITE) -> Buffer:
        """A new buffer with what an array holds. Commands with it wait for that."""
        buffer = self.buffer(array.nbytes, flag)
        buffer.ready = buffer.write(array)
        return buffer

    def kernel(self, source: Union[str, os.PathLike], name: str, options: str = "") -> Kernel:
        """A kernel of OpenCL C: a text with the source, or a path (`pathlib.Path`) of a file with it."""
        self._run.check_open()
        built = Event(self._run)
        text, flag = (
            (source, _Source.STRING)
            if isinstance(source, str)
            else (os.fspath(source), _Source.FILE)
        )
        handle = call(
            "wtr_create_kernel",
            self._handle,
            text.encode(),
            name.encode(),
            options.encode(),
            flag,
            byref(built._slot),
        )
        return Kernel(self._run, handle, built)


def _memory(array: np.ndarray, *, to_write: bool) -> int:
    """Where an array's bytes are, if they lie as a device wants them."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"a numpy array is wanted, not {type(array).__name__}")
    if not array.flags.c_contiguous:
        raise ValueError(
            "the array is not contiguous; numpy.ascontiguousarray() makes a copy that is"
        )
    if to_write and not array.flags.writeable:
        raise ValueError("the array is read-only")
    return array.ctypes.data


class Buffer:
    """Memory of a device."""

    def __init__(self, run: Run, handle: int, size: int, made: Event):
        self._run = run
        self._handle = handle
        self.size = size
        #: What commands with the buffer wait for in any case: that it exists, or that its first content is there.
        self.ready = made

    def write(self, array: np.ndarray, after: After = None, offset: int = 0) -> Event:
        """From an array to the buffer, from byte ``offset`` of it on."""
        self._run.check_open()
        event, (slot, _waiting) = Event(self._run), _wait_slot(after, self.ready)
        call(
            "wtr_write_buffer_at",
            self._handle,
            offset,
            array.nbytes,
            _memory(array, to_write=False),
            slot,
            byref(event._slot),
        )
        return self._run._keep(event, array)

    def read(self, array: np.ndarray, after: After = None, offset: int = 0) -> Event:
        """From the buffer, from byte ``offset`` of it on, to an array, which it fills."""
        self._run.check_open()
        event, (slot, _waiting) = Event(self._run), _wait_slot(after, self.ready)
        call(
            "wtr_read_buffer_at",
            self._handle,
            offset,
            array.nbytes,
            _memory(array, to_write=True),
            slot,
            byref(event._slot),
        )
        return self._run._keep(event, array)

    def copy_to(
        self,
        target: Buffer,
        size: Optional[int] = None,
        after: After = None,
        offset: int = 0,
        target_offset: int = 0,
    ) -> Event:
        """To a buffer of any device; the bytes do not pass the program. Without ``size``, all from ``offset`` on."""
        self._run.check_open()
        event, (slot, _waiting) = Event(self._run), _wait_slot(after, self.ready, target.ready)
        size = self.size - offset if size is None else size
        call(
            "wtr_copy_buffer",
            self._handle,
            offset,
            target._handle,
            target_offset,
            size,
            slot,
            byref(event._slot),
        )
        return event

    def release(self, after: After = None) -> Event:
        """Frees it. Without this, it is freed at the end of the run."""
        self._run.check_open()
        event, (slot, _waiting) = Event(self._run), _wait_slot(after, self.ready)
        call("wtr_release_buffer", self._handle, slot, byref(event._slot))
        return event


class Kernel:
    """A kernel of a device."""

    def __init__(self, run: Run, handle: int, built: Event):
        self._run = run
        self._handle = handle
        #: Its build; fails with the compiler's log.
        self.ready = built

    def run(
        self,
        global_size: Union[int, Sequence[int]],
        args: Sequence[Union[Buffer, np.generic, np.ndarray, Local]],
        local_size: Union[int, Sequence[int], None] = None,
        after: After = None,
        global_offset: Union[int, Sequence[int], None] = None,
    ) -> Event:
        """Runs it. Arguments are buffers, numpy scalars of the type that the kernel declares, small arrays (vectors and structs), and `Local`."""
        self._run.check_open()
        sizes = [_sizes(given) for given in (global_offset, global_size, local_size)]
        dims = len(sizes[1])
        if any(size is not None and len(size) != dims for size in sizes):
            raise ValueError(
                "global_size, local_size and global_offset do not have the same number of dimensions"
            )
        pairs = [_argument(index, value) for index, value in enumerate(args)]
        event, (slot, _waiting) = (
            Event(self._run),
            _wait_slot(after, self.ready, *(arg.ready for arg in args if isinstance(arg, Buffer))),
        )
        call(
            "wtr_run_kernel_v",
            self._handle,
            dims,
            *sizes,
            slot,
            byref(event._slot),
            len(pairs),
            (c_size_t * len(pairs))(*(size for size, _ in pairs)),
            (c_void_p * len(pairs))(
                *(
                    value.ctypes.data if isinstance(value, np.ndarray) else value
                    for _, value in pairs
                )
            ),
        )
        return event

    def release(self, after: After = None) -> Event:
        """Frees it. Without this, it is freed at the end of the run."""
        self._run.check_open()
        event, (slot, _waiting) = Event(self._run), _wait_slot(after, self.ready)
        call("wtr_release_kernel", self._handle, slot, byref(event._slot))
        return event


def _sizes(given: Union[int, Sequence[int], None]):
    if given is None:
        return None
    sizes = [given] if isinstance(given, (int, np.integer)) else list(given)
    if not 1 <= len(sizes) <= 3:
        raise ValueError(f"1 to 3 dimensions, not {len(sizes)}")
    return (c_size_t * len(sizes))(*sizes)


def _argument(index: int, value) -> tuple[int, object]:
    """The pair of size and address that wtr_run_kernel() wants, the address as an array that has it where it is one of ours."""
    if isinstance(value, Buffer):
        return 0, value._handle
    if isinstance(value, Local):
        return value.size, None
    if isinstance(value, (np.generic, np.ndarray)):
        array = np.ascontiguousarray(value)
        return array.nbytes, array
    raise TypeError(
        f"argument {index} is a {type(value).__name__}: kernels take buffers, Local, and values of a known size, as numpy.float32(1)"
    )
