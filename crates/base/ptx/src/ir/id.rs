//! Typed indices into the tables of a module and of a function.

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident;)*) => { $(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);

        impl $name {
            /// Returns the index into the table.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }
    )* };
}

ids! {
    /// A typed index into [`Function::registers`](crate::ir::Function::registers).
    RegisterId;
    /// A typed index into [`Function::labels`](crate::ir::Function::labels).
    LabelId;
    /// A typed index into [`Function::variables`](crate::ir::Function::variables).
    VariableId;
    /// A typed index into [`Module::functions`](crate::ir::Module::functions).
    FunctionId;
    /// A typed index into [`Module::globals`](crate::ir::Module::globals).
    GlobalId;
    /// A typed index into [`Module::shared`](crate::ir::Module::shared).
    SharedId;
}
