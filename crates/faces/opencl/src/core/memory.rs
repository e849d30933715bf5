//! Memory objects: buffers, images and pipes.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, MutexGuard, OnceLock};

use penstock_cl_sys::*;
use penstock_client::{Memory, Want};
use penstock_process::Lock;

use super::context::Context;
use super::image::Image;
use super::mapping::Maps;
use super::shadow::Pages;
use crate::edge::{ClError, ClResult, Object, Ref, require};

/// Flags for the access of kernels.
pub(crate) const KERNEL_FLAGS: cl_mem_flags =
    CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY | CL_MEM_READ_ONLY;
/// Flags for the access of the host.
pub(crate) const HOST_FLAGS: cl_mem_flags =
    CL_MEM_HOST_WRITE_ONLY | CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS;
/// Flags about host memory.
pub(crate) const POINTER_FLAGS: cl_mem_flags =
    CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR;

/// Object behind a `cl_mem`.
pub(crate) struct Mem {
    pub(crate) pool: Arc<Memory>,
    pub(crate) context: Ref<Context>,
    pub(crate) kind: Kind,
    /// The program's flags, with defaults filled in.
    pub(crate) flags: cl_mem_flags,
    /// Size in bytes: `CL_MEM_SIZE`.
    pub(crate) size: usize,
    /// Address that the program gave with `CL_MEM_USE_HOST_PTR`, or 0.
    pub(crate) host_ptr: usize,
    /// Buffer of which this is a sub-buffer, or object of which this is a view.
    pub(crate) parent: Option<Ref<Mem>>,
    /// Offset in the parent in bytes.
    pub(crate) origin: usize,
    /// `CL_MEM_PROPERTIES`: the program's list with its final 0; empty for `NULL`.
    pub(crate) properties: Vec<cl_mem_properties>,
    /// Shared virtual memory that contains `host_ptr`, and which is then the content.
    pub(crate) svm: Option<Arc<super::area::Area>>,
    shadow: OnceLock<Pages>,
    maps: Lock<Maps>,
    destructors: Lock<Vec<Box<dyn FnOnce() + Send>>>,
}

/// Kind of memory object.
#[derive(Debug)]
pub(crate) enum Kind {
    /// A buffer or a sub-buffer.
    Buffer,
    Image(Image),
    Pipe {
        /// Size of a packet in bytes.
        packet_size: cl_uint,
        /// Maximum number of packets in the pipe.
        packets_max: cl_uint,
    },
    /// Symmetric heap (`cl_penstock_global_buffer`); its size is that of each device's part.
    Heap(Arc<penstock_client::Heap>),
}

impl Object for Mem {
    type Raw = _cl_mem;
    const INVALID: cl_int = CL_INVALID_MEM_OBJECT;
}

impl Mem {
    pub(crate) fn new(
        pool: Arc<Memory>,
        context: Ref<Context>,
        kind: Kind,
        flags: cl_mem_flags,
        size: usize,
    ) -> Self {
        Self {
            pool,
            context,
            kind,
            flags,
            size,
            host_ptr: 0,
            parent: None,
            origin: 0,
            properties: Vec::new(),
            svm: None,
            shadow: OnceLock::new(),
            maps: Lock::default(),
            destructors: Lock::default(),
        }
    }

    /// Returns the image, or `CL_INVALID_MEM_OBJECT` if the object is none.
    pub(crate) fn image(&self) -> ClResult<&Image> {
        match &self.kind {
            Kind::Image(image) => Ok(image),
            _ => Err(ClError(CL_INVALID_MEM_OBJECT)),
        }
    }

    /// Returns the object's `CL_MEM_TYPE`.
    pub(crate) fn object_type(&self) -> cl_mem_object_type {
        match &self.kind {
            Kind::Buffer | Kind::Heap(_) => CL_MEM_OBJECT_BUFFER,
            Kind::Image(image) => image.image_type,
            Kind::Pipe { .. } => CL_MEM_OBJECT_PIPE,
        }
    }

    /// Returns the object's `CL_MEM_USES_SVM_POINTER`.
    pub(crate) fn uses_svm(&self) -> bool {
        self.svm.is_some() || self.parent.as_ref().is_some_and(|parent| parent.uses_svm())
    }

    /// Checks a range of a buffer.
    pub(crate) fn range(&self, offset: usize, size: usize) -> ClResult<penstock_client::Range> {
        // "CL_INVALID_VALUE if the region being read or written specified by (offset, size) is out
        // of bounds"
        let end = offset.checked_add(size).ok_or(ClError(CL_INVALID_VALUE))?;
        require(end <= self.size, CL_INVALID_VALUE)?;
        Ok(penstock_client::Range { offset: offset as u64, size: size as u64 })
    }

    /// Checks that the host may read the object.
    pub(crate) fn host_reads(&self) -> ClResult {
        // "CL_INVALID_OPERATION if clEnqueueReadBuffer is called on buffer which has been created
        // with CL_MEM_HOST_WRITE_ONLY or CL_MEM_HOST_NO_ACCESS."
        require(
            self.flags & (CL_MEM_HOST_WRITE_ONLY | CL_MEM_HOST_NO_ACCESS) == 0,
            CL_INVALID_OPERATION,
        )
    }

    /// Checks that the host may write the object.
    pub(crate) fn host_writes(&self) -> ClResult {
        // "CL_INVALID_OPERATION if clEnqueueWriteBuffer is called on buffer which has been created
        // with CL_MEM_HOST_READ_ONLY or CL_MEM_HOST_NO_ACCESS."
        require(
            self.flags & (CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS) == 0,
            CL_INVALID_OPERATION,
        )
    }

    /// Returns the address of the object's first byte in host memory, for maps. It is constant as
    /// long as the object lives.
    pub(crate) fn host_address(&self) -> ClResult<*mut u8> {
        // "The pointer returned maps a region starting at offset and is ... derived from host_ptr"
        // for an object that was created with one.
        if self.host_ptr != 0 {
            return Ok(std::ptr::with_exposed_provenance_mut(self.host_ptr));
        }
        if let Some(parent) = &self.parent {
            return Ok(parent.host_address()?.wrapping_add(self.origin));
        }
        if let Some(content) = self.pool.shared_pointer() {
            return Ok(content.as_ptr());
        }
        if let Some(pages) = self.shadow.get() {
            return Ok(pages.address());
        }
        let pages = Pages::anywhere(self.host_size())?;
        Ok(self.shadow.get_or_init(|| pages).address())
    }

    /// Returns whether the object's memory in this process is the memory that the device works on,
    /// so that a map moves nothing.
    pub(crate) fn is_shared(&self) -> bool {
        let own = self.host_ptr == 0 && self.pool.shared_pointer().is_some();
        own && self.parent.as_ref().is_none_or(|parent| parent.host_ptr == 0)
    }

    /// Returns the object's size in host memory in bytes.
    fn host_size(&self) -> usize {
        match &self.kind {
            Kind::Image(image) => {
                image.host.end(image.host_region(image.extent)).unwrap_or(self.size)
            }
            _ => self.size,
        }
    }

    /// Locks and returns the mapped regions.
    pub(crate) fn maps(&self) -> MutexGuard<'_, Maps> {
        self.maps.lock()
    }

    /// Implements the function `clSetMemObjectDestructorCallback`.
    pub(crate) fn on_destruction(&self, callback: Box<dyn FnOnce() + Send>) {
        self.destructors.lock().push(callback);
    }
}

/// Returns the object at the end of the chain of parents. Objects with the same root share memory.
pub(crate) fn root(mem: &Ref<Mem>) -> &Ref<Mem> {
    mem.parent.as_ref().map_or(mem, root)
}

/// Returns a reference that keeps an object alive until a read into its host memory has ended.
pub(crate) fn keep(mem: &Ref<Mem>) -> Option<Arc<dyn Any + Send + Sync>> {
    Some(mem.clone())
}

impl Drop for Mem {
    fn drop(&mut self) {
        let destructors = std::mem::take(self.destructors.get_mut());
        if destructors.is_empty() {
            return;
        }
        let context = self.context.clone();
        // Another thread does this, because the last reference may be that of a command which is
        // being sent while its queue is locked.
        penstock_client::send_later(Box::new(move || {
            after_commands(&context, move || {
                // "The registered callback functions are called in the reverse order in which they
                // were registered."
                for destructor in destructors.into_iter().rev() {
                    destructor();
                }
            });
        }));
    }
}

/// Runs `run` when all commands of a context so far have ended. "... the memory object is deleted
/// after ... commands queued for execution on a command-queue(s) that use memobj have finished":
/// only the workers know which commands use the object.
fn after_commands(context: &Context, run: impl FnOnce() + Send + 'static) {
    let mut markers = Vec::new();
    for queue in context.queues() {
        // The commands of a lost node have ended.
        if let Ok(Some(marker)) = queue.pool.marker(None, &[], Want::Event) {
            _ = queue.pool.flush();
            markers.push(marker);
        }
    }
    if markers.is_empty() {
        return run();
    }
    // The marker that ends last drops the last reference.
    let last = Arc::new(RunOnDrop(Lock::new(Some(run))));
    for marker in markers {
        let last = last.clone();
        marker.on_complete(move |_| drop(last));
    }
}

struct RunOnDrop<F: FnOnce()>(Lock<Option<F>>);

impl<F: FnOnce()> Drop for RunOnDrop<F> {
    fn drop(&mut self) {
        if let Some(run) = self.0.get_mut().take() {
            run();
        }
    }
}

impl fmt::Debug for Mem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mem")
            .field("kind", &self.kind)
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

/// Checks the `cl_mem_flags` of a new object and fills in the default.
pub(crate) fn check_flags(flags: cl_mem_flags) -> ClResult<cl_mem_flags> {
    const KNOWN: cl_mem_flags =
        KERNEL_FLAGS | HOST_FLAGS | POINTER_FLAGS | CL_MEM_KERNEL_READ_AND_WRITE;
    // "CL_INVALID_VALUE if values specified in flags are not valid"
    require(flags & !KNOWN == 0, CL_INVALID_VALUE)?;
    // "CL_MEM_READ_WRITE, CL_MEM_WRITE_ONLY, and CL_MEM_READ_ONLY are mutually exclusive."
    require((flags & KERNEL_FLAGS).count_ones() <= 1, CL_INVALID_VALUE)?;
    // "CL_MEM_HOST_WRITE_ONLY, CL_MEM_HOST_READ_ONLY, and CL_MEM_HOST_NO_ACCESS are mutually
    // exclusive."
    require((flags & HOST_FLAGS).count_ones() <= 1, CL_INVALID_VALUE)?;
    // "CL_MEM_COPY_HOST_PTR and CL_MEM_USE_HOST_PTR are mutually exclusive", and so are ALLOC and
    // USE.
    let uses = flags & CL_MEM_USE_HOST_PTR != 0;
    require(
        !uses || flags & (CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR) == 0,
        CL_INVALID_VALUE,
    )?;
    // "CL_MEM_READ_WRITE ... This is the default."
    Ok(if flags & KERNEL_FLAGS == 0 { flags | CL_MEM_READ_WRITE } else { flags })
}

/// Returns the flags of a sub-buffer or view, checked against and combined with its parent's.
pub(crate) fn inherit_flags(flags: cl_mem_flags, parent: cl_mem_flags) -> ClResult<cl_mem_flags> {
    // "CL_INVALID_VALUE if buffer was created with CL_MEM_WRITE_ONLY and flags specifies
    // CL_MEM_READ_WRITE or CL_MEM_READ_ONLY, or if buffer was created with CL_MEM_READ_ONLY and
    // flags specifies CL_MEM_READ_WRITE or CL_MEM_WRITE_ONLY, or if flags specifies
    // CL_MEM_USE_HOST_PTR, CL_MEM_ALLOC_HOST_PTR, or CL_MEM_COPY_HOST_PTR."
    let clash =
        |made: cl_mem_flags, wanted: cl_mem_flags| parent & made != 0 && flags & wanted != 0;
    require(!clash(CL_MEM_WRITE_ONLY, CL_MEM_READ_WRITE | CL_MEM_READ_ONLY), CL_INVALID_VALUE)?;
    require(!clash(CL_MEM_READ_ONLY, CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY), CL_INVALID_VALUE)?;
    require(flags & POINTER_FLAGS == 0, CL_INVALID_VALUE)?;
    // "CL_INVALID_VALUE if buffer was created with CL_MEM_HOST_WRITE_ONLY and flags specify
    // CL_MEM_HOST_READ_ONLY", the reverse, "or if buffer was created with CL_MEM_HOST_NO_ACCESS and
    // flags specify CL_MEM_HOST_READ_ONLY or CL_MEM_HOST_WRITE_ONLY."
    require(!clash(CL_MEM_HOST_WRITE_ONLY, CL_MEM_HOST_READ_ONLY), CL_INVALID_VALUE)?;
    require(!clash(CL_MEM_HOST_READ_ONLY, CL_MEM_HOST_WRITE_ONLY), CL_INVALID_VALUE)?;
    require(
        !clash(CL_MEM_HOST_NO_ACCESS, CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_WRITE_ONLY),
        CL_INVALID_VALUE,
    )?;
    // "If ... not specified in flags, they are inherited from the corresponding memory access
    // qualifiers associated with buffer." The same holds for host flags. Pointer flags are always
    // inherited.
    let pick = |mask: cl_mem_flags| if flags & mask == 0 { parent & mask } else { flags & mask };
    Ok(pick(KERNEL_FLAGS)
        | pick(HOST_FLAGS)
        | parent & POINTER_FLAGS
        | flags & CL_MEM_KERNEL_READ_AND_WRITE)
}

/// Returns the flags that workers need. The host's access is checked here, and workers move content
/// on their own initiative.
pub(crate) const fn pool_flags(flags: cl_mem_flags) -> u64 {
    flags & (KERNEL_FLAGS | CL_MEM_KERNEL_READ_AND_WRITE)
}

/// Checks `host_ptr` of a new object.
pub(crate) fn check_host_ptr(flags: cl_mem_flags, given: bool) -> ClResult {
    // "CL_INVALID_HOST_PTR if host_ptr is NULL and CL_MEM_USE_HOST_PTR or CL_MEM_COPY_HOST_PTR are
    // set in flags or if host_ptr is not NULL but CL_MEM_COPY_HOST_PTR or CL_MEM_USE_HOST_PTR are
    // not set in flags."
    let wanted = flags & (CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR) != 0;
    require(wanted == given, CL_INVALID_HOST_PTR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_that_exclude_each_other_are_refused() {
        assert_eq!(check_flags(0), Ok(CL_MEM_READ_WRITE));
        assert_eq!(
            check_flags(CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR),
            Ok(CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR)
        );
        for flags in [
            CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY,
            CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR,
            CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR,
            CL_MEM_HOST_NO_ACCESS | CL_MEM_HOST_READ_ONLY,
            1 << 40,
        ] {
            assert_eq!(check_flags(flags), Err(ClError(CL_INVALID_VALUE)), "{flags:#x}");
        }
    }

    #[test]
    fn parts_inherit_flags() {
        let parent = CL_MEM_READ_ONLY | CL_MEM_HOST_WRITE_ONLY | CL_MEM_USE_HOST_PTR;
        assert_eq!(inherit_flags(0, parent), Ok(parent));
        assert_eq!(
            inherit_flags(CL_MEM_HOST_NO_ACCESS, parent).map(|flags| flags & HOST_FLAGS),
            Ok(CL_MEM_HOST_NO_ACCESS)
        );
        for flags in
            [CL_MEM_READ_WRITE, CL_MEM_WRITE_ONLY, CL_MEM_HOST_READ_ONLY, CL_MEM_COPY_HOST_PTR]
        {
            assert_eq!(inherit_flags(flags, parent), Err(ClError(CL_INVALID_VALUE)), "{flags:#x}");
        }
        assert_eq!(inherit_flags(CL_MEM_READ_ONLY, CL_MEM_READ_WRITE), Ok(CL_MEM_READ_ONLY));
    }

    #[test]
    fn host_pointers_are_given_where_flags_ask() {
        assert!(check_host_ptr(CL_MEM_READ_WRITE, false).is_ok());
        assert!(check_host_ptr(CL_MEM_USE_HOST_PTR, true).is_ok());
        assert_eq!(check_host_ptr(CL_MEM_COPY_HOST_PTR, false), Err(ClError(CL_INVALID_HOST_PTR)));
        assert_eq!(check_host_ptr(CL_MEM_ALLOC_HOST_PTR, true), Err(ClError(CL_INVALID_HOST_PTR)));
    }
}
