"""JAX: one function, and one product of matrices."""

import jax
import jax.numpy as jnp
import numpy as np
import stages


def devices():
    return str(jax.devices())


def function():
    x = np.arange(10000, dtype=np.float32)
    got = jax.jit(lambda v: jnp.sin(v) * 2 + 1)(x)
    return f"off by {np.abs(np.asarray(got) - (np.sin(x) * 2 + 1)).max():.0e}"


def matmul():
    a = np.random.default_rng(1).random((128, 128), dtype=np.float32)
    got = np.asarray(jnp.dot(a, a))
    return f"off by {np.abs(got - a @ a).max() / 128:.0e}"


stages.run({"devices": devices, "function": function, "matmul": matmul})
