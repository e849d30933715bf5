//! Grid and block of a launch.

use penstock_client::IndexSpace;

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
    pub(super) fn space(&self) -> IndexSpace {
        let global = [0, 1, 2].map(|axis| u64::from(self.grid[axis]) * u64::from(self.block[axis]));
        IndexSpace { dims: 3, offset: [0; 3], global, local: Some(self.block.map(u64::from)) }
    }
}
