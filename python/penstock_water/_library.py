"""The functions of wtr.h and wtr_ext.h: their types, and how their errors become exceptions."""

from __future__ import annotations

import ctypes
import functools
import importlib.metadata
import os
from ctypes import POINTER, c_char_p, c_double, c_int, c_size_t, c_uint, c_uint64, c_void_p

Slot = POINTER(c_void_p)  # wtr_event **
Slots = POINTER(Slot)


class CError(ctypes.Structure):
    """wtr_error"""

    _fields_ = [
        ("code", c_int),
        ("message", c_char_p),
        ("node", c_char_p),
        ("device", c_char_p),
        ("log", c_char_p),
    ]


class CProfile(ctypes.Structure):
    """wtr_profile"""

    _fields_ = [
        ("queued", c_uint64),
        ("received", c_uint64),
        ("started", c_uint64),
        ("ended", c_uint64),
    ]


HANDLER = ctypes.CFUNCTYPE(None, POINTER(CError), c_void_p)

# Name: (result, arguments). The variadic functions have array forms, which are used instead.
FUNCTIONS = {
    "wtr_init_devices_v": (None, [c_char_p]),
    "wtr_get_device_v": (c_void_p, [c_char_p]),
    "wtr_get_num_devices": (c_int, []),
    "wtr_release_devices": (None, []),
    "wtr_device_attribute": (c_int, [c_void_p, c_char_p, c_char_p, c_size_t]),
    "wtr_create_buffer": (c_void_p, [c_void_p, c_int, c_size_t, Slot]),
    "wtr_write_buffer_at": (None, [c_void_p, c_size_t, c_size_t, c_void_p, Slot, Slot]),
    "wtr_read_buffer_at": (None, [c_void_p, c_size_t, c_size_t, c_void_p, Slot, Slot]),
    "wtr_copy_buffer": (None, [c_void_p, c_size_t, c_void_p, c_size_t, c_size_t, Slot, Slot]),
    "wtr_release_buffer": (None, [c_void_p, Slot, Slot]),
    "wtr_create_kernel": (c_void_p, [c_void_p, c_char_p, c_char_p, c_char_p, c_int, Slot]),
    "wtr_run_kernel_v": (
        None,
        [
            c_void_p,
            c_uint,
            POINTER(c_size_t),
            POINTER(c_size_t),
            POINTER(c_size_t),
            Slot,
            Slot,
            c_uint,
            POINTER(c_size_t),
            POINTER(c_void_p),
        ],
    ),
    "wtr_release_kernel": (None, [c_void_p, Slot, Slot]),
    "wtr_release_event": (None, [c_void_p]),
    "wtr_merge_events_v": (c_void_p, [c_uint, Slots]),
    "wtr_wait_for_events_v": (None, [c_uint, Slots]),
    "wtr_flush": (None, []),
    "wtr_last_error": (POINTER(CError), []),
    "wtr_set_error_handler": (None, [HANDLER, c_void_p]),
    "wtr_event_status": (c_int, [c_void_p]),
    "wtr_event_error": (POINTER(CError), [c_void_p]),
    "wtr_event_profile": (c_int, [c_void_p, POINTER(CProfile)]),
    "wtr_partition": (c_int, [c_size_t, c_size_t, c_uint, POINTER(c_double), POINTER(c_size_t)]),
}


class WaterError(Exception):
    """What libWater says went wrong.

    ``code`` is an OpenCL code, or one of ``WTR_E*`` of wtr_ext.h. ``node`` and ``device`` say where, and are empty for errors of a call; ``log`` is what
    the device's compiler said, or empty.
    """

    def __init__(self, code: int, message: str, node: str = "", device: str = "", log: str = ""):
        super().__init__(f"{message}\n{log}" if log else message)
        self.code = code
        self.message = message
        self.node = node
        self.device = device
        self.log = log

    @classmethod
    def of(cls, error: CError) -> WaterError:
        """From what the library told, which it soon overwrites."""
        texts = [
            (text or b"").decode(errors="replace")
            for text in (error.message, error.node, error.device, error.log)
        ]
        return cls(error.code, *texts)


# The library ends the program for errors that nobody takes. Here they are taken: each becomes an exception where it is noticed.
_taken = HANDLER(lambda error, user: None)


def _packaged() -> str | None:
    """The library of the wheel that has brought this package, if a wheel has."""
    try:
        files = importlib.metadata.files("penstock") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    paths = [str(file.locate()) for file in files]
    own = os.path.realpath(__file__)
    if not any(os.path.realpath(path) == own for path in paths):
        return None
    return next((os.path.realpath(path) for path in paths if path.endswith("/libwater.so")), None)


@functools.cache
def _load() -> ctypes.CDLL:
    path = os.environ.get("PENSTOCK_WATER_LIBRARY") or _packaged() or "libwater.so"
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(
            f"cannot load {path}: {error}. Say where libwater.so is in PENSTOCK_WATER_LIBRARY"
        ) from error
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    library.wtr_set_error_handler(_taken, None)
    return library


def call(name: str, *arguments):
    """Calls a function; an error that it tells is raised."""
    library = _load()
    result = getattr(library, name)(*arguments)
    error = library.wtr_last_error()
    if error:
        raise WaterError.of(error.contents)
    return result


def call_quietly(name: str, *arguments):
    """Calls a function whose errors are its result, or do not matter."""
    return getattr(_load(), name)(*arguments)
