//! Tests of what queries select from the inventory `fixtures/cluster.json`: 0 is PoCL on the head
//! node, 1 a Tesla K20c there, 2 a GTX 480 on mc2, 3 a Cypress (AMD) on mc2, 4 an FPGA on mc3.

use crate::common;
use penstock_dql::{Attribute, Listed, Query, Selection, Value};

#[track_caller]
fn selects(text: &str, expected: &[usize]) {
    let query = Query::parse(text).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(query.select(&common::inventory("cluster")), expected, "{text}");
}

/// Checks the devices for which a condition holds, and those for which its opposite holds.
#[track_caller]
fn splits(condition: &str, holds: &[usize], fails: &[usize]) {
    selects(&format!("SELECT WHERE {condition}"), holds);
    selects(&format!("SELECT WHERE NOT ({condition})"), fails);
}

#[test]
fn the_published_queries_work() {
    selects("SELECT ALL WHERE (type = gpu AND vendor = nvidia)", &[1, 2]);
    selects("SELECT POS 1 FROM NODE 0 WHERE global_memory > 1024MB", &[0]);
    selects("SELECT POS 1 FROM NODE 1 WHERE global_memory > 1024MB", &[2]);
    // Each of these nodes has one GPU of this vendor, and the first position is 1.
    selects("SELECT POS 1 FROM NODE mc2 WHERE type = gpu AND vendor = nvidia", &[2]);
    selects("SELECT POS 2 FROM NODE mc2 WHERE type = gpu AND vendor = nvidia", &[]);
}

#[test]
fn all_is_the_default() {
    for text in [
        "SELECT",
        "select all",
        "SELECT ALL;",
        "(SELECT)",
        "((SELECT ALL));",
        " \n SELECT\tALL \n ; ",
    ] {
        selects(text, &[0, 1, 2, 3, 4]);
        assert_eq!(Query::parse(text).unwrap().selection(), Selection::All);
    }
}

#[test]
fn positions_are_counted_from_1_in_the_order_of_the_query() {
    selects("SELECT POS 1", &[0]);
    selects("SELECT POS 5", &[4]);
    selects("SELECT POS 6", &[]);
    selects("SELECT POS 18446744073709551615", &[]);
    selects("SELECT POS 1 WHERE type = gpu ORDER BY clock DESC", &[2]);
    assert_eq!(Query::parse("SELECT POS 2").unwrap().selection(), Selection::Position(2));
}

#[test]
fn top_takes_at_most_as_many() {
    selects("SELECT TOP 2 ORDER BY global_memory DESC", &[0, 1]);
    selects("SELECT TOP 100 WHERE type = gpu", &[1, 2, 3]);
    selects("SELECT TOP 0", &[]);
}

#[test]
fn nodes_are_ranks_ranges_and_host_names() {
    selects("SELECT FROM NODE 1", &[2, 3]);
    selects("SELECT FROM NODE 0, 2", &[0, 1, 4]);
    selects("SELECT FROM NODE 1-2", &[2, 3, 4]);
    selects("SELECT FROM NODE MC2, 'mc3'", &[2, 3, 4]);
    selects("SELECT FROM NODE head", &[0, 1]);
    selects("SELECT FROM NODE head.cluster.org", &[0, 1]);
    selects("SELECT FROM NODE head.cluster", &[]);
    selects("SELECT FROM NODE 7", &[]);
    selects("SELECT WHERE node = 1 OR node = mc3", &[2, 3, 4]);
    selects("SELECT WHERE node IN (0, mc3)", &[0, 1, 4]);
    selects("SELECT WHERE node >= 1 AND node LIKE 'mc_'", &[2, 3, 4]);
    selects("SELECT WHERE hostname = head AND rank = 0", &[0, 1]);
}

#[test]
fn nothing_is_chosen_from_nodes_that_are_not_known() {
    let stranger = Listed::new().with(Attribute::find("name").unwrap(), Value::from("x"));
    assert_eq!(Query::parse("SELECT FROM NODE 0, x").unwrap().holds(&stranger), None);
    assert_eq!(Query::parse("SELECT").unwrap().select(&[stranger]), [0]);
}

#[test]
fn numbers_compare() {
    splits("compute_units = 13", &[1], &[0, 2, 3, 4]);
    splits("compute_units != 13", &[0, 2, 3, 4], &[1]);
    splits("compute_units <> 13", &[0, 2, 3, 4], &[1]);
    splits("compute_units == 13", &[1], &[0, 2, 3, 4]);
    splits("compute_units < 13", &[0, 4], &[1, 2, 3]);
    splits("compute_units <= 13", &[0, 1, 4], &[2, 3]);
    splits("compute_units > 13.5", &[2, 3], &[0, 1, 4]);
    splits("compute_units >= 15", &[2, 3], &[0, 1, 4]);
    splits("compute_units > -1", &[0, 1, 2, 3, 4], &[]);
    splits("vendor_id = 0x10de", &[1, 2], &[0, 3, 4]);
    splits("CL_DEVICE_MAX_COMPUTE_UNITS = 20", &[3], &[0, 1, 2, 4]);
}

#[test]
fn sizes_have_binary_units() {
    for size in [
        "1073741824",
        "1073741824B",
        "1048576KB",
        "1024MB",
        "1024 mb",
        "1GB",
        "1GiB",
        "1024MiB",
        "1.0GB",
    ] {
        selects(&format!("SELECT WHERE memory = {size}"), &[3]);
    }
    selects("SELECT WHERE memory > 1.5GB", &[0, 1, 4]);
    selects("SELECT WHERE memory < 0.001TB", &[3]);
    selects("SELECT WHERE local_memory = 48KB", &[1, 2]);
}

#[test]
fn frequencies_are_mhz_and_have_decimal_units() {
    for clock in ["705", "705MHz", "705000 kHz", "0.705GHz", "705000000hz"] {
        selects(&format!("SELECT WHERE clock = {clock}"), &[1]);
    }
    selects("SELECT WHERE clock >= 1.401GHz", &[0, 2]);
}

#[test]
fn in_and_between_are_short_for_comparisons() {
    splits("compute_units IN (2, 13, 99)", &[0, 1], &[2, 3, 4]);
    splits("compute_units NOT IN (2, 13)", &[2, 3, 4], &[0, 1]);
    splits("compute_units BETWEEN 13 AND 15", &[1, 2], &[0, 3, 4]);
    splits("compute_units NOT BETWEEN 13 AND 15", &[0, 3, 4], &[1, 2]);
    splits("memory BETWEEN 1GB AND 2GB", &[2, 3, 4], &[0, 1]);
    splits("type IN (cpu, accelerator)", &[0, 4], &[1, 2, 3]);
    // The AND of BETWEEN does not join conditions.
    splits("compute_units BETWEEN 13 AND 15 AND type = gpu", &[1, 2], &[0, 3, 4]);
}

#[test]
fn and_binds_before_or_and_not_before_both() {
    selects("SELECT WHERE type = cpu OR type = gpu AND vendor = amd", &[0, 3]);
    selects("SELECT WHERE (type = cpu OR type = gpu) AND vendor = amd", &[3]);
    selects("SELECT WHERE NOT type = gpu AND rank = 2", &[4]);
    selects("SELECT WHERE NOT (type = gpu AND rank = 1)", &[0, 1, 4]);
    selects("SELECT WHERE NOT NOT NOT type = gpu", &[0, 4]);
}

#[test]
fn types_have_names() {
    splits("type = GPU", &[1, 2, 3], &[0, 4]);
    splits("type != 'gpu'", &[0, 4], &[1, 2, 3]);
    selects("SELECT WHERE type = custom", &[]);
    splits("local_mem_type = local", &[1, 2, 3], &[0]);
    // Another bit says that it is the default device.
    let default = Listed::new().with(Attribute::find("type").unwrap(), Value::Int(4 | 1));
    assert_eq!(Query::parse("SELECT WHERE type = gpu").unwrap().select(&[default]), [0]);
}

#[test]
fn a_bare_word_may_be_part_of_a_text() {
    splits("vendor = corporation", &[1, 2, 4], &[0, 3]);
    splits("name = K20C", &[1], &[0, 2, 3, 4]);
    splits("name = K20", &[], &[0, 1, 2, 3, 4]);
    splits("name = skylake", &[0], &[1, 2, 3, 4]);
    splits("platform = 'nvidia cuda'", &[1, 2], &[0, 3, 4]);
    splits("name = 'tesla k20c'", &[1], &[0, 2, 3, 4]);
    splits("name = \"Tesla\"", &[], &[0, 1, 2, 3, 4]);
    splits("name = 'it''s a board'", &[4], &[0, 1, 2, 3]);
    splits("name = \"IT's a board\"", &[4], &[0, 1, 2, 3]);
}

#[test]
fn vendors_are_known_by_their_number_too() {
    // PoCL's vendor is GenuineIntel, and its identifier matches. The FPGA has another identifier,
    // but its text matches.
    splits("vendor = intel", &[0, 4], &[1, 2, 3]);
    splits("vendor = amd", &[3], &[0, 1, 2, 4]);
    splits("vendor != NVIDIA", &[0, 3, 4], &[1, 2]);
    splits("vendor IN (amd, nvidia)", &[1, 2, 3], &[0, 4]);
    splits("vendor = 'intel'", &[], &[0, 1, 2, 3, 4]);
    let nameless = Listed::new().with(Attribute::find("vendor_id").unwrap(), Value::Int(0x10DE));
    let of =
        |vendor| Query::parse(&format!("SELECT WHERE vendor = {vendor}")).unwrap().holds(&nameless);
    assert_eq!((of("nvidia"), of("amd")), (Some(true), None));
}

#[test]
fn patterns_match() {
    splits("name LIKE 'geforce%'", &[2], &[0, 1, 3, 4]);
    splits("name LIKE '%k20_'", &[1], &[0, 2, 3, 4]);
    splits("name NOT LIKE '%e%'", &[4], &[0, 1, 2, 3]);
    splits("version LIKE '%cuda'", &[1, 2], &[0, 3, 4]);
    splits("extensions LIKE '%cl_nv_%'", &[1], &[0, 2, 3]);
}

#[test]
fn sets_have_members() {
    splits("extensions HAS cl_khr_fp64", &[0, 1, 2], &[3]);
    splits("extensions HAS 'CL_AMD_FP64'", &[3], &[0, 1, 2]);
    splits("extensions HAS cl_khr", &[], &[0, 1, 2, 3]);
    splits("extensions NOT HAS cl_khr_fp64", &[3], &[0, 1, 2]);
    splits("built_in_kernels HAS pocl.add.i8", &[0], &[1]);
    splits("opencl_c_features HAS __opencl_c_fp64", &[0], &[]);
    splits("opencl_c_all_versions HAS 1.2", &[0], &[]);
    selects("SELECT WHERE opencl_c_all_versions HAS 2.0", &[]);
    splits("double_fp_config HAS fma", &[0, 1, 2], &[3]);
    splits("single_fp_config HAS soft_float", &[], &[0]);
    splits("double_fp_config HAS 3", &[0, 1, 2], &[3]);
    splits("double_fp_config = 0", &[3], &[0, 1, 2]);
    splits("svm_capabilities HAS Atomics", &[0], &[]);
    splits("partition_properties HAS equally", &[0], &[1]);
    splits("max_work_item_sizes HAS 64", &[1, 2], &[0, 3]);
}

#[test]
fn members_of_lists_have_an_index() {
    splits("max_work_item_sizes[2] >= 256", &[0, 3], &[1, 2]);
    splits("max_work_item_sizes[3] >= 0", &[], &[]);
    selects(
        "SELECT WHERE max_work_item_sizes[0] IS NOT NULL ORDER BY max_work_item_sizes[2], name",
        &[2, 1, 3, 0],
    );
}

#[test]
fn versions_compare_by_number() {
    splits("version >= 1.2", &[0, 1, 3], &[2, 4]);
    splits("version = 3.0", &[0, 1], &[2, 3, 4]);
    splits("version > 2", &[0, 1], &[2, 3, 4]);
    splits("driver_version >= 390.200", &[1, 3], &[0, 2]);
    splits("driver_version = 535.154.5", &[1], &[0, 2, 3]);
    splits("driver_version > '400'", &[1, 3], &[0, 2]);
    splits("driver_version = '535.154.05'", &[1], &[0, 2, 3]);
    splits("driver_version = debian", &[0], &[1, 2, 3]);
    splits("numeric_version BETWEEN 2.0 AND 3.0.0", &[0, 1], &[]);
    splits("platform_version < 3", &[2, 3], &[0, 1]);
}

#[test]
fn truth_needs_no_comparison() {
    splits("image_support", &[0, 1, 2, 3], &[4]);
    splits("NOT image_support", &[4], &[0, 1, 2, 3]);
    splits("available = TRUE", &[0, 1, 2], &[3]);
    splits("available != true", &[3], &[0, 1, 2]);
    splits("available = 0", &[3], &[0, 1, 2]);
    splits("local", &[0, 1], &[2, 3, 4]);
    splits("shared AND local", &[0], &[1, 2, 3, 4]);
}

#[test]
fn what_is_unknown_is_neither_true_nor_false() {
    splits("load > 1", &[2, 3], &[0, 1]);
    splits("load IS NULL", &[4], &[0, 1, 2, 3]);
    splits("load IS NOT NULL", &[0, 1, 2, 3], &[4]);
    // One side decides, whatever the other is.
    splits("load > 1 OR rank = 2", &[2, 3, 4], &[0, 1]);
    splits("load > 1 AND rank = 2", &[], &[0, 1, 2, 3]);
    splits("load > 1 AND rank != 2", &[2, 3], &[0, 1, 4]);
    splits("load IN (1.5, 0.25)", &[0, 1, 2, 3], &[]);
    splits("link_latency < 100 OR bandwidth > 1GB", &[], &[]);
    selects("SELECT WHERE link_latency IS NULL AND free_memory >= 3GB", &[2]);
}

#[test]
fn a_number_that_is_not_finite_is_unknown() {
    let load = Attribute::find("load").unwrap();
    let devices =
        [f64::NAN, f64::INFINITY, 1.0].map(|value| Listed::new().with(load, Value::Float(value)));
    assert_eq!(Query::parse("SELECT WHERE load >= 0").unwrap().select(&devices), [2]);
}

#[test]
fn the_order_is_that_of_the_keys_then_of_the_nodes() {
    selects("SELECT ORDER BY compute_units", &[4, 0, 1, 2, 3]);
    selects("SELECT ORDER BY compute_units ASC", &[4, 0, 1, 2, 3]);
    selects("SELECT ORDER BY type DESC, memory", &[4, 3, 2, 1, 0]);
    selects("SELECT ORDER BY vendor, clock DESC", &[3, 0, 4, 2, 1]);
    selects("SELECT ORDER BY local DESC, node DESC", &[0, 1, 4, 2, 3]);
    selects("SELECT ORDER BY driver_version DESC", &[3, 1, 2, 0, 4]);
    // Without keys devices are ordered by rank and index in the node, however they were given.
    let mut devices = common::inventory("cluster");
    devices.reverse();
    assert_eq!(Query::parse("SELECT").unwrap().select(&devices), [4, 3, 2, 1, 0]);
}

#[test]
fn what_is_unknown_comes_last() {
    selects("SELECT ORDER BY load", &[0, 1, 2, 3, 4]);
    selects("SELECT ORDER BY load DESC", &[2, 3, 0, 1, 4]);
    selects("SELECT ORDER BY clock", &[1, 3, 2, 0, 4]);
}

#[test]
fn keywords_and_names_have_no_case() {
    selects("sElEcT top 1 fRoM nOdE 1 wHeRe TyPe = gPu oRdEr bY Clock dEsC", &[2]);
}

#[test]
fn each_attribute_can_be_asked_for_and_printed() {
    for attribute in Attribute::all() {
        let query = Query::parse(&format!("SELECT WHERE {attribute} IS NULL")).unwrap();
        assert_eq!(query.to_string(), format!("SELECT ALL WHERE {attribute} IS NULL"));
    }
}

#[test]
fn the_canonical_text_is_short_and_whole() {
    for (text, canonical) in [
        ("select", "SELECT ALL"),
        ("(SELECT top 3);", "SELECT TOP 3"),
        ("SELECT FROM NODE 1-1, 2 - 4, Mc2, \"x y\"", "SELECT ALL FROM NODE 1, 2-4, Mc2, 'x y'"),
        ("SELECT WHERE ((memory > 1024 mb))", "SELECT ALL WHERE global_mem_size > 1024MB"),
        (
            "SELECT WHERE (type = GPU) and (local and shared)",
            "SELECT ALL WHERE type = gpu AND local AND shared",
        ),
        (
            "SELECT WHERE local AND (shared OR available)",
            "SELECT ALL WHERE local AND (shared OR available)",
        ),
        ("SELECT WHERE NOT (local OR shared)", "SELECT ALL WHERE NOT (local OR shared)"),
        ("SELECT WHERE NOT name LIKE 'a''b%'", "SELECT ALL WHERE name NOT LIKE 'a''b%'"),
        ("SELECT WHERE load IS NOT NULL", "SELECT ALL WHERE load IS NOT NULL"),
        (
            "SELECT WHERE version == 3 AND load <> 1.50",
            "SELECT ALL WHERE version = 3.0 AND load != 1.5",
        ),
        (
            "SELECT ORDER BY clock ASC, units desc",
            "SELECT ALL ORDER BY max_clock_frequency, max_compute_units DESC",
        ),
        ("SELECT WHERE vendor_id IN (0x10DE,-1)", "SELECT ALL WHERE vendor_id IN (4318, -1)"),
        (
            "SELECT WHERE max_work_item_sizes[0] NOT BETWEEN 1 AND 2",
            "SELECT ALL WHERE max_work_item_sizes[0] NOT BETWEEN 1 AND 2",
        ),
    ] {
        assert_eq!(Query::parse(text).unwrap().to_string(), canonical);
    }
}
