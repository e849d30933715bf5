//! Grid and block of a launch.

use penstock_client::Space;

/// Grid and block of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LaunchShape {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    /// Dynamic shared memory, in bytes.
    pub(crate) dynamic: u32,
}

impl LaunchShape {
    /// Returns the shape as an index space of the pool.
    pub(super) fn space(&self) -> Space {
        let global = [0, 1, 2].map(|axis| u64::from(self.grid[axis]) * u64::from(self.block[axis]));
        (3, [0; 3], global, Some(self.block.map(u64::from)))
    }
}
