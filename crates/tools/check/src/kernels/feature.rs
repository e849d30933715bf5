//! Features of kernels. Without any, they compute with 32-bit registers.

use std::fmt::Debug;

use serde::{Deserialize, Serialize};

use crate::feature::{Named, features};

features! { "Something that kernels may contain." Feature {
    Branches "branches" "branches, also of some threads only",
    Loops "loops" "loops, also with turns of some threads only",
    Exits "exits" "threads that end early",
    Barriers "barriers" "barriers of the block, and shared memory",
    Warps "warps" "shuffles, votes, matches and reductions of the lanes of a warp",
    Atomics "atomics" "atomic instructions",
    Memory "memory" "words of global memory in parts",
    Wide "wide" "instructions on 8, 16 and 64 bits",
    Floats "floats" "instructions on floats",
    Calls "calls" "functions",
}}
