//! The device of a process of a host path: one behind the OpenCL loader, or a GPU behind CUDA's
//! driver.

use super::cuda::{self, Gpu};
use super::memory::{Room, Span};
use super::opencl::{self, OpenCl};
use crate::error::{Error, Result};

/// The device of this process.
#[derive(Debug)]
pub enum Local {
    /// A device behind the OpenCL loader.
    OpenCl(Box<OpenCl>),
    /// A GPU behind CUDA's driver.
    Gpu(Gpu),
}

/// A buffer of the device.
#[derive(Clone, Copy, Debug)]
pub enum Buffer {
    OpenCl(opencl::Buffer),
    Gpu(cuda::Buffer),
}

/// A command that has not been waited for.
#[must_use]
#[derive(Debug)]
pub enum Pending {
    OpenCl(opencl::Pending),
    Gpu(cuda::Pending),
}

/// Error for a buffer or command of the other driver. A process has only one device.
fn other<T>() -> Result<T> {
    Err(Error::Absent("the device is of another driver".to_owned()))
}

impl Local {
    /// Opens the device of a process: a GPU for each of the first `gpus` ranks, the first OpenCL
    /// device for the others.
    ///
    /// # Errors
    /// Returns [`Error::Absent`] without a device, otherwise the driver's error.
    pub fn open(rank: u32, gpus: u32) -> Result<Self> {
        if rank < gpus {
            Gpu::open(rank).map(Self::Gpu)
        } else {
            OpenCl::open().map(Box::new).map(Self::OpenCl)
        }
    }

    /// Returns the device's name.
    ///
    /// # Errors
    /// Returns the driver's error.
    pub fn name(&self) -> Result<String> {
        match self {
            Self::OpenCl(device) => device.name(),
            Self::Gpu(device) => device.name(),
        }
    }

    /// Whether the host can map the device's memory.
    #[must_use]
    pub fn maps(&self) -> bool {
        matches!(self, Self::OpenCl(_))
    }

    /// Prepares host memory for copies.
    ///
    /// # Errors
    /// Returns the driver's error.
    pub fn lend(&self, room: Room) -> Result<()> {
        match self {
            Self::OpenCl(_) => Ok(()),
            Self::Gpu(device) => device.pin(room),
        }
    }

    /// Allocates device memory.
    ///
    /// # Errors
    /// Returns the driver's error.
    pub fn buffer(&self, bytes: usize) -> Result<Buffer> {
        match self {
            Self::OpenCl(device) => device.buffer(bytes).map(Buffer::OpenCl),
            Self::Gpu(device) => device.buffer(bytes).map(Buffer::Gpu),
        }
    }

    /// Copies from the device and waits.
    ///
    /// # Errors
    /// Returns the driver's error.
    pub fn read(&self, from: Buffer, offset: usize, to: Span) -> Result<()> {
        match (self, from) {
            (Self::OpenCl(device), Buffer::OpenCl(from)) => device.read(from, offset, to),
            _ => self.wait(self.start_read(from, offset, to)?),
        }
    }

    /// Copies to the device and waits.
    ///
    /// # Errors
    /// Returns the driver's error.
    pub fn write(&self, to: Buffer, offset: usize, from: Span) -> Result<()> {
        match (self, to) {
            (Self::OpenCl(device), Buffer::OpenCl(to)) => device.write(to, offset, from),
            _ => self.wait(self.start_write(to, offset, from)?),
        }
    }

    /// Starts a copy from the device. `to` must not be used until the copy has ended.
    ///
    /// # Errors
    /// Returns the driver's error.
    pub fn start_read(&self, from: Buffer, offset: usize, to: Span) -> Result<Pending> {
        match (self, from) {
            (Self::OpenCl(device), Buffer::OpenCl(from)) => {
                device.start_read(from, offset, to).map(Pending::OpenCl)
            }
            (Self::Gpu(device), Buffer::Gpu(from)) => {
                device.start_read(from, offset, to).map(Pending::Gpu)
            }
            _ => other(),
        }
    }

    /// Starts a copy to the device. `from` must not change until the copy has ended.
    ///
    /// # Errors
    /// Returns the driver's error.
    pub fn start_write(&self, to: Buffer, offset: usize, from: Span) -> Result<Pending> {
        match (self, to) {
            (Self::OpenCl(device), Buffer::OpenCl(to)) => {
                device.start_write(to, offset, from).map(Pending::OpenCl)
            }
            (Self::Gpu(device), Buffer::Gpu(to)) => {
                device.start_write(to, offset, from).map(Pending::Gpu)
            }
            _ => other(),
        }
    }

    /// Starts to map a part of a buffer. The bytes are valid from the command's end until
    /// [`Local::unmap`].
    ///
    /// # Errors
    /// Returns [`Error::Absent`] if the device cannot map, otherwise the driver's error.
    pub fn start_map(
        &self,
        buffer: Buffer,
        offset: usize,
        bytes: usize,
        writes: bool,
    ) -> Result<(Span, Pending)> {
        let (Self::OpenCl(device), Buffer::OpenCl(buffer)) = (self, buffer) else { return other() };
        let (span, pending) = device.start_map(buffer, offset, bytes, writes)?;
        Ok((span, Pending::OpenCl(pending)))
    }

    /// Starts to unmap a part of a buffer.
    ///
    /// # Errors
    /// As [`Local::start_map`].
    pub fn unmap(&self, buffer: Buffer, span: Span) -> Result<()> {
        let (Self::OpenCl(device), Buffer::OpenCl(buffer)) = (self, buffer) else { return other() };
        device.unmap(buffer, span)
    }

    /// Waits for a command.
    ///
    /// # Errors
    /// Returns the driver's error, or that of the command.
    pub fn wait(&self, pending: Pending) -> Result<()> {
        match (self, pending) {
            (Self::OpenCl(device), Pending::OpenCl(pending)) => device.wait(pending),
            (Self::Gpu(device), Pending::Gpu(pending)) => device.wait(pending),
            _ => other(),
        }
    }

    /// Makes the device start its commands.
    ///
    /// # Errors
    /// Returns the driver's error.
    pub fn flush(&self) -> Result<()> {
        match self {
            Self::OpenCl(device) => device.flush(),
            // Streams start by themselves.
            Self::Gpu(_) => Ok(()),
        }
    }

    /// Waits for all commands.
    ///
    /// # Errors
    /// Returns the driver's error.
    pub fn finish(&self) -> Result<()> {
        match self {
            Self::OpenCl(device) => device.finish(),
            Self::Gpu(device) => device.finish(),
        }
    }

    /// Launches an empty kernel and waits for it.
    ///
    /// # Errors
    /// Returns the driver's error.
    pub fn dummy(&self) -> Result<()> {
        match self {
            Self::OpenCl(device) => device.dummy(),
            Self::Gpu(device) => device.dummy(),
        }
    }
}
