//! A module, its functions and its variables.

use super::{Instruction, Space, Type};

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident;)*) => { $(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);

        impl $name {
            /// The number as an index into its table.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }
    )* };
}

ids! {
    /// Index into [`Function::registers`].
    RegisterId;
    /// Index into [`Function::labels`].
    LabelId;
    /// Index into [`Function::variables`].
    VariableId;
    /// Index into [`Module::functions`].
    FunctionId;
    /// Index into [`Module::globals`].
    GlobalId;
    /// Index into [`Module::shared`].
    SharedId;
}

/// A parsed, checked module.
#[derive(Debug, Clone)]
pub struct Module {
    pub(crate) version: (u32, u32),
    pub(crate) target: u32,
    pub(crate) functions: Vec<Function>,
    pub(crate) entries: Vec<Entry>,
    pub(crate) globals: Vec<Global>,
    pub(crate) shared: Vec<SharedVariable>,
    pub(crate) data: ModuleData,
}

impl Module {
    /// A module of which kernels and variables are known, but no code: one that a driver has loaded itself. Variables' offsets are
    /// counted from wherever the driver says.
    pub fn without_code(entries: Vec<Entry>, globals: Vec<Global>) -> Self {
        Self {
            version: (0, 0),
            target: 0,
            functions: Vec::new(),
            entries,
            globals,
            shared: Vec::new(),
            data: ModuleData::default(),
        }
    }

    /// The kernels, in the order of the text.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The `.global` and `.const` variables, in the order of the text. They lie in [`Module::data`].
    pub fn globals(&self) -> &[Global] {
        &self.globals
    }

    /// The content of the module's data block before anything ran.
    pub fn data(&self) -> &ModuleData {
        &self.data
    }

    /// `.version`: major and minor.
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    /// `.target` without its letters: 75 for `sm_75`, 90 for `sm_90a`.
    pub fn target(&self) -> u32 {
        self.target
    }

    /// Kernels and device functions, external ones too, in the order of the text.
    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// The function with that number.
    pub fn function(&self, id: FunctionId) -> &Function {
        &self.functions[id.index()]
    }

    /// Every `.shared` variable of the module and of its functions.
    pub fn shared(&self) -> &[SharedVariable] {
        &self.shared
    }
}

/// A kernel, with what a launch needs to know.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The name in PTX.
    pub name: String,
    /// Its formal parameters.
    pub params: Vec<Param>,
    /// Bytes of all parameters, without padding behind the last.
    pub params_size: u32,
    /// Bytes of static shared memory, of the functions it calls too; a multiple of the alignment of dynamic shared memory
    /// where that is used: dynamic shared memory starts at this offset.
    pub static_shared: u32,
    /// Bytes of local memory of a thread: of the kernel and of the deepest chain of calls.
    pub local_bytes: u32,
    /// `.maxntid`: the product of its numbers.
    pub max_threads: Option<u32>,
    /// `.reqntid`: missing numbers are 1.
    pub required: Option<[u32; 3]>,
    /// Whether it, or a function it calls, names an `.extern .shared` variable.
    pub uses_dynamic_shared: bool,
    /// Its body.
    pub function: FunctionId,
    /// Every function that it can reach by calls, without itself, callees before callers. A function whose address is taken
    /// counts as called where the code has indirect calls.
    pub callees: Vec<FunctionId>,
    /// Whether a function it reaches can call itself.
    pub recursive: bool,
}

/// Where a kernel's parameter lies in its block of parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Param {
    /// Bytes from the start of the block.
    pub offset: u32,
    /// Bytes.
    pub size: u32,
    /// Bytes, a power of two.
    pub align: u32,
}

/// A `.global` or `.const` variable.
#[derive(Debug, Clone)]
pub struct Global {
    /// The name in PTX; empty for a variable of another module that nothing uses.
    pub name: String,
    /// Bytes from the start of the module's data block.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
    /// Whether it is `.const`.
    pub is_const: bool,
    /// For a `.texref`, `.samplerref` or `.surfref`: the variable is its handle of 8 bytes.
    pub opaque: Option<Opaque>,
}

/// A variable that is a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opaque {
    /// `.texref`
    Texture,
    /// `.samplerref`
    Sampler,
    /// `.surfref`
    Surface,
}

/// The module's data block: all `.global` and `.const` variables.
#[derive(Debug, Clone, Default)]
pub struct ModuleData {
    /// Bytes of the block.
    pub size: u64,
    /// Alignment of its start in bytes, a power of two.
    pub align: u64,
    /// The first bytes of the block; the rest, up to `size`, is zero. Where a relocation applies they hold zeros.
    pub bytes: Vec<u8>,
    /// Pointers in the initial content.
    pub relocations: Vec<Relocation>,
}

/// "At `offset` of the data block write the address of the data block plus `target`, as `width` bytes."
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Relocation {
    /// Bytes from the start of the block.
    pub offset: u64,
    /// Bytes from the start of the block. May lie outside it: a program may keep the address before or behind a variable.
    pub target: i64,
    /// Bytes to write: 8, or 4 where only the lower half is kept.
    pub width: u8,
}

/// A `.shared` variable. One offset serves every kernel that uses it: kernels that use different variables overlap.
#[derive(Debug, Clone)]
pub struct SharedVariable {
    /// The name in PTX.
    pub name: String,
    /// Bytes; 0 for a dynamic one.
    pub size: u32,
    /// Bytes, a power of two.
    pub align: u32,
    /// Bytes from the start of the block's shared memory; of a dynamic one 0: it starts at the kernel's
    /// [`Entry::static_shared`].
    pub offset: u32,
    /// Whether it is `.extern .shared x[]`, whose size the launch says.
    pub dynamic: bool,
}

/// A kernel or a device function.
#[derive(Debug, Clone)]
pub struct Function {
    /// The name in PTX.
    pub name: String,
    /// Whether it is a kernel.
    pub is_entry: bool,
    /// The values it returns: none or one in what compilers write.
    pub returns: Vec<Formal>,
    /// Its formal parameters.
    pub params: Vec<Formal>,
    /// Its registers, those of inner blocks too; only registers that something uses.
    pub registers: Vec<Register>,
    /// Its `.local` variables and the `.param` variables of its calls.
    pub variables: Vec<Variable>,
    /// Its labels.
    pub labels: Vec<Label>,
    /// What it does; `None` for an external function such as `vprintf`.
    pub body: Option<Vec<Statement>>,
    /// Bytes of its own `.local` variables.
    pub frame_bytes: u32,
    /// Alignment of the frame in bytes.
    pub frame_align: u32,
    /// Whether something takes its address.
    pub address_taken: bool,
    /// `.noreturn`
    pub no_return: bool,
    /// Line of its declaration.
    pub line: u32,
}

impl Function {
    /// Whether a call through a pointer with this signature can lead here.
    pub fn fits(&self, signature: &Signature) -> bool {
        let same = |own: &[Formal], wanted: &[Formal]| {
            own.iter().map(|formal| formal.size).eq(wanted.iter().map(|formal| formal.size))
        };
        self.address_taken
            && !self.is_entry
            && same(&self.params, &signature.params)
            && same(&self.returns, &signature.returns)
    }
}

/// A formal parameter or a return value.
#[derive(Debug, Clone)]
pub struct Formal {
    /// The name in PTX; empty for `_`.
    pub name: String,
    /// The register that holds it, where it is declared `.reg` and not `.param`.
    pub register: Option<RegisterId>,
    /// Type of one element.
    pub ty: Type,
    /// Bytes from the start of the block of parameters (of a kernel) or of the list (of a function).
    pub offset: u32,
    /// Bytes.
    pub size: u32,
    /// Bytes, a power of two.
    pub align: u32,
    /// Whether it is an array of `ty`.
    pub is_array: bool,
}

/// What an indirect call passes: a `.callprototype`.
#[derive(Debug, Clone)]
pub struct Signature {
    /// The values it returns.
    pub returns: Vec<Formal>,
    /// Its parameters.
    pub params: Vec<Formal>,
}

/// A register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Register {
    /// The name in PTX, with its `%`. Registers of different inner blocks may share one.
    pub name: String,
    /// Type of one component.
    pub ty: Type,
    /// Components: 1, or 2 or 4 where it is declared `.v2` or `.v4`.
    pub lanes: u8,
}

/// A `.local` variable, or a `.param` variable of a call.
#[derive(Debug, Clone)]
pub struct Variable {
    /// The name in PTX. Variables of different inner blocks may share one.
    pub name: String,
    /// [`Space::Local`] or [`Space::Param`].
    pub space: Space,
    /// Type of one element.
    pub ty: Type,
    /// Bytes.
    pub size: u32,
    /// Bytes, a power of two.
    pub align: u32,
    /// For a `.local` variable: bytes from the start of the function's frame.
    pub offset: u32,
}

/// A label.
#[derive(Debug, Clone)]
pub struct Label {
    /// The name in PTX. Labels of different inner blocks may share one.
    pub name: String,
    /// Index into [`Function::body`] of its [`Statement::Label`].
    pub position: u32,
}

/// One thing in a body.
#[derive(Debug, Clone)]
pub enum Statement {
    /// Here is a label.
    Label(LabelId),
    /// Do this.
    Instruction(Instruction),
}
