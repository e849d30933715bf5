//! The code that each entry of the table of calls generates.

macro_rules! calls {
    ($(#[$module_doc:meta])* mod $module:ident / $handler:ident;
     $($(#[$doc:meta])* $code:literal $name:ident $(-> $reply:ty)? [$rule:expr] {
        $($(#[$field_doc:meta])* $field:ident: $ty:ty),* $(,)?
     })*) => {
        $(#[$module_doc])*
        #[allow(missing_debug_implementations, reason = "zerocopy derives types without Debug")]
        pub mod $module {
            #[allow(unused_imports, reason = "not every direction uses every type")]
            use super::*;

            $(
                $(#[$doc])*
                #[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
                #[repr(C)]
                pub struct $name { $($(#[$field_doc])* pub $field: $ty),* }

                impl Call for $name {
                    const OPCODE: u16 = $code;
                    const NAME: &'static str = stringify!($name);
                    const PAYLOAD: PayloadRule = $rule;
                }

                $(impl Request for $name {
                    type Reply = $reply;
                    fn set_request(&mut self, request: Id<kind::Request>) {
                        self.request = request;
                    }
                })?
            )*

            /// Serves every call of this direction.
            pub trait $handler: $(Serve<$name> +)* {}
            impl<T: $(Serve<$name> +)*> $handler for T {}

            /// Name, body size and payload rule of every opcode of this direction.
            pub const TABLE: &[(u16, &str, usize, PayloadRule)] =
                &[$(($code, stringify!($name), size_of::<$name>(), $rule)),*];

            /// Checks a header from a peer.
            ///
            /// # Errors
            /// If the opcode is unknown, or a size is not the one in the table.
            pub fn check(header: &Header) -> Result<(), FrameError> {
                match header.opcode.get() {
                    $($code => header.check(stringify!($name), size_of::<$name>(), $rule),)*
                    unknown => Err(FrameError::UnknownOpcode(unknown)),
                }
            }

            /// Returns the fields of a call as text, for people who read a trace. Returns `None` if
            /// the opcode is unknown or the body does not have its size.
            pub fn show(opcode: u16, body: &[u8]) -> Option<Shown> {
                match opcode {
                    $($code => {
                        #[allow(unused_variables, reason = "some calls have no fields")]
                        let call = $name::read_from_bytes(body).ok()?;
                        Some(Shown {
                            name: stringify!($name),
                            fields: vec![$((stringify!($field), call.$field.show())),*],
                        })
                    })*
                    _ => None,
                }
            }

            /// Passes a frame to the handler of its call.
            ///
            /// # Errors
            /// Those of [`check`], and the handler's errors, which end the session.
            pub fn dispatch(
                handler: &mut impl $handler,
                frame: &Frame<'_>,
                payload: &mut dyn Payload,
            ) -> Result<(), FrameError> {
                check(&frame.header)?;
                match frame.header.opcode.get() {
                    $($code => {
                        let call = $name::read_from_bytes(frame.body).map_err(|_| FrameError::Broken)?;
                        handler.serve(&call, Attached { waits: frame.waits, payload })
                    })*
                    unknown => Err(FrameError::UnknownOpcode(unknown)),
                }
            }
        }
    };
}
pub(super) use calls;
