//! Programs that are statically linked with CUDA's runtime.
//!
//! Such a program contains NVIDIA's runtime, which asks the driver for undocumented tables. But
//! unless the program was stripped, its symbol table still names the runtime's functions. A small
//! library that is loaded before the program (`LD_PRELOAD`) therefore overwrites the start of each
//! of them with a jump to the function of the same name in Penstock's `libcudart.so` of the
//! program's version.
//!
//! If a program asks NVRTC for machine code, the same library returns the PTX that the code was
//! made from (`tools/cuda/patch.c`).
//!
//! * [`program`]: finds a runtime inside a program's file, also for `penstock run`;
//! * [`redirect`]: writes the jumps;
//! * [`loaded`]: handles libraries with a runtime inside that are loaded later;
//! * [`needed`]: loads Penstock's libraries before files that would load NVIDIA's from folders of
//!   their own.

pub mod elf;
pub mod loaded;
pub mod needed;
pub mod program;
pub mod redirect;
