//! What the hosts of heaps do differently.

use std::fmt::Display;

use penstock_link::Stream;

use super::error::HostError;
use crate::error::HeapError;
use crate::heap::View;

/// Performs the handshake with a member over a connected and authenticated stream.
pub type Join<'a> = dyn FnMut(u32, Stream) -> Result<(), HeapError> + 'a;

/// The process around a [`super::HeapHost`]: its devices and its ways to other processes.
pub trait HeapSite {
    /// How another member, or all of them, can be reached.
    type Route;
    /// Device that runs the kernels of a PE.
    type Device;
    /// The device's memory objects for a PE.
    type Memory;
    /// Reason why the device cannot use the memory.
    type BindError: Display;

    /// Checks, before any memory is made, that a device can be a PE.
    ///
    /// # Errors
    /// Returns the reason why the device cannot use the memory of a heap.
    fn check(&self, _device: &Self::Device) -> Result<(), Self::BindError> {
        Ok(())
    }

    /// Connects to the members of `route`, and passes each stream to `join`. May block for as long
    /// as a handshake takes.
    ///
    /// # Errors
    /// A member cannot be reached, or `join` fails.
    fn connect(&self, route: Self::Route, join: &mut Join<'_>) -> Result<(), HostError>;

    /// Makes memory objects of a PE's view and of its own part.
    ///
    /// # Errors
    /// Returns the reason of the device.
    fn bind(&self, device: &Self::Device, view: View) -> Result<Self::Memory, Self::BindError>;

    /// Reports a fault of which no caller is told.
    fn report(&self, fault: &HostError);
}
