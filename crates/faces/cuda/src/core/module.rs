//! Modules: device code in a context, with its own variables and functions.

use std::ffi::CString;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use penstock_cl_sys::CL_KERNEL_WORK_GROUP_SIZE;
use penstock_client::{ArgValue, Given, Kernel, KernelInfo as _, Range, Want};
use penstock_cuda_sys::driver::*;
use penstock_process::Lock;
use penstock_ptx::ir::Entry;
use penstock_ptx::translate::Argument;
use rustc_hash::FxHashMap;

use super::attribute;
use super::block::Block;
use super::capability::{CAPABILITY_NUMBER, SHARED_BYTES};
use super::context::Context;
use super::device::Device;
use super::program::{BuiltPart, Program, Refusal, ptx_of};
use super::setup::LaunchSetup;
use super::{build, fault, stream_list};
use super::{managed, native};
use crate::edge::{CuResult, Object, forget, has_handle, new_number, of_error, publish};

pub(crate) struct Module {
    number: u64,
    pub(crate) loaded: Arc<LoadedModule>,
    functions: Lock<FxHashMap<String, Arc<Function>>>,
}

pub(crate) struct LoadedModule {
    context: Weak<Context>,
    pub(crate) device: Arc<Device>,
    pub(crate) program: Arc<Program>,
    /// Address of its variables; 0 if the driver chooses their addresses or there are none.
    pub(crate) data: u64,
    block: Option<Block>,
    /// Number of the context that owns the module.
    owner: u64,
    /// Variables that the program asked for, if the driver chose their addresses.
    variables: native::variable::Variables,
}

pub(crate) struct Function {
    number: u64,
    /// Number of the module.
    pub(crate) module: u64,
    pub(crate) loaded: Arc<LoadedModule>,
    /// Index of its entry in the module.
    index: usize,
    pub(crate) c_name: CString,
    /// Identifies its name in reports.
    pub(super) name_number: u64,
    /// Value of `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`, in bytes.
    dynamic_max: AtomicU32,
    /// Its kernel, with the arguments of the last launch.
    pub(crate) bound: Lock<Option<BoundKernel>>,
    /// The kernel for launches with a heap among their parameters.
    pub(crate) bound_with_heap: Lock<Option<BoundKernel>>,
    /// Maximum number of threads of a block that the driver allows for it.
    threads_max: OnceLock<u32>,
    pub(crate) setup: Lock<LaunchSetup>,
}

/// A kernel of the pool for certain arenas.
pub(crate) struct BoundKernel {
    pub(crate) arenas: usize,
    pub(crate) kernel: Arc<Kernel>,
    /// The parameters in the form in which they are sent. The buffer is reused.
    pub(crate) params: Vec<u8>,
    /// Dynamic shared memory of the last launch, in bytes.
    pub(crate) dynamic: Option<u32>,
    /// Other shared memory that the argument of local memory must provide, in bytes.
    pub(crate) local_bytes: u32,
    /// Offset among the parameters at which the kernel wants the launch's dynamic shared memory in
    /// bytes.
    pub(crate) dynamic_bytes_at: Option<usize>,
    /// Index of the argument that holds the parameters. `None` if the kernel has no parameters.
    pub(crate) params_at: Option<usize>,
    /// Index of the argument that is the heap, if the kernel has one.
    pub(crate) heap_at: Option<usize>,
    /// Index of the argument that is the local memory for shared memory, if the kernel has one, and
    /// its minimum size in bytes.
    pub(crate) shared_at: Option<usize>,
    pub(crate) local_min: u64,
}

has_handle!(Module: CUmod_st, CUDA_ERROR_INVALID_HANDLE, ends with loaded.owner);

has_handle!(Function: CUfunc_st, CUDA_ERROR_INVALID_HANDLE, ends with loaded.owner);

/// At least this number of zero bytes behind the initial content of variables is sent as a fill.
/// Fewer are sent as bytes.
const FILL_BYTES_MIN: u64 = 64 << 10;

impl Module {
    /// Loads a module into a context.
    pub(crate) fn load(context: &Arc<Context>, bytes: &[u8]) -> Result<Arc<Self>, Refusal> {
        if context.device.is_native {
            context.check()?;
            let program = native::module::load(&context.device, bytes)?;
            return Ok(Self::of_program(context, Arc::new(program), None));
        }
        Self::load_ptx(context, ptx_of(bytes)?)
    }

    /// Loads PTX into a context.
    pub(crate) fn load_ptx(context: &Arc<Context>, text: Box<str>) -> Result<Arc<Self>, Refusal> {
        if context.device.is_native {
            return Self::load(context, text.as_bytes());
        }
        context.check()?;
        let device = &context.device;
        let program = Program::load(device, text)?;
        if build::is_eager() {
            program.build_all(device)?;
        }
        if program.prints {
            context.watch_kernels(true)?;
        }
        if program.allocates {
            context
                .control
                .make_malloc(context.limit(CU_LIMIT_MALLOC_HEAP_SIZE)?, context.number())?;
        }
        let managed = program.module.globals().iter().find(|global| global.is_managed);
        if let Some(global) = managed
            && let Some(text) =
                managed::refusal(&format!("the __managed__ variable {}", global.name), device)
        {
            return Err(Refusal::new(CUDA_ERROR_NOT_SUPPORTED, text));
        }
        let data = load_data(context, &program)?;
        if let Some(block) = data {
            for global in program.module.globals().iter().filter(|global| global.is_managed) {
                managed::show_variable(device, block.address + global.offset, global.size)?;
            }
        }
        Ok(Self::of_program(context, program, data))
    }

    fn of_program(
        context: &Arc<Context>,
        program: Arc<Program>,
        block: Option<Block>,
    ) -> Arc<Self> {
        let loaded = Arc::new(LoadedModule {
            context: Arc::downgrade(context),
            device: context.device.clone(),
            program,
            data: block.map_or(0, |block| block.address),
            block,
            owner: context.number(),
            variables: native::variable::Variables::default(),
        });
        let module = Arc::new(Self { number: new_number(), loaded, functions: Lock::default() });
        publish(&module);
        module
    }

    pub(crate) fn unload(&self) -> CuResult {
        forget(self).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        let functions = std::mem::take(&mut *self.functions.lock());
        for function in functions.values() {
            _ = forget(&**function);
        }
        self.loaded.variables.forget(&self.loaded.device.space);
        managed::hide_variables(self.loaded.data, self.loaded.program.module.data().size);
        let device = &self.loaded.device;
        self.loaded
            .block
            .map_or(Ok(()), |block| device.release_block(block, stream_list::busy_on(device)))
    }

    /// Implements `cuModuleGetFunction`: returns the same handle each time.
    pub(crate) fn function(&self, name: &str) -> CuResult<Arc<Function>> {
        let mut functions = self.functions.lock();
        if let Some(function) = functions.get(name) {
            return Ok(function.clone());
        }
        let entries = self.loaded.program.module.entries();
        let index =
            entries.iter().position(|entry| entry.name == name).ok_or(CUDA_ERROR_NOT_FOUND)?;
        let limits = attribute::shared_bytes(&self.loaded.device);
        let used = entries.get(index).map_or(0, |entry| entry.static_shared);
        let function = Arc::new(Function {
            number: new_number(),
            module: self.number,
            loaded: self.loaded.clone(),
            index,
            c_name: CString::new(name).unwrap_or_default(),
            name_number: fault::remember_kernel(name),
            dynamic_max: AtomicU32::new(limits.0.min(SHARED_BYTES).saturating_sub(used)),
            bound: Lock::default(),
            bound_with_heap: Lock::default(),
            threads_max: OnceLock::new(),
            setup: Lock::default(),
        });
        publish(&function);
        functions.insert(name.to_owned(), function.clone());
        Ok(function)
    }

    /// Implements `cuModuleGetGlobal`: returns address and size of a variable.
    pub(crate) fn global(&self, name: &str) -> CuResult<(u64, u64)> {
        let globals = self.loaded.program.module.globals();
        let global =
            globals.iter().find(|global| global.name == name).ok_or(CUDA_ERROR_NOT_FOUND)?;
        let address = self.loaded.data + global.offset;
        if self.loaded.device.is_native {
            let owner = self.loaded.context()?.number();
            self.loaded.variables.add(&self.loaded.device, owner, address, global.size)?;
        }
        Ok((address, global.size))
    }

    /// Returns the names of its kernels.
    pub(crate) fn kernel_names(&self) -> impl Iterator<Item = &str> {
        self.loaded.program.module.entries().iter().map(|entry| entry.name.as_str())
    }
}

/// Allocates the module's variables and writes their initial content. Waits for the write, so that
/// every stream sees the content.
fn load_data(context: &Arc<Context>, program: &Program) -> CuResult<Option<Block>> {
    let data = program.module.data();
    if data.size == 0 {
        return Ok(None);
    }
    let device = &context.device;
    let block = device.allocate_block(data.size, context.number())?;
    let address = block.address;
    let mut bytes = data.bytes.clone();
    for relocation in &data.relocations {
        let value = address.wrapping_add_signed(relocation.target).to_le_bytes();
        let at = usize::try_from(relocation.offset).unwrap_or(usize::MAX);
        let width = usize::from(relocation.width).min(8);
        if bytes.len() < at.saturating_add(width) {
            bytes.resize(at.checked_add(width).ok_or(CUDA_ERROR_INVALID_IMAGE)?, 0);
        }
        if let Some(target) = bytes.get_mut(at..).and_then(|rest| rest.get_mut(..width)) {
            target.copy_from_slice(value.get(..width).unwrap_or_default());
        }
    }
    let rest = data.size.saturating_sub(bytes.len() as u64);
    let located = device.space.locate(address, data.size)?;
    if rest < FILL_BYTES_MIN {
        bytes.resize(usize::try_from(data.size).map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?, 0);
    }
    // Not in a stream of the program, because nobody uses this memory yet.
    let unordered = context.unordered_stream()?;
    context.issue(unordered, |queue, waits| {
        if rest >= FILL_BYTES_MIN {
            // In whole patterns: the write below overwrites the bytes before, and the allocation is
            // padded behind.
            let from = (data.size - rest) / 16 * 16;
            let range = Range {
                offset: located.offset + from,
                size: (data.size - from).next_multiple_of(16),
            };
            queue.fill(&located.memory, &[0; 16], range, waits, Want::Nothing)?;
        }
        queue.write(&located.memory, located.offset, &Given(&bytes), waits, Want::Nothing)
    })?;
    context.finish(unordered)?;
    Ok(Some(block))
}

impl LoadedModule {
    /// Returns the context in which it is loaded.
    pub(crate) fn context(&self) -> CuResult<Arc<Context>> {
        self.context.upgrade().ok_or(CUDA_ERROR_CONTEXT_IS_DESTROYED)
    }

    /// Returns whether both are loaded in one context.
    pub(crate) fn is_with(&self, other: &Self) -> bool {
        self.context.ptr_eq(&other.context)
    }

    /// Returns whether it is loaded in this context.
    #[inline]
    pub(crate) fn is_in(&self, context: &Context) -> bool {
        std::ptr::eq(self.context.as_ptr(), context)
    }
}

impl Function {
    /// Returns the function's description in the module.
    pub(crate) fn entry(&self) -> &Entry {
        // No panic: entries are never removed from a module.
        &self.loaded.program.module.entries()[self.index]
    }

    /// Returns where the last of its parameters ends, in bytes.
    pub(crate) fn params_end(&self) -> usize {
        let ends =
            self.entry().params.iter().map(|param| param.offset as usize + param.size as usize);
        ends.max().unwrap_or(0)
    }

    /// Returns the kernel of the pool, with or without a heap. Makes it anew if the device has more
    /// arenas than before.
    pub(crate) fn bind<'a>(
        &self,
        bound: &'a mut Option<BoundKernel>,
        heap: bool,
    ) -> CuResult<&'a mut BoundKernel> {
        let device = &self.loaded.device;
        let arenas = device.space.count();
        if bound.as_ref().is_none_or(|bound| bound.arenas != arenas) {
            let build = self.loaded.program.build(device, self.index, heap)?;
            let made = build.kernel(&self.entry().name)?;
            if made.stops {
                self.loaded.context()?.watch_kernels(false)?;
            }
            let kernel = Kernel::new(&made.program, made.description.clone())
                .map_err(|error| of_error(&error))?;
            self.set_constant(&kernel, &build, &made.arguments)?;
            let index_of = |wanted| made.arguments.iter().position(|argument| *argument == wanted);
            // Local memory must not be empty. For a native driver the argument is only a number.
            let dynamic_bytes_at = made.dynamic_bytes_at.map(|at| at as usize);
            let (local_bytes, local_min) = (made.local_bytes, if device.is_native { 0 } else { 8 });
            let padded = (self.entry().params_size as usize).next_multiple_of(8).max(8);
            let params = vec![0; padded.max(dynamic_bytes_at.map_or(0, |at| at + 8))];
            *bound = Some(BoundKernel {
                arenas: build.arenas.len(),
                kernel,
                params,
                dynamic: None,
                local_bytes,
                dynamic_bytes_at,
                params_at: index_of(Argument::Params),
                heap_at: index_of(Argument::Heap),
                shared_at: index_of(Argument::Shared),
                local_min,
            });
        }
        bound.as_mut().ok_or(CUDA_ERROR_UNKNOWN)
    }

    /// Sets the arguments that are the same for all launches. They are sent once, with the first
    /// launch.
    fn set_constant(&self, kernel: &Kernel, build: &BuiltPart, arguments: &[Argument]) -> CuResult {
        for (index, argument) in arguments.iter().enumerate() {
            match argument {
                Argument::Arena(number) => {
                    let arena = build.arenas.get(*number).ok_or(CUDA_ERROR_INVALID_IMAGE)?;
                    kernel.set(index, ArgValue::Memory(Some(arena.memory.clone())));
                }
                Argument::Data => kernel.set_bytes(index, &self.loaded.data.to_le_bytes()),
                Argument::Control => {
                    let control = self.loaded.context()?.control.address();
                    kernel.set_bytes(index, &control.to_le_bytes());
                }
                Argument::Heap | Argument::Params | Argument::Shared => {}
            }
        }
        Ok(())
    }

    /// Returns the maximum number of threads of a block that the driver and the program allow.
    /// Builds the kernel.
    pub(crate) fn threads_max(&self) -> CuResult<u32> {
        self.threads_max_with(false)
    }

    /// As [`Function::threads_max`]. `heap`: which build the first call asks. Later calls return
    /// the same number.
    pub(crate) fn threads_max_with(&self, heap: bool) -> CuResult<u32> {
        if let Some(known) = self.threads_max.get() {
            return Ok(*known);
        }
        let device = &self.loaded.device;
        let build = self.loaded.program.build(device, self.index, heap)?;
        let made = build.kernel(&self.entry().name)?;
        let answer = made.description.work_group_info(
            &device.context,
            &device.pool,
            CL_KERNEL_WORK_GROUP_SIZE,
        );
        let allowed = answer
            .and_then(|bytes| bytes.first_chunk::<8>())
            .map(|bytes| u64::from_le_bytes(*bytes));
        let allowed =
            allowed.filter(|threads| *threads > 0).and_then(|threads| u32::try_from(threads).ok());
        let own = self.entry().max_threads.unwrap_or(u32::MAX);
        let threads = device.facts.threads_max.min(allowed.unwrap_or(u32::MAX)).min(own);
        Ok(*self.threads_max.get_or_init(|| threads))
    }

    /// Returns the limit of dynamic shared memory, in bytes.
    pub(crate) fn dynamic_max(&self) -> u32 {
        self.dynamic_max.load(Ordering::Relaxed)
    }

    pub(crate) fn attribute(&self, attribute: u32) -> CuResult<i32> {
        if self.loaded.device.is_native
            && attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        {
            let build = self.loaded.program.build(&self.loaded.device, self.index, false)?;
            let made = build.kernel(&self.entry().name)?;
            return native::module::kernel_attribute(&made.description, attribute)
                .ok_or(CUDA_ERROR_INVALID_VALUE);
        }
        let entry = self.entry();
        let int = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
        let capability = CAPABILITY_NUMBER;
        Ok(match attribute {
            CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK => int(self.threads_max()?),
            CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES => int(entry.static_shared),
            CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES => {
                let constants =
                    self.loaded.program.module.globals().iter().filter(|global| global.is_const);
                i32::try_from(constants.map(|global| global.size).sum::<u64>()).unwrap_or(i32::MAX)
            }
            CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES => int(entry.local_bytes),
            // Only the device's compiler knows the number. Programs divide by it, so it must not be
            // 0.
            CU_FUNC_ATTRIBUTE_NUM_REGS => 32,
            CU_FUNC_ATTRIBUTE_PTX_VERSION => int(self.loaded.program.module.target()),
            CU_FUNC_ATTRIBUTE_BINARY_VERSION => capability,
            CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => int(self.dynamic_max()),
            CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT => -1,
            attribute if attribute < FUNC_ATTRIBUTES => 0,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        })
    }

    pub(crate) fn set_attribute(&self, attribute: u32, value: i32) -> CuResult {
        match attribute {
            CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => {
                let most = attribute::shared_bytes(&self.loaded.device)
                    .1
                    .saturating_sub(self.entry().static_shared);
                let value = u32::try_from(value)
                    .ok()
                    .filter(|value| *value <= most)
                    .ok_or(CUDA_ERROR_INVALID_VALUE)?;
                self.dynamic_max.store(value, Ordering::Relaxed);
                Ok(())
            }
            CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT => {
                if (-1..=100).contains(&value) {
                    Ok(())
                } else {
                    Err(CUDA_ERROR_INVALID_VALUE)
                }
            }
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Function").field("name", &self.entry().name).finish_non_exhaustive()
    }
}
