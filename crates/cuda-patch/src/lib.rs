//! Programs that were linked with CUDA's runtime statically.
//!
//! Such a program has NVIDIA's runtime inside, which asks a driver for tables that are documented nowhere. But the names of its functions are
//! still in the program's symbol table, unless that was stripped. So a small library, loaded before the program runs (`LD_PRELOAD`), has each
//! of these functions begin with a jump to the function of the same name in Penstock's `libcudart.so` of the program's version.
//!
//! The same library has NVRTC give a program that asks it for machine code the PTX that this was made of (`tools/cuda/patch.c`).
//!
//! * [`program`]: what a program has inside, found in its file alone; `penstock run` asks it, too;
//! * [`redirect`]: the jumps;
//! * [`loaded`]: libraries with a runtime inside, loaded later.

pub mod elf;
pub mod loaded;
pub mod program;
pub mod redirect;
