//! Why modules cannot be linked. The words are nvlink's where it has some, because programs and
//! people search for them.

use std::fmt;

use thiserror::Error;

/// Largest number of problems that an error lists. More help nobody.
const PROBLEMS_MAX: usize = 100;

/// Number of characters of a name in a message. Names of C++ templates can have thousands.
const NAME_CHARS_MAX: usize = 500;

/// Why modules cannot be linked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Error)]
pub struct LinkError {
    problems: Vec<LinkProblem>,
    left_out: usize,
}

/// One reason why modules cannot be linked. `name` is that of the symbol, `module` and `first` are
/// those of two modules.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LinkProblem {
    /// There is nothing to link.
    #[error("no module was added to the linker")]
    NoInput,
    /// A limit of this crate is exceeded.
    #[error("more than {limit} {what} are linked")]
    TooMany { what: &'static str, limit: usize },
    /// No module defines the name.
    #[error("Undefined reference to '{name}' in '{module}'")]
    Undefined { name: String, module: String },
    /// Two modules define the name.
    #[error("Multiple definition of '{name}' in '{module}', first defined in '{first}'")]
    Twice { name: String, module: String, first: String },
    /// Two declarations of a function have different parameters or return values.
    #[error("Prototype doesn't match for '{name}' in '{module}', first defined in '{first}'")]
    Prototype { name: String, module: String, first: String },
    /// One of two declarations is that of a kernel.
    #[error("Function '{name}' not declared __global__ in all source files: '{first}', '{module}'")]
    Kernel { name: String, module: String, first: String },
    /// Two declarations of a variable have different sizes.
    #[error("Size doesn't match for '{name}' in '{module}', first specified in '{first}'")]
    Size { name: String, module: String, first: String },
    /// Two declarations are of different spaces, or one is a function.
    #[error("Memory space doesn't match for '{name}' in '{module}', first specified in '{first}'")]
    Space { name: String, module: String, first: String },
    /// Only one of two declarations has `.attribute(.managed)`.
    #[error(
        "Managed attribute doesn't match for '{name}' in '{module}', first specified in '{first}'"
    )]
    Managed { name: String, module: String, first: String },
    /// A `.common` variable is larger than the one with an initial value.
    #[error("Common symbol '{name}' in file '{module}' has larger size than initialization")]
    Common { name: String, module: String },
}

/// Returns the beginning of a name, for a message.
pub(super) fn shorten(name: &str) -> String {
    name.char_indices().nth(NAME_CHARS_MAX).map_or(name, |(at, _)| &name[..at]).to_owned()
}

impl LinkError {
    pub(super) fn of(problem: LinkProblem) -> Self {
        Self { problems: vec![problem], left_out: 0 }
    }

    pub(super) fn add(&mut self, problem: LinkProblem) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(problem);
        } else {
            self.left_out += 1;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.problems.is_empty()
    }

    /// Returns the problems, in the order in which they were found.
    pub fn problems(&self) -> &[LinkProblem] {
        &self.problems
    }
}

impl fmt::Display for LinkError {
    /// Writes one line for each problem, in the form of nvlink's messages.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            let before = if index == 0 { "" } else { "\n" };
            write!(f, "{before}error   : {problem}")?;
        }
        if self.left_out > 0 {
            write!(f, "\nerror   : {} more problems", self.left_out)?;
        }
        Ok(())
    }
}
