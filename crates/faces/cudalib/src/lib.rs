//! CUDA's libraries: `libcublas.so`, `libcublasLt.so` and `libcufft.so`, over CUDA's functions and
//! two more functions of our `libcuda.so.1`.
//!
//! A call is checked, encoded (`penstock_wire::library`) and given to the driver, which sends it to
//! the worker in the order of the stream. Nothing waits, except for calls that return a value to
//! the host.
//!
//! All libraries are linked from one archive (`tools/cuda/link.sh`), each with the symbols of its
//! version. For each symbol that no function here has, the script makes a function that returns the
//! library's code for what is not supported.
//!
//! * `driver`: the functions of the driver that the libraries use;
//! * `device_call`: the operands of a call, and its way to the driver;
//! * `cublas`, `cufft`: the faces.
#![allow(non_snake_case, reason = "C's names")]

mod cublas;
mod cufft;
mod device_call;
mod driver;
mod edge;
