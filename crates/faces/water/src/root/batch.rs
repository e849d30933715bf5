//! Closes batches, and plans them in slices.

use super::Root;
use super::mode::Mode;
use super::planning::Planning;

impl Root {
    /// Closes the batch, unless one is still being planned, and plans `slice` commands of it.
    /// Returns whether there are more.
    pub fn close_batch(&mut self, slice: usize) -> bool {
        let mut planning = match self.planning.take() {
            Some(planning) => planning,
            None => {
                self.batch_bytes = 0;
                let batch = std::mem::take(&mut self.batch);
                // With one rank there is nobody to send to.
                if self.mode == Mode::Off || self.ranks() == 1 {
                    Planning::one_by_one(batch)
                } else {
                    self.look_together(batch)
                }
            }
        };
        self.clock.charge(planning.left().min(slice), 0);
        if self.plan_next(&mut planning, slice) {
            self.planning = Some(planning);
            return true;
        }
        self.feeders.clear();
        self.fed_by.clear();
        false
    }
}
