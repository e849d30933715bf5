//! What a kernel argument accepts, derived from what the compiler reported.

use penstock_cl_sys::*;
use penstock_wire::describe::ArgDescription;

/// What a kernel argument accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArgKind {
    /// A size of local memory.
    Local,
    /// A buffer or an address in shared virtual memory: a pointer to global or constant memory.
    Buffer,
    Image {
        /// `cl_mem_object_type`, derived from the type name.
        image_type: cl_mem_object_type,
        /// `read_only`: a write-only image is refused.
        reads: bool,
        /// `write_only`: a read-only image is refused.
        writes: bool,
    },
    Pipe,
    Sampler,
    /// Queue on the device.
    Queue,
    /// Value of this size in bytes.
    Value(usize),
    /// A value of a type that only the compiler knows.
    AnyValue,
    /// Nothing is known; the value given decides.
    Unknown,
}

impl ArgKind {
    /// Returns what the argument `info` accepts. `known` says whether `info` holds anything.
    pub(crate) fn of(info: &ArgDescription, known: bool) -> Self {
        if !known {
            return Self::Unknown;
        }
        if info.type_qualifier & CL_KERNEL_ARG_TYPE_PIPE != 0 {
            return Self::Pipe;
        }
        // Some compilers put qualifiers before an image's type.
        let name = info.type_name.trim();
        let last_word = name.rsplit(' ').next().unwrap_or(name);
        if let Some(image_type) = image_type(last_word) {
            let reads = info.access == CL_KERNEL_ARG_ACCESS_READ_ONLY;
            let writes = info.access == CL_KERNEL_ARG_ACCESS_WRITE_ONLY;
            return Self::Image { image_type, reads, writes };
        }
        match (info.address, name) {
            (CL_KERNEL_ARG_ADDRESS_LOCAL, _) => Self::Local,
            (_, "sampler_t") => Self::Sampler,
            (_, "queue_t") => Self::Queue,
            (CL_KERNEL_ARG_ADDRESS_GLOBAL | CL_KERNEL_ARG_ADDRESS_CONSTANT, _) => Self::Buffer,
            _ => value_size(name).map_or(Self::AnyValue, Self::Value),
        }
    }
}

/// Returns the object type of `image2d_t` and similar names.
fn image_type(name: &str) -> Option<cl_mem_object_type> {
    let shape = name.strip_prefix("image")?.strip_suffix("_t")?;
    // The qualifiers `depth` and `msaa` do not change the object type.
    Some(match shape.trim_end_matches("_depth").trim_end_matches("_msaa") {
        "1d" => CL_MEM_OBJECT_IMAGE1D,
        "1d_buffer" => CL_MEM_OBJECT_IMAGE1D_BUFFER,
        "1d_array" => CL_MEM_OBJECT_IMAGE1D_ARRAY,
        "2d" => CL_MEM_OBJECT_IMAGE2D,
        "2d_array" | "2d_array_msaa" => CL_MEM_OBJECT_IMAGE2D_ARRAY,
        "3d" => CL_MEM_OBJECT_IMAGE3D,
        _ => return None,
    })
}

/// Returns the size in bytes of a built-in type of OpenCL C: a scalar, or a vector (vectors of
/// three count as four).
fn value_size(name: &str) -> Option<usize> {
    if name.contains('*') {
        // Without an address qualifier a pointer is an address.
        return None;
    }
    let digits = name.len() - name.trim_end_matches(|letter: char| letter.is_ascii_digit()).len();
    let (scalar, lanes) = name.split_at(name.len() - digits);
    let size = match scalar.trim() {
        "char" | "uchar" | "unsigned char" | "signed char" => 1,
        "short" | "ushort" | "unsigned short" | "half" => 2,
        "int" | "uint" | "unsigned int" | "unsigned" | "float" => 4,
        "long" | "ulong" | "unsigned long" | "double" => 8,
        // `size_t` and the like depend on the device's address size; `bool` is not allowed as
        // argument.
        _ => return None,
    };
    match lanes {
        "" => Some(size),
        "2" => Some(size * 2),
        "3" | "4" => Some(size * 4),
        "8" => Some(size * 8),
        "16" => Some(size * 16),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(address: u32, type_name: &str) -> ArgKind {
        let info =
            ArgDescription { address, type_name: type_name.into(), ..ArgDescription::default() };
        ArgKind::of(&info, true)
    }

    #[test]
    fn built_in_types_have_their_size() {
        for (name, size) in [
            ("int", 4),
            ("uint", 4),
            ("float4", 16),
            ("float3", 16),
            ("double16", 128),
            ("uchar2", 2),
            ("half8", 16),
            ("unsigned long", 8),
        ] {
            assert_eq!(kind(CL_KERNEL_ARG_ADDRESS_PRIVATE, name), ArgKind::Value(size), "{name}");
        }
    }

    #[test]
    fn types_of_the_program_are_passed_as_they_are() {
        for name in ["struct s", "my_t", "size_t", "float5", "int2x", ""] {
            assert_eq!(kind(CL_KERNEL_ARG_ADDRESS_PRIVATE, name), ArgKind::AnyValue, "{name}");
        }
    }

    #[test]
    fn objects_are_told_by_address_and_name() {
        assert_eq!(kind(CL_KERNEL_ARG_ADDRESS_GLOBAL, "float*"), ArgKind::Buffer);
        assert_eq!(kind(CL_KERNEL_ARG_ADDRESS_CONSTANT, "int*"), ArgKind::Buffer);
        assert_eq!(kind(CL_KERNEL_ARG_ADDRESS_LOCAL, "int*"), ArgKind::Local);
        assert_eq!(kind(CL_KERNEL_ARG_ADDRESS_PRIVATE, "sampler_t"), ArgKind::Sampler);
        let image =
            ArgKind::Image { image_type: CL_MEM_OBJECT_IMAGE2D_ARRAY, reads: false, writes: false };
        assert_eq!(kind(CL_KERNEL_ARG_ADDRESS_GLOBAL, "image2d_array_t"), image);
        assert_eq!(ArgKind::of(&ArgDescription::default(), false), ArgKind::Unknown);
    }
}
