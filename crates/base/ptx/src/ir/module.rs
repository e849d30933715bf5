use super::id::{FunctionId, LabelId};
use super::instruction::Instruction;
use super::signature::{Formal, Signature};
use super::types::{Space, Type};
use crate::error::ParseError;

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
    /// Creates a module whose kernels and variables are known but whose code is not: a driver has
    /// loaded it. The driver decides where the variables' offsets start.
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

    /// Returns the kernels, in the order of the text.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the `.global` and `.const` variables, in the order of the text. They lie in
    /// [`Module::data`].
    pub fn globals(&self) -> &[Global] {
        &self.globals
    }

    /// Returns the initial content of the module's data block.
    pub fn data(&self) -> &ModuleData {
        &self.data
    }

    /// Returns the major and minor number of `.version`.
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    /// Returns the number of `.target`: 75 for `sm_75`, 90 for `sm_90a`.
    pub fn target(&self) -> u32 {
        self.target
    }

    /// Returns kernels and device functions, including external ones, in the order of the text.
    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    pub fn function(&self, id: FunctionId) -> &Function {
        &self.functions[id.index()]
    }

    /// Returns the `.shared` variables of the module and of its functions.
    pub fn shared(&self) -> &[SharedVariable] {
        &self.shared
    }
}

/// A kernel, with the properties that a launch needs. Sizes are in bytes.
#[derive(Debug, Clone)]
pub struct Entry {
    pub name: String,
    pub params: Vec<Param>,
    /// Size of all parameters, without padding behind the last.
    pub params_size: u32,
    /// Static shared memory, including that of the functions it calls. If the kernel uses dynamic
    /// shared memory, this is the offset at which that starts, and a multiple of its alignment.
    pub static_shared: u32,
    /// Local memory of a thread: that of the kernel and of the deepest chain of calls.
    pub local_bytes: u32,
    /// Product of the numbers of `.maxntid`.
    pub max_threads: Option<u32>,
    /// Numbers of `.reqntid`; missing ones are 1.
    pub required: Option<[u32; 3]>,
    /// Whether the kernel, or a function it calls, names an `.extern .shared` variable.
    pub uses_dynamic_shared: bool,
    pub function: FunctionId,
    /// Functions that the kernel can reach by calls, without the kernel itself, callees before
    /// callers. If the code has indirect calls, a function whose address is taken counts as called.
    pub callees: Vec<FunctionId>,
    /// Whether a function that the kernel reaches can call itself.
    pub recursive: bool,
}

/// Position of a kernel's parameter in its block of parameters, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Param {
    pub offset: u32,
    pub size: u32,
    /// A power of two.
    pub align: u32,
}

/// A `.global` or `.const` variable. Sizes are in bytes.
#[derive(Debug, Clone)]
pub struct Global {
    /// The name in PTX; empty for an unused variable of another module.
    pub name: String,
    /// Offset from the start of the module's data block.
    pub offset: u64,
    pub size: u64,
    pub is_const: bool,
    /// Whether the host uses it at the same address (`.attribute(.managed)`).
    pub is_managed: bool,
    /// Kind of a `.texref`, `.samplerref` or `.surfref`. Such a variable is a handle of 8 bytes.
    pub opaque: Option<Opaque>,
}

/// Kind of a variable that is a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opaque {
    Texture,
    Sampler,
    Surface,
}

/// The module's data block, which holds all `.global` and `.const` variables. Sizes are in bytes.
#[derive(Debug, Clone, Default)]
pub struct ModuleData {
    pub size: u64,
    /// Alignment of the block's start, a power of two.
    pub align: u64,
    /// The first bytes of the block; the rest, up to `size`, is zero. Bytes under a relocation are
    /// zero.
    pub bytes: Vec<u8>,
    pub relocations: Vec<Relocation>,
}

/// Instruction to write the address of the data block plus `target` at `offset`, as `width` bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Relocation {
    /// Offset from the start of the block, in bytes.
    pub offset: u64,
    /// Bytes from the start of the block. It may lie outside: a program may store an address before
    /// or behind a variable.
    pub target: i64,
    /// Number of bytes to write: 8, or 4 if only the lower half is stored.
    pub width: u8,
}

/// A `.shared` variable. It has the same offset in every kernel that uses it; variables that no
/// kernel shares may overlap. Sizes are in bytes.
#[derive(Debug, Clone)]
pub struct SharedVariable {
    pub name: String,
    /// Size of the variable; 0 if it is dynamic.
    pub size: u32,
    /// A power of two.
    pub align: u32,
    /// Offset from the start of the block's shared memory. 0 for a dynamic variable, which starts
    /// at the kernel's [`Entry::static_shared`].
    pub offset: u32,
    /// Whether the declaration is `.extern .shared x[]`, whose size the launch determines.
    pub dynamic: bool,
}

#[derive(Debug, Clone)]
pub struct Function {
    pub name: String,
    pub is_entry: bool,
    /// The return values; compilers write at most one.
    pub returns: Vec<Formal>,
    pub params: Vec<Formal>,
    /// Registers, including those of nested blocks, without those that nothing uses.
    pub registers: Vec<Register>,
    /// `.local` variables, and the `.param` variables of calls.
    pub variables: Vec<Variable>,
    pub labels: Vec<Label>,
    /// `None` for an external function such as `vprintf`.
    pub body: Option<Vec<Statement>>,
    /// Size in bytes of the function's own `.local` variables.
    pub frame_bytes: u32,
    /// Alignment of the frame in bytes.
    pub frame_align: u32,
    pub address_taken: bool,
    pub no_return: bool,
    /// Whether a thread may fail while others go on. The translation sets it.
    pub may_fail: bool,
    /// Line of the declaration, counted from 1.
    pub line: u32,
    /// The first instruction of the body that is not supported. The body lacks such instructions,
    /// so nothing that calls the function can be translated.
    pub refusal: Option<ParseError>,
}

impl Function {
    /// Whether a call through a pointer with this signature can reach the function.
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Register {
    /// The name in PTX, with its `%`. Registers of different nested blocks may have the same name.
    pub name: String,
    /// Type of one component.
    pub ty: Type,
    /// Number of components: 2 or 4 if the register is declared `.v2` or `.v4`, otherwise 1.
    pub lanes: u8,
}

/// A `.local` variable, or a `.param` variable of a call. Sizes are in bytes.
#[derive(Debug, Clone)]
pub struct Variable {
    /// The name in PTX. Variables of different nested blocks may have the same name.
    pub name: String,
    /// Either [`Space::Local`] or [`Space::Param`].
    pub space: Space,
    /// Type of one element.
    pub ty: Type,
    pub size: u32,
    /// A power of two.
    pub align: u32,
    /// Offset of a `.local` variable from the start of the function's frame.
    pub offset: u32,
}

#[derive(Debug, Clone)]
pub struct Label {
    /// The name in PTX. Labels of different nested blocks may have the same name.
    pub name: String,
    /// Index into [`Function::body`] of its [`Statement::Label`].
    pub position: u32,
}

/// An element of a function's body.
#[derive(Debug, Clone)]
pub enum Statement {
    Label(LabelId),
    Instruction(Instruction),
}
