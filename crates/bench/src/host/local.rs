//! What a process of a host path computes on: a device behind the OpenCL loader, or a GPU behind CUDA's driver.

use super::cuda::{self, Gpu};
use super::memory::{Room, Span};
use super::opencl::{self, OpenCl};
use crate::error::{Error, Result};

/// The device of this process.
#[derive(Debug)]
pub enum Local {
    /// Behind the OpenCL loader.
    OpenCl(Box<OpenCl>),
    /// Behind CUDA's driver.
    Gpu(Gpu),
}

/// A buffer of the device.
#[derive(Clone, Copy, Debug)]
pub enum Buffer {
    /// Behind the OpenCL loader.
    OpenCl(opencl::Buffer),
    /// Behind CUDA's driver.
    Gpu(cuda::Buffer),
}

/// A command that was not waited for.
#[must_use]
#[derive(Debug)]
pub enum Pending {
    /// Behind the OpenCL loader.
    OpenCl(opencl::Pending),
    /// Behind CUDA's driver.
    Gpu(cuda::Pending),
}

/// What is said of a buffer or command of the other driver: a process has one device.
fn other<T>() -> Result<T> {
    Err(Error::Absent("the device is of another driver".to_owned()))
}

impl Local {
    /// The device of a process: of the first ones a GPU each, of the others the first OpenCL device.
    ///
    /// # Errors
    /// [`Error::Absent`] without a device; the driver's.
    pub fn open(rank: u32, gpus: u32) -> Result<Self> {
        if rank < gpus {
            Gpu::open(rank).map(Self::Gpu)
        } else {
            OpenCl::open().map(Box::new).map(Self::OpenCl)
        }
    }

    /// The device's name.
    ///
    /// # Errors
    /// The driver's.
    pub fn name(&self) -> Result<String> {
        match self {
            Self::OpenCl(device) => device.name(),
            Self::Gpu(device) => device.name(),
        }
    }

    /// Whether the host can map its memory.
    #[must_use]
    pub fn maps(&self) -> bool {
        matches!(self, Self::OpenCl(_))
    }

    /// Readies memory that copies go from and to.
    ///
    /// # Errors
    /// The driver's.
    pub fn lend(&self, room: Room) -> Result<()> {
        match self {
            Self::OpenCl(_) => Ok(()),
            Self::Gpu(device) => device.pin(room),
        }
    }

    /// Makes a buffer.
    ///
    /// # Errors
    /// The driver's.
    pub fn buffer(&self, bytes: usize) -> Result<Buffer> {
        match self {
            Self::OpenCl(device) => device.buffer(bytes).map(Buffer::OpenCl),
            Self::Gpu(device) => device.buffer(bytes).map(Buffer::Gpu),
        }
    }

    /// Copies from the device, and waits.
    ///
    /// # Errors
    /// The driver's.
    pub fn read(&self, from: Buffer, offset: usize, to: Span) -> Result<()> {
        match (self, from) {
            (Self::OpenCl(device), Buffer::OpenCl(from)) => device.read(from, offset, to),
            _ => self.wait(self.start_read(from, offset, to)?),
        }
    }

    /// Copies to the device, and waits.
    ///
    /// # Errors
    /// The driver's.
    pub fn write(&self, to: Buffer, offset: usize, from: Span) -> Result<()> {
        match (self, to) {
            (Self::OpenCl(device), Buffer::OpenCl(to)) => device.write(to, offset, from),
            _ => self.wait(self.start_write(to, offset, from)?),
        }
    }

    /// Starts a copy from the device. The bytes are another's until it has ended.
    ///
    /// # Errors
    /// The driver's.
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

    /// Starts a copy to the device. The bytes stay as they are until it has ended.
    ///
    /// # Errors
    /// The driver's.
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

    /// Starts to map. The bytes are there when it has ended, until [`Local::unmap`].
    ///
    /// # Errors
    /// The driver's; [`Error::Absent`] where it does not map.
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

    /// Starts to unmap.
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
    /// The driver's, the command's own too.
    pub fn wait(&self, pending: Pending) -> Result<()> {
        match (self, pending) {
            (Self::OpenCl(device), Pending::OpenCl(pending)) => device.wait(pending),
            (Self::Gpu(device), Pending::Gpu(pending)) => device.wait(pending),
            _ => other(),
        }
    }

    /// Lets the device begin.
    ///
    /// # Errors
    /// The driver's.
    pub fn flush(&self) -> Result<()> {
        match self {
            Self::OpenCl(device) => device.flush(),
            // Streams start by themselves.
            Self::Gpu(_) => Ok(()),
        }
    }

    /// Waits for all.
    ///
    /// # Errors
    /// The driver's.
    pub fn finish(&self) -> Result<()> {
        match self {
            Self::OpenCl(device) => device.finish(),
            Self::Gpu(device) => device.finish(),
        }
    }

    /// Launches a kernel that does nothing, and waits for it.
    ///
    /// # Errors
    /// The driver's.
    pub fn dummy(&self) -> Result<()> {
        match self {
            Self::OpenCl(device) => device.dummy(),
            Self::Gpu(device) => device.dummy(),
        }
    }
}
