//! What a driver must be able to do, and the objects over it.
//!
//! [`crate::opencl`] and [`crate::cuda`] implement these traits. The code above checks everything
//! that a client may have got wrong: sizes, ranges, regions, and whether the objects of a command
//! belong together. So a driver gets only ranges that lie within their objects. Default methods
//! answer for drivers that lack a feature.

use std::any::Any;
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use penstock_wire::IndexSpace;
use penstock_wire::cuda;
use penstock_wire::describe::{BuildReport, ImageDescription, Info, Timers};
use penstock_wire::library::Libraries;
use penstock_wire::status::Status;

use crate::account::Share;
use crate::command::{Command, Source};
use crate::event::{Event, Reading};
use crate::home::{HostMemory, Mapping};
use crate::staging::Staged;

/// Receiver of the errors of a context, on any thread.
pub(crate) type Notify = Box<dyn Fn(&str) + Send + Sync>;

const REFUSED: Status = Status::INVALID_OPERATION;

pub(crate) trait PlatformDriver: Any + Send + Sync {
    fn name(&self) -> String;

    /// Returns the answers of `clGetPlatformInfo`.
    fn info(&self) -> Info;

    /// Returns the devices of all types. Called once.
    fn devices(&self) -> Vec<Box<dyn DeviceDriver>>;

    /// Makes a context over at least one device of this platform.
    fn context(&self, devices: &[Device], notify: Notify)
    -> Result<Box<dyn ContextDriver>, Status>;

    fn unload_compiler(&self) {}

    /// See [`Platform::is_cuda`].
    fn is_cuda(&self) -> bool {
        false
    }
}

/// Limits that are needed for each buffer or launch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limits {
    /// Largest size of a buffer.
    pub(crate) allocation: u64,
    /// Alignment of buffers in bytes.
    pub(crate) alignment: usize,
    /// Size of the local memory.
    pub(crate) local: u64,
    /// Size of the memory.
    pub(crate) memory: u64,
}

pub(crate) trait DeviceDriver: Any + Send + Sync {
    /// Returns a number that tells the device from all others of this process.
    fn number(&self) -> usize;

    fn name(&self) -> String;

    /// Returns the answers of `clGetDeviceInfo`, without handles.
    fn info(&self) -> Info;

    fn limits(&self) -> Limits;

    /// Returns the supported bits of `CL_QUEUE_PROPERTIES`.
    fn queue_properties(&self) -> u64;

    /// Whether it is worth a test whether kernels and this process see the same memory.
    fn may_share_host_memory(&self) -> bool {
        false
    }

    fn has_svm(&self) -> bool {
        false
    }

    /// See [`Device::must_not_wait`].
    fn must_not_wait(&self) -> bool {
        false
    }

    fn sub_devices(&self, _properties: &[i64]) -> Result<Vec<Box<dyn DeviceDriver>>, Status> {
        Err(Status::INVALID_VALUE)
    }

    fn timers(&self) -> Result<Timers, Status>;

    /// Returns the calls that queues of the device take as [`Command::Library`]; `None` if there
    /// are none.
    fn libraries(&self) -> Option<Libraries> {
        None
    }

    /// Whether queues of the device take [`Command::Task`].
    fn runs_tasks(&self) -> bool {
        false
    }

    /// Returns what CUDA's driver reports, if the device is a GPU that this driver drives.
    fn gpu(&self) -> Option<cuda::GpuDescription> {
        None
    }
}

/// Returns a new number for a context.
pub(crate) fn next_context_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Memory for a new buffer.
pub(crate) enum Backing {
    /// Memory of the device, which the driver allocates and clears. The driver keeps the share
    /// until the memory is free again.
    Device(Share),
    /// Memory of this process. The driver keeps both values until it no longer uses the memory.
    Home(Mapping, Option<Share>),
}

pub(crate) trait ContextDriver: Any + Send + Sync {
    fn id(&self) -> u64;

    fn user_event(&self) -> Result<Event, Status>;

    /// `size` is `CL_QUEUE_SIZE`, or 0 if there is none.
    fn queue(
        &self,
        device: &Device,
        properties: u64,
        size: u32,
    ) -> Result<Box<dyn QueueDriver>, Status>;

    /// As [`ContextDriver::queue`], for a queue that shares its work with others of its kind.
    fn transfer_queue(
        &self,
        device: &Device,
        properties: u64,
    ) -> Result<Box<dyn QueueDriver>, Status> {
        self.queue(device, properties, 0)
    }

    fn buffer(
        &self,
        flags: u64,
        bytes: usize,
        backing: Backing,
    ) -> Result<Box<dyn MemDriver>, Status>;

    /// Makes a buffer in host memory that the device accesses at addresses of its own.
    fn mapped(
        &self,
        _bytes: usize,
        _memory: Box<dyn HostMemory>,
    ) -> Result<Box<dyn MemDriver>, Status> {
        Err(REFUSED)
    }

    /// Makes a buffer of a variable of a module, or of a part of one.
    fn variable(&self, _address: u64, _bytes: usize) -> Result<Box<dyn MemDriver>, Status> {
        Err(REFUSED)
    }

    fn pipe(
        &self,
        _flags: u64,
        _packet_size: u32,
        _packets_max: u32,
    ) -> Result<Box<dyn MemDriver>, Status> {
        Err(REFUSED)
    }

    /// Makes an image, and returns the bytes per element.
    fn image(
        &self,
        _flags: u64,
        _description: &ImageDescription,
        _parent: Option<&Mem>,
        _share: Option<Share>,
    ) -> Result<(Box<dyn MemDriver>, u64), Status> {
        Err(REFUSED)
    }

    fn image_formats(&self, _flags: u64, _image_type: u32) -> Result<Vec<(u32, u32)>, Status> {
        Ok(Vec::new())
    }

    fn sampler(&self, _properties: &[u64]) -> Result<Box<dyn SamplerDriver>, Status> {
        Err(REFUSED)
    }

    fn program_with_source(&self, _source: &[u8]) -> Result<Box<dyn ProgramDriver>, Status> {
        Err(Status::COMPILER_NOT_AVAILABLE)
    }

    /// `binaries` has at least one entry, and no binary is empty. `codes` has a place for the code
    /// of each.
    fn program_with_binaries(
        &self,
        binaries: &[(Device, Vec<u8>)],
        codes: &mut [i32],
    ) -> Result<Box<dyn ProgramDriver>, Status>;

    fn program_with_il(&self, _il: &[u8]) -> Result<Box<dyn ProgramDriver>, Status> {
        Err(REFUSED)
    }

    fn program_with_built_in(
        &self,
        _devices: &[Device],
        _names: &str,
    ) -> Result<Box<dyn ProgramDriver>, Status> {
        Err(Status::INVALID_VALUE)
    }

    fn link(
        &self,
        _devices: &[Device],
        _options: Option<&str>,
        _inputs: &[Program],
    ) -> (Result<(), Status>, Option<Box<dyn ProgramDriver>>) {
        (Err(Status::LINKER_NOT_AVAILABLE), None)
    }
}

pub(crate) trait MemDriver: Any + Send + Sync {
    /// Makes a sub-buffer of a range that lies within the buffer.
    fn part(&self, flags: u64, offset: usize, bytes: usize) -> Result<Box<dyn MemDriver>, Status>;

    /// Writes to a range that lies within the buffer. Blocks, but not for pending commands.
    fn init(&self, offset: usize, bytes: &[u8]) -> Result<(), Status>;

    /// Writes to a region that lies within the image and has this size.
    fn init_image(
        &self,
        _origin: [usize; 3],
        _region: [usize; 3],
        _bytes: &[u8],
    ) -> Result<(), Status> {
        Err(REFUSED)
    }

    /// Sets a region from the origin to zero.
    fn clear_image(&self, _region: [usize; 3]) -> Result<(), Status> {
        Err(REFUSED)
    }

    /// Returns the address of the first byte for kernels.
    fn device_address(&self) -> Result<u64, Status>;
}

/// Whether a command gets an event. Without one it is cheaper. [`Queue::on_failure`] says which
/// later failures are told then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    Event,
    Nothing,
}

/// Hears of the failures of a queue's commands, on any thread.
pub type Failed = Arc<dyn Fn(Status) + Send + Sync>;

pub(crate) trait QueueDriver: Any + Send + Sync {
    /// Enqueues a command. All events of the wait list belong to the queue's context. The result is
    /// `Some` exactly if an event is wanted.
    fn enqueue(
        &self,
        command: Command<'_>,
        waits: &[&Event],
        want: Want,
    ) -> Result<Option<Event>, Status>;

    /// Enqueues a read that fills `into`.
    fn read(&self, source: &Source<'_>, into: Staged, waits: &[&Event]) -> Result<Reading, Status>;

    fn flush(&self) -> Result<(), Status>;

    fn finish(&self) -> Result<(), Status>;

    /// See [`Queue::on_failure`]. Called at most once, before the first command.
    fn on_failure(&self, _failed: &Failed) {}

    /// See [`Queue::reclaim`].
    fn reclaim(&self) {}
}

pub(crate) trait ProgramDriver: Any + Send + Sync {
    fn build(&self, devices: &[Device], options: Option<&str>) -> Result<(), Status>;

    fn compile(
        &self,
        _devices: &[Device],
        _options: Option<&str>,
        _headers: &[(String, Program)],
    ) -> Result<(), Status> {
        Err(Status::COMPILER_NOT_AVAILABLE)
    }

    fn set_spec_constant(&self, _id: u32, _value: &[u8]) -> Result<(), Status> {
        Err(Status::INVALID_PROGRAM)
    }

    /// See [`Program::shows_arg_info`].
    fn shows_arg_info(&self) -> bool {
        false
    }

    /// See [`Program::name_variables`].
    fn name_variables(&self, _names: Option<Vec<String>>) {}

    fn report(&self, status: Result<(), Status>, devices: &[(u32, Device)]) -> BuildReport;

    fn load_report(&self, devices: &[(u32, Device)]) -> Vec<(u32, Info)>;

    fn binaries(&self, devices: &[(u32, Device)]) -> Result<Vec<(u32, Vec<u8>)>, Status>;

    fn kernel(&self, name: &str) -> Result<Box<dyn KernelDriver>, Status>;
}

/// An argument of a kernel.
#[derive(Clone, Copy, Debug)]
pub enum Arg<'a> {
    /// A value, as the device sees it.
    Bytes(&'a [u8]),
    /// A memory object or `NULL`.
    Mem(Option<&'a Mem>),
    Sampler(&'a Sampler),
    /// Local memory of this size in bytes.
    Local(u64),
    /// An address in shared virtual memory.
    Svm(u64),
    /// A queue on the device.
    Queue(&'a Queue),
}

pub(crate) trait KernelDriver: Any + Send + Sync {
    fn duplicate(&self) -> Result<Box<dyn KernelDriver>, Status>;

    fn set(&self, index: u32, arg: Arg<'_>) -> Result<(), Status>;

    fn set_exec_info(&self, _name: u32, _value: &[u8]) -> Result<(), Status> {
        Err(REFUSED)
    }

    fn arg_count(&self) -> usize;

    fn work_group_info(&self, device: &Device, name: u32) -> Result<Vec<u8>, Status>;

    fn sub_group_info(
        &self,
        _device: &Device,
        _name: u32,
        _input: &[u8],
        _output_bytes: usize,
    ) -> Result<Vec<u8>, Status> {
        Err(REFUSED)
    }

    /// See [`Kernel::suggested_local_size`]. The space has passed [`IndexSpace::checked`].
    fn suggested_local_size(
        &self,
        _queue: &Queue,
        _space: &IndexSpace,
    ) -> Result<[u64; 3], Status> {
        Err(REFUSED)
    }

    /// See [`Kernel::resident_groups`].
    fn resident_groups(&self, _work_items: u32) -> Result<u64, Status> {
        Err(Status::INVALID_VALUE)
    }
}

pub(crate) trait SamplerDriver: Any + Send + Sync {}

macro_rules! objects {
    ($($(#[$doc:meta])* $name:ident($parts:ident, $driver:ident);)*) => {$(
        $(#[$doc])*
        #[derive(Clone)]
        pub struct $name(pub(crate) Arc<$parts>);

        impl $name {
            /// Returns the driver's object if it is of this kind.
            #[allow(dead_code, reason = "not every driver needs every kind of object")]
            pub(crate) fn driver<T: $driver>(&self) -> Result<&T, Status> {
                let any: &dyn Any = self.0.driver.as_ref();
                any.downcast_ref().ok_or(Status::INVALID_CONTEXT)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    )*};
}

objects! {
    /// A platform of the node. Cheap to clone.
    Platform(PlatformParts, PlatformDriver);
    /// A device or sub-device. Cheap to clone; clones of the same device are equal.
    Device(DeviceParts, DeviceDriver);
    /// A context: devices of one platform that share objects. Cheap to clone.
    Context(ContextParts, ContextDriver);
    /// A command queue. Cheap to clone.
    ///
    /// For all commands: `waits` must be events of the queue's context. The result is `Some`
    /// exactly if an event is wanted. The error `CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST`
    /// means that an event of the wait list has already failed, so the command will never run.
    Queue(QueueParts, QueueDriver);
    /// A buffer, sub-buffer, image, pipe or SVM allocation. Cheap to clone. The driver's object
    /// lives until the last clone is dropped and all commands that use it have ended.
    Mem(MemParts, MemDriver);
    Program(ProgramParts, ProgramDriver);
    /// A kernel object. A clone refers to the same object, see [`Kernel::duplicate`].
    Kernel(KernelParts, KernelDriver);
    Sampler(SamplerParts, SamplerDriver);
}

pub(crate) struct PlatformParts {
    pub(crate) driver: Box<dyn PlatformDriver>,
    /// Kept, so that each device is one object, whose tests run once.
    pub(crate) devices: OnceLock<Vec<Device>>,
}

pub(crate) struct DeviceParts {
    pub(crate) driver: Box<dyn DeviceDriver>,
    pub(crate) platform: Platform,
    pub(crate) shares_host_memory: OnceLock<bool>,
}

pub(crate) struct ContextParts {
    pub(crate) driver: Box<dyn ContextDriver>,
    pub(crate) id: u64,
    pub(crate) platform: Platform,
    pub(crate) devices: Vec<Device>,
    pub(crate) shares_host_memory: OnceLock<bool>,
}

pub(crate) struct QueueParts {
    // Dropped before its context.
    pub(crate) driver: Box<dyn QueueDriver>,
    pub(crate) context: Context,
    pub(crate) device: Device,
    pub(crate) properties: u64,
    pub(crate) failed: OnceLock<Failed>,
}

pub(crate) struct MemParts {
    // Dropped before its context and its parent.
    pub(crate) driver: Box<dyn MemDriver>,
    pub(crate) context: Context,
    pub(crate) kind: MemKind,
    pub(crate) size: u64,
    /// Home memory of the object itself or, for a sub-buffer, of its parent.
    pub(crate) home: Option<HomeOf>,
    /// The object that this one was made from, kept for its home memory.
    pub(crate) _parent: Option<Mem>,
}

/// Kind of a memory object.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MemKind {
    Buffer,
    Image(Shape),
    Pipe,
}

/// Shape that regions of an image are checked against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Region of the whole image: elements, rows (or layers of a 1D array), slices (or layers).
    pub(crate) whole: [u64; 3],
    /// Number of bytes per element.
    pub(crate) pixel: u64,
}

/// Location of home memory. It is unmapped when the driver has deleted the object, not before.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HomeOf {
    pub(crate) start: NonNull<u8>,
    pub(crate) mapped: usize,
    pub(crate) offset: usize,
}

// SAFETY: this is only the address of a mapping, which any thread may use.
unsafe impl Send for HomeOf {}
// SAFETY: as above.
unsafe impl Sync for HomeOf {}

pub(crate) struct ProgramParts {
    // Dropped before its context.
    pub(crate) driver: Box<dyn ProgramDriver>,
    pub(crate) _context: Context,
}

pub(crate) struct KernelParts {
    // Dropped before its program.
    pub(crate) driver: Box<dyn KernelDriver>,
    pub(crate) program: Program,
    pub(crate) name: Arc<str>,
}

pub(crate) struct SamplerParts {
    // Dropped before its context.
    pub(crate) driver: Box<dyn SamplerDriver>,
    pub(crate) _context: Context,
}
