use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use penstock_client::{ArgValue, Error, Event, Queue, Want};
use penstock_cuda_sys::driver::*;
use penstock_wire::Status;

use super::context::Context;
use super::heap::{self, Heap};
use super::host;
use super::module::{BoundKernel, Function};
use super::shape::LaunchShape;
use super::stream::Stream;
use crate::edge::{Bytes, CuResult, load, require};

impl BoundKernel {
    /// Releases the heap that was an argument. The next launch sets it anew.
    pub(super) fn forget_heap(&self) {
        if let Some(at) = self.heap_at {
            self.kernel.set(at, ArgValue::Memory(None));
        }
    }
}

/// The program's form of a kernel's parameters.
pub(crate) enum LaunchParams {
    /// No parameters were given.
    None,
    /// One address for each parameter.
    Each(*const *const c_void),
    /// All parameters in one block, in the kernel's layout.
    Packed(Bytes),
}

/// Maximum number of blocks of a grid in its second and third dimension.
const GRID_YZ_MAX: u32 = 65_535;

impl Function {
    /// Makes the checks of the interface. The first call builds the kernel; later ones do not ask
    /// the worker.
    fn check(&self, shape: &LaunchShape, heap: bool) -> CuResult {
        let facts = &self.loaded.device.facts;
        let entry = self.entry();
        let [x, y, z] = shape.block;
        require(
            shape.grid.iter().chain(&shape.block).all(|size| *size > 0),
            CUDA_ERROR_INVALID_VALUE,
        )?;
        require(i32::try_from(shape.grid[0]).is_ok(), CUDA_ERROR_INVALID_VALUE)?;
        require(shape.grid[1].max(shape.grid[2]) <= GRID_YZ_MAX, CUDA_ERROR_INVALID_VALUE)?;
        require(
            shape.block.iter().zip(facts.block_max).all(|(size, max)| *size <= max),
            CUDA_ERROR_INVALID_VALUE,
        )?;
        // No overflow: each factor is at most 1,024.
        let threads = x * y * z;
        require(threads <= facts.threads_max, CUDA_ERROR_INVALID_VALUE)?;
        require(
            entry.required.is_none_or(|required| required == shape.block),
            CUDA_ERROR_INVALID_VALUE,
        )?;
        // "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: ... the kernel launch specifies too many threads for
        // the kernel's register count."
        require(
            entry.max_threads.is_none_or(|max| threads <= max),
            CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
        )?;
        require(threads <= self.threads_max_with(heap)?, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES)?;
        require(shape.dynamic <= self.dynamic_max(), CUDA_ERROR_INVALID_VALUE)
    }

    /// Implements `cuLaunchKernel`. Waits only for the device's compiler, at the first launch.
    ///
    /// # Safety
    /// `params` are those of this kernel, as the interface demands.
    pub(crate) unsafe fn launch(
        &self,
        context: &Context,
        stream: &Arc<Stream>,
        shape: &LaunchShape,
        params: &LaunchParams,
    ) -> CuResult {
        if heap::any_exist() {
            // SAFETY: the caller promises that `params` are those of this kernel.
            let params = unsafe { self.packed(params) }?;
            if let Some(heap) = heap::find_among(&params)? {
                return self.launch_with_heap(context, stream, shape, &params, &heap);
            }
        }
        self.check(shape, false)?;
        // Held until the launch is sent, so that no other thread changes the arguments before.
        let mut bound = self.bound.lock();
        let bound = self.bind(&mut bound, false)?;
        // SAFETY: the caller promises that `params` are those of this kernel.
        unsafe { self.gather(params, &mut bound.params) }?;
        set_arguments(bound, shape.dynamic);
        let space = shape.space();
        stream.last_kernel.store(self.name_number, Ordering::Relaxed);
        // Output and failures of unwatched kernels do not reach the program before it waits.
        let is_noticed = host::any_joint() || context.control.is_watched();
        let send = |queue: &Arc<Queue>, waits: &[Event]| {
            queue.launch(&bound.kernel, space, waits, Want::Nothing)
        };
        context.issue_as(stream, is_noticed, send).map(drop)
    }

    /// Returns the parameters in one block, in the kernel's layout.
    ///
    /// # Safety
    /// As [`Function::launch`].
    pub(crate) unsafe fn packed(&self, params: &LaunchParams) -> CuResult<Vec<u8>> {
        let mut block = vec![0; self.entry().params_size as usize];
        // SAFETY: the caller promises that `params` are those of this kernel.
        unsafe { self.gather(params, &mut block) }?;
        Ok(block)
    }

    /// Launches on one device with a heap among the parameters.
    fn launch_with_heap(
        &self,
        context: &Context,
        stream: &Arc<Stream>,
        shape: &LaunchShape,
        params: &[u8],
        heap: &Heap,
    ) -> CuResult {
        let mut bound = self.bound_with_heap.lock();
        let bound = self.prepare(&mut bound, shape, params, heap)?;
        let launched = context.issue(stream, |queue, waits| {
            let launched = queue.launch(&bound.kernel, shape.space(), waits, Want::Nothing)?;
            // The stream reports later failures when it is waited for. An event that has failed
            // already means that nothing was sent.
            Ok(launched.filter(|event| event.known_status().is_some_and(Status::is_error)))
        });
        bound.forget_heap();
        launched.map(drop)
    }

    /// Checks a launch with a heap, and sets its arguments.
    pub(super) fn prepare<'a>(
        &self,
        bound: &'a mut Option<BoundKernel>,
        shape: &LaunchShape,
        params: &[u8],
        heap: &Heap,
    ) -> CuResult<&'a mut BoundKernel> {
        self.check(shape, true)?;
        let bound = self.bind(bound, true)?;
        let block = bound.params.get_mut(..params.len()).ok_or(CUDA_ERROR_INVALID_IMAGE)?;
        block.copy_from_slice(params);
        heap.write_address_on(&self.loaded.device, block);
        set_arguments(bound, shape.dynamic);
        let heap_at = bound.heap_at.ok_or(CUDA_ERROR_INVALID_IMAGE)?;
        bound.kernel.set(heap_at, ArgValue::Heap(heap.pool.clone()));
        Ok(bound)
    }

    /// Copies the parameters into one block, in the kernel's layout.
    ///
    /// # Safety
    /// As [`Function::launch`].
    unsafe fn gather(&self, params: &LaunchParams, block: &mut [u8]) -> CuResult {
        let entry = self.entry();
        match params {
            // "... or if the kernel has parameters and neither is given".
            LaunchParams::None => require(entry.params.is_empty(), CUDA_ERROR_INVALID_VALUE),
            LaunchParams::Packed(bytes) => {
                let size = entry.params_size as usize;
                require(bytes.size() >= size, CUDA_ERROR_INVALID_VALUE)?;
                let (Some(to), Some(from)) = (block.get_mut(..size), bytes.read().get(..size))
                else {
                    return Err(CUDA_ERROR_INVALID_VALUE);
                };
                to.copy_from_slice(from);
                Ok(())
            }
            LaunchParams::Each(list) => {
                for (index, param) in entry.params.iter().enumerate() {
                    let range = param.offset as usize..(param.offset + param.size) as usize;
                    let to = block.get_mut(range).ok_or(CUDA_ERROR_INVALID_IMAGE)?;
                    // SAFETY: the caller promises an address for each parameter of this kernel.
                    let from = unsafe { load(list.add(index)) }?;
                    // SAFETY: the address leads to a parameter of this type, which has `to.len()`
                    // bytes.
                    to.copy_from_slice(unsafe { Bytes::new(from, to.len()) }?.read());
                }
                Ok(())
            }
        }
    }
}

/// The description of a launch, with a copy of its parameters.
pub(crate) struct DescribedLaunch {
    pub(crate) function: Arc<Function>,
    pub(crate) shape: LaunchShape,
    /// All parameters, in whole words so that each is aligned as its type demands.
    block: Box<[u64]>,
    /// Address of each parameter.
    addresses: Box<[usize]>,
}

impl DescribedLaunch {
    /// # Safety
    /// As [`Function::launch`].
    pub(crate) unsafe fn new(
        function: Arc<Function>,
        shape: LaunchShape,
        params: &LaunchParams,
    ) -> CuResult<Arc<Self>> {
        // SAFETY: the caller promises that `params` are those of `function`.
        let bytes = unsafe { function.packed(params) }?;
        let with_heap = heap::any_exist() && heap::find_among(&bytes)?.is_some();
        function.check(&shape, with_heap)?;
        let words = bytes.chunks(8).map(|part| {
            let mut word = [0; 8];
            word.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
            u64::from_ne_bytes(word)
        });
        let block: Box<[u64]> = words.collect();
        let start = block.as_ptr().expose_provenance();
        let addresses =
            function.entry().params.iter().map(|param| start + param.offset as usize).collect();
        Ok(Arc::new(Self { function, shape, block, addresses }))
    }

    fn bytes(&self) -> Vec<u8> {
        let all = self.block.iter().flat_map(|word| word.to_ne_bytes());
        all.take(self.function.entry().params_size as usize).collect()
    }

    /// Returns the address of each parameter. The addresses are valid as long as `self`.
    pub(crate) fn addresses(&self) -> &[usize] {
        &self.addresses
    }

    pub(crate) fn run(&self, context: &Context, stream: &Arc<Stream>) -> CuResult {
        let bytes = self.bytes();
        // SAFETY: `bytes` lives until the launch has been sent.
        let params =
            LaunchParams::Packed(unsafe { Bytes::new(bytes.as_ptr().cast(), bytes.len()) }?);
        // SAFETY: the parameters were copied for this function in its own layout.
        unsafe { self.function.launch(context, stream, &self.shape, &params) }
    }
}

impl std::fmt::Debug for DescribedLaunch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DescribedLaunch")
            .field("function", &self.function)
            .field("shape", &self.shape)
            .finish_non_exhaustive()
    }
}

/// A kernel for one [`DescribedLaunch`] launch. Its parameters are set once and are not sent again.
#[derive(Default)]
pub(crate) struct PreparedKernel(Option<BoundKernel>);

impl PreparedKernel {
    /// Prepares the kernel. Returns false for a launch with a heap, which must be set up each time.
    pub(crate) fn make_ready(&mut self, launch: &DescribedLaunch) -> CuResult<bool> {
        if heap::any_exist() && heap::find_among(&launch.bytes())?.is_some() {
            return Ok(false);
        }
        let arenas = launch.function.loaded.device.space.count();
        if self.0.as_ref().is_none_or(|bound| bound.arenas != arenas) {
            let bound = launch.function.bind(&mut self.0, false)?;
            let bytes = launch.bytes();
            bound
                .params
                .get_mut(..bytes.len())
                .ok_or(CUDA_ERROR_INVALID_IMAGE)?
                .copy_from_slice(&bytes);
            set_arguments(bound, launch.shape.dynamic);
        }
        Ok(true)
    }

    /// Forgets the kernel, because the launch has changed.
    pub(crate) fn forget(&mut self) {
        self.0 = None;
    }

    /// Sends the launch. Returns an event only if the launch failed or the client holds it back.
    pub(crate) fn send(
        &self,
        launch: &DescribedLaunch,
        queue: &Arc<Queue>,
        waits: &[Event],
    ) -> Result<Option<Event>, Error> {
        let Some(bound) = &self.0 else { return Ok(None) };
        queue.launch(&bound.kernel, launch.shape.space(), waits, Want::Nothing)
    }
}

fn set_arguments(bound: &mut BoundKernel, dynamic: u32) {
    if let Some(bytes) =
        bound.dynamic_bytes_at.and_then(|at| bound.params.get_mut(at..)?.first_chunk_mut())
    {
        *bytes = u64::from(dynamic).to_le_bytes();
    }
    if let Some(at) = bound.params_at {
        bound.kernel.set_bytes(at, &bound.params);
    }
    if let Some(at) = bound.shared_at.filter(|_| bound.dynamic != Some(dynamic)) {
        let bytes = (u64::from(dynamic) + u64::from(bound.local_bytes)).max(bound.local_min);
        bound.kernel.set(at, ArgValue::Local(bytes));
        bound.dynamic = Some(dynamic);
    }
}
