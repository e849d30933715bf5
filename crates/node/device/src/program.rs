//! Programs, kernels and samplers.

use std::sync::Arc;

use penstock_wire::IndexSpace;
use penstock_wire::describe::{BuildReport, Info};
use penstock_wire::limits;
use penstock_wire::status::Status;

use crate::driver::{
    Arg, Context, Device, Kernel, KernelDriver, KernelParts, Program, ProgramDriver, ProgramParts,
    Queue, Sampler, SamplerParts,
};

impl Program {
    fn of(driver: Box<dyn ProgramDriver>, context: &Context) -> Self {
        Self(Arc::new(ProgramParts { driver, _context: context.clone() }))
    }

    /// `clCreateProgramWithSource`.
    ///
    /// # Errors
    /// The driver's error.
    pub fn with_source(context: &Context, source: &[u8]) -> Result<Self, Status> {
        Ok(Self::of(context.0.driver.program_with_source(source)?, context))
    }

    /// `clCreateProgramWithBinary`. Returns a code for each binary, even if no program was made.
    pub fn with_binary(
        context: &Context,
        binaries: &[(Device, Vec<u8>)],
    ) -> (Vec<i32>, Result<Self, Status>) {
        let mut codes = vec![0; binaries.len()];
        // "CL_INVALID_VALUE if lengths[i] is zero or binaries[i] is NULL".
        if binaries.is_empty() || binaries.iter().any(|(_, binary)| binary.is_empty()) {
            return (codes, Err(Status::INVALID_VALUE));
        }
        let made = context.0.driver.program_with_binaries(binaries, &mut codes);
        (codes, made.map(|driver| Self::of(driver, context)))
    }

    /// `clCreateProgramWithIL`.
    ///
    /// # Errors
    /// The driver's error; `CL_INVALID_OPERATION` if it takes no IL.
    pub fn with_il(context: &Context, il: &[u8]) -> Result<Self, Status> {
        Ok(Self::of(context.0.driver.program_with_il(il)?, context))
    }

    /// `clCreateProgramWithBuiltInKernels`. `names` are separated by semicolons.
    ///
    /// # Errors
    /// The driver's error.
    pub fn with_built_in(
        context: &Context,
        devices: &[Device],
        names: &str,
    ) -> Result<Self, Status> {
        Ok(Self::of(context.0.driver.program_with_built_in(devices, names)?, context))
    }

    /// `clBuildProgram`. Blocks, possibly for minutes.
    ///
    /// # Errors
    /// The driver's error; the report then has the log.
    pub fn build<'a>(
        &self,
        devices: &[Device],
        options: impl Into<Option<&'a str>>,
    ) -> Result<(), Status> {
        self.0.driver.build(devices, options.into())
    }

    /// `clCompileProgram`. Each header comes with the name by which it is included. Blocks.
    ///
    /// # Errors
    /// The driver's error; the report then has the log.
    pub fn compile(
        &self,
        devices: &[Device],
        options: Option<&str>,
        headers: &[(String, Self)],
    ) -> Result<(), Status> {
        self.0.driver.compile(devices, options, headers)
    }

    /// `clLinkProgram`. Blocks. A failed link may still return a program, which has the log.
    pub fn link(
        context: &Context,
        devices: &[Device],
        options: Option<&str>,
        inputs: &[Self],
    ) -> (Result<(), Status>, Option<Self>) {
        let (status, made) = context.0.driver.link(devices, options, inputs);
        (status, made.map(|driver| Self::of(driver, context)))
    }

    /// `clSetProgramSpecializationConstant`.
    ///
    /// # Errors
    /// The driver's error; `CL_INVALID_OPERATION` if it takes no IL.
    pub fn set_spec_constant(&self, id: u32, value: &[u8]) -> Result<(), Status> {
        self.0.driver.set_spec_constant(id, value)
    }

    /// Returns whether the driver would show the arguments' descriptions (`clGetKernelArgInfo`)
    /// with the client's own options, so whether the client's program may see those in the report.
    ///
    /// The first call of a process for a device may compile a small kernel.
    pub fn shows_arg_info(&self) -> bool {
        self.0.driver.shows_arg_info()
    }

    /// Names the variables that later reports list if the CUDA module has them. Without names, a
    /// report lists the variables that are visible in the module.
    pub fn name_variables(&self, names: Option<Vec<String>>) {
        self.0.driver.name_variables(names);
    }

    /// Returns everything that a client may query after a build, compile or link that ended with
    /// `status`. `devices` are the program's, with their indices in the node.
    pub fn report(&self, status: Result<(), Status>, devices: &[(u32, Device)]) -> BuildReport {
        self.0.driver.report(status, devices)
    }

    /// Returns kind and build status of each device's binary, before a build.
    pub fn load_report(&self, devices: &[(u32, Device)]) -> Vec<(u32, Info)> {
        self.0.driver.load_report(devices)
    }

    /// `clGetProgramInfo(CL_PROGRAM_BINARIES)`: the binary of each device that has one.
    ///
    /// # Errors
    /// The driver's error; `CL_OUT_OF_RESOURCES` if they exceed what a reply may carry.
    pub fn binaries(&self, devices: &[(u32, Device)]) -> Result<Vec<(u32, Vec<u8>)>, Status> {
        self.0.driver.binaries(devices)
    }
}

impl Kernel {
    /// `clCreateKernel`.
    ///
    /// # Errors
    /// The driver's error.
    pub fn new(program: &Program, name: &str) -> Result<Self, Status> {
        Ok(Self::of(program.0.driver.kernel(name)?, program, name.into()))
    }

    fn of(driver: Box<dyn KernelDriver>, program: &Program, name: Arc<str>) -> Self {
        Self(Arc::new(KernelParts { driver, program: program.clone(), name }))
    }

    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.0.name
    }

    /// `clCloneKernel`: another kernel object with the same arguments.
    ///
    /// # Errors
    /// The driver's error; `CL_INVALID_OPERATION` before OpenCL 2.1.
    pub fn duplicate(&self) -> Result<Self, Status> {
        Ok(Self::of(self.0.driver.duplicate()?, &self.0.program, self.0.name.clone()))
    }

    /// `clSetKernelArg` or `clSetKernelArgSVMPointer`.
    ///
    /// # Errors
    /// The driver's error; `CL_INVALID_ARG_VALUE` for bytes that the driver would take for a
    /// handle.
    pub fn set(&self, index: u32, arg: Arg<'_>) -> Result<(), Status> {
        self.0.driver.set(index, arg)
    }

    /// `clSetKernelExecInfo`.
    ///
    /// # Errors
    /// The driver's error.
    pub fn set_exec_info(&self, name: u32, value: &[u8]) -> Result<(), Status> {
        self.0.driver.set_exec_info(name, value)
    }

    /// `clGetKernelWorkGroupInfo`.
    ///
    /// # Errors
    /// The driver's error.
    pub fn work_group_info(&self, device: &Device, name: u32) -> Result<Vec<u8>, Status> {
        self.0.driver.work_group_info(device, name)
    }

    /// `clGetKernelSubGroupInfo`, for an answer of at most `output_bytes`.
    ///
    /// # Errors
    /// The driver's error; `CL_INVALID_OPERATION` if it has no sub-groups.
    pub fn sub_group_info(
        &self,
        device: &Device,
        name: u32,
        input: &[u8],
        output_bytes: usize,
    ) -> Result<Vec<u8>, Status> {
        if output_bytes as u64 > limits::SMALL_BYTES_MAX {
            return Err(Status::INVALID_VALUE);
        }
        self.0.driver.sub_group_info(device, name, input, output_bytes)
    }

    /// `clGetKernelSuggestedLocalWorkSizeKHR`.
    ///
    /// # Errors
    /// Those of [`IndexSpace::checked`]; the driver's error; `CL_INVALID_OPERATION` if the driver
    /// does not have the extension.
    pub fn suggested_local_size(
        &self,
        queue: &Queue,
        space: &IndexSpace,
    ) -> Result<[u64; 3], Status> {
        self.0.driver.suggested_local_size(queue, &space.checked()?)
    }

    /// Returns the number of work-groups of `work_items` work-items, with the local memory of the
    /// current arguments, that the otherwise idle device runs at the same time.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` if the driver cannot tell; the driver's error.
    pub fn resident_groups(&self, work_items: u32) -> Result<u64, Status> {
        self.0.driver.resident_groups(work_items)
    }

    /// Returns `CL_KERNEL_NUM_ARGS`, but at most [`limits::ARG_INDEX_MAX`].
    pub fn arg_count(&self) -> usize {
        self.0.driver.arg_count()
    }
}

impl Sampler {
    /// `clCreateSamplerWithProperties`. `properties` lack the final 0.
    ///
    /// # Errors
    /// The driver's error.
    pub fn new(context: &Context, properties: &[u64]) -> Result<Self, Status> {
        // A 0 as a name would end the list early; a list of odd length has a name without a value.
        if !properties.len().is_multiple_of(2)
            || properties.iter().step_by(2).any(|&name| name == 0)
        {
            return Err(Status::INVALID_VALUE);
        }
        let driver = context.0.driver.sampler(properties)?;
        Ok(Self(Arc::new(SamplerParts { driver, _context: context.clone() })))
    }
}
