"""libWater for Python: devices of a whole cluster, picked by a query; numpy arrays as their input and output; events between commands.

    import numpy as np
    import penstock_water as water

    with water.Run("SELECT ALL WHERE type = gpu") as run:
        for device in run.devices:
            kernel = device.kernel(source, "twice")
            buffer = device.upload(array)
            ran = kernel.run(array.size, [buffer, np.uint64(0)])
            read = buffer.read(array, after=ran)
        read.wait()

Commands return at once, with an event; ``after`` is an event, or several, that have to end before. What a command needs anyway, that its buffers
and its kernel exist, need not be said. Until a command has ended, the arrays that it reads or writes are kept alive, and must not be changed.

``libwater.so`` is looked for where ``PENSTOCK_WATER_LIBRARY`` says, else in the wheel that has brought
this package, else as the system looks for libraries.
"""

from ._library import WaterError
from ._objects import (
    Buffer,
    Device,
    Event,
    Kernel,
    Local,
    MemoryFlag,
    Profile,
    Run,
    merge,
    partition,
)

__all__ = [
    "Buffer",
    "Device",
    "Event",
    "Kernel",
    "Local",
    "MemoryFlag",
    "Profile",
    "Run",
    "WaterError",
    "merge",
    "partition",
]
