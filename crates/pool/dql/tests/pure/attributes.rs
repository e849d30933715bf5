//! Compares the table of attributes with the constants of OpenCL.

use std::collections::HashMap;
use std::path::Path;

use penstock_dql::{Attribute, Source};

/// Queries whose answers are useless in DQL: handles, and identifiers of 8 and 16 bytes.
const LEFT_OUT: &[u32] = &[0x1031, 0x1042, 0x106A, 0x106B, 0x106C, 0x106D, 0x106E];

/// The last query of OpenCL 3.0. Later numbers belong to extensions.
const CORE_LAST: u32 = 0x1072;

/// Returns the constants by name, in lower case without `CL_DEVICE_`.
fn constants() -> HashMap<String, u32> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../base/cl-sys/src/generated.rs");
    let text = std::fs::read_to_string(path).unwrap();
    let mut constants: HashMap<_, _> = text
        .lines()
        .filter_map(|line| {
            line.strip_prefix("pub const CL_DEVICE_")?.strip_suffix(';')?.split_once(": u32 = ")
        })
        .filter_map(|(name, number)| Some((name.to_lowercase(), number.parse().ok()?)))
        .collect();
    constants.insert("driver_version".into(), 0x102D);
    constants
}

#[test]
fn each_attribute_has_the_number_that_opencl_gives_its_name() {
    let constants = constants();
    for attribute in Attribute::all() {
        if let Source::Info(number) = attribute.source() {
            assert_eq!(constants.get(attribute.name()), Some(&number), "{attribute}");
        }
    }
}

#[test]
fn no_query_of_opencl_3_0_is_left_out() {
    let known: Vec<_> = Attribute::all().map(Attribute::source).collect();
    let core = constants().into_iter().filter(|(_, number)| (0x1000..=CORE_LAST).contains(number));
    let mut count = 0;
    for (name, number) in core.filter(|(_, number)| !LEFT_OUT.contains(number)) {
        assert!(
            known.contains(&Source::Info(number)),
            "CL_DEVICE_{} is left out",
            name.to_uppercase()
        );
        count += 1;
    }
    assert!(count > 100, "only {count} constants: the search is broken");
}

#[test]
fn flags_have_the_numbers_of_opencl() {
    let value = |attribute: &str, name: &str| {
        let names = Attribute::find(attribute).unwrap().kind().names();
        names.iter().find(|named| named.name == name).map(|named| named.value)
    };
    for (attribute, name, number) in [
        ("type", "accelerator", 8),
        ("double_fp_config", "fma", 32),
        ("half_fp_config", "correctly_rounded_divide_sqrt", 128),
        ("global_mem_cache_type", "read_write", 2),
        ("local_mem_type", "global", 2),
        ("execution_capabilities", "native_kernel", 2),
        ("queue_properties", "profiling", 2),
        ("partition_properties", "by_affinity_domain", 0x1088),
        ("partition_affinity_domain", "next_partitionable", 32),
        ("svm_capabilities", "atomics", 8),
        ("atomic_fence_capabilities", "scope_all_devices", 64),
        ("device_enqueue_capabilities", "replaceable_default", 2),
    ] {
        assert_eq!(value(attribute, name), Some(number), "{attribute} {name}");
    }
}
