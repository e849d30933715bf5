//! Checks that the declarations match the header.

use std::fmt::Write as _;
use std::mem::{offset_of, size_of};
use std::process::Command;

use penstock_trial::{Need, skip};

use super::super::sys::{
    self, AmHandlerParam, AmRecvParam, EpParams, Params, RequestParam, WorkerParams,
};

/// Path of the header in Debian's package.
const HEADER: &str = "/usr/include/ucp/api/ucp.h";

/// Writes C assertions on a field's offset and on the size of its structure.
macro_rules! fields {
    ($text:ident, $c:literal, $rust:ident: $($field:ident = $name:literal),*) => {
        $(
            writeln!($text, "_Static_assert(offsetof({0}, {1}) == {2}, \"{0}.{1}\");", $c, $name, offset_of!($rust, $field)).unwrap();
        )*
        writeln!($text, "_Static_assert(sizeof({0}) >= {1}, \"{0}\");", $c, size_of::<$rust>()).unwrap();
    };
}

fn structures() -> String {
    let mut text = String::new();
    fields!(text, "ucp_params_t", Params: field_mask = "field_mask", features = "features", mt_workers_shared = "mt_workers_shared");
    fields!(text, "ucp_worker_params_t", WorkerParams: field_mask = "field_mask", thread_mode = "thread_mode", flags = "flags");
    fields!(text, "ucp_ep_params_t", EpParams: field_mask = "field_mask", address = "address", err_mode = "err_mode",
        err_cb = "err_handler.cb", err_arg = "err_handler.arg");
    fields!(text, "ucp_am_handler_param_t", AmHandlerParam: field_mask = "field_mask", id = "id", flags = "flags", cb = "cb", arg = "arg");
    fields!(text, "ucp_am_recv_param_t", AmRecvParam: recv_attr = "recv_attr");
    fields!(text, "ucp_request_param_t", RequestParam: op_attr_mask = "op_attr_mask", flags = "flags");
    text
}

fn constants() -> String {
    let size = |name: &str, value: usize| {
        format!("_Static_assert(sizeof({name}) == {value}, \"{name}\");\n")
    };
    let signed =
        |name: &str, value: i32| format!("_Static_assert({name} == {value}, \"{name}\");\n");
    let bits = |name: &str, value: u64| format!("_Static_assert({name} == {value}, \"{name}\");\n");
    [
        size("ucs_status_t", size_of::<sys::Status>()),
        size("ucs_thread_mode_t", size_of::<i32>()),
        size("ucp_err_handling_mode_t", size_of::<i32>()),
        signed("UCS_OK", sys::OK.into()),
        signed("UCS_INPROGRESS", sys::IN_PROGRESS.into()),
        signed("UCS_ERR_UNREACHABLE", sys::ERR_UNREACHABLE.into()),
        signed("UCS_THREAD_MODE_SERIALIZED", sys::THREAD_MODE_SERIALIZED),
        signed("UCP_ERR_HANDLING_MODE_NONE", sys::ERR_HANDLING_MODE_NONE),
        signed("UCP_ERR_HANDLING_MODE_PEER", sys::ERR_HANDLING_MODE_PEER),
        bits("UCP_PARAM_FIELD_FEATURES", sys::PARAM_FIELD_FEATURES),
        bits("UCP_PARAM_FIELD_MT_WORKERS_SHARED", sys::PARAM_FIELD_MT_WORKERS_SHARED),
        bits("UCP_FEATURE_WAKEUP", sys::FEATURE_WAKEUP),
        bits("UCP_FEATURE_AM", sys::FEATURE_AM),
        bits("UCP_WORKER_PARAM_FIELD_THREAD_MODE", sys::WORKER_PARAM_FIELD_THREAD_MODE),
        bits("UCP_WORKER_PARAM_FIELD_FLAGS", sys::WORKER_PARAM_FIELD_FLAGS),
        bits("UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK", sys::WORKER_FLAG_IGNORE_REQUEST_LEAK),
        bits("UCP_EP_PARAM_FIELD_REMOTE_ADDRESS", sys::EP_PARAM_FIELD_REMOTE_ADDRESS),
        bits("UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE", sys::EP_PARAM_FIELD_ERR_HANDLING_MODE),
        bits("UCP_EP_PARAM_FIELD_ERR_HANDLER", sys::EP_PARAM_FIELD_ERR_HANDLER),
        bits("UCP_EP_CLOSE_FLAG_FORCE", sys::EP_CLOSE_FLAG_FORCE.into()),
        bits("UCP_AM_HANDLER_PARAM_FIELD_ID", sys::AM_HANDLER_PARAM_FIELD_ID),
        bits("UCP_AM_HANDLER_PARAM_FIELD_FLAGS", sys::AM_HANDLER_PARAM_FIELD_FLAGS),
        bits("UCP_AM_HANDLER_PARAM_FIELD_CB", sys::AM_HANDLER_PARAM_FIELD_CB),
        bits("UCP_AM_HANDLER_PARAM_FIELD_ARG", sys::AM_HANDLER_PARAM_FIELD_ARG),
        bits("UCP_AM_FLAG_WHOLE_MSG", sys::AM_FLAG_WHOLE_MSG.into()),
        bits("UCP_AM_SEND_FLAG_EAGER", sys::AM_SEND_FLAG_EAGER.into()),
        bits("UCP_AM_RECV_ATTR_FLAG_DATA", sys::AM_RECV_ATTR_FLAG_DATA),
        bits("UCP_AM_RECV_ATTR_FLAG_RNDV", sys::AM_RECV_ATTR_FLAG_RNDV),
        bits("UCP_OP_ATTR_FIELD_FLAGS", sys::OP_ATTR_FIELD_FLAGS.into()),
    ]
    .concat()
}

/// C signature of each function, in the order of [`sys`]'s list.
const SIGNATURES: &[(&str, &str)] = &[
    ("ucp_get_version", "void (*)(unsigned *, unsigned *, unsigned *)"),
    (
        "ucp_init_version",
        "ucs_status_t (*)(unsigned, unsigned, const ucp_params_t *, const ucp_config_t *, ucp_context_h *)",
    ),
    ("ucp_cleanup", "void (*)(ucp_context_h)"),
    ("ucp_config_read", "ucs_status_t (*)(const char *, const char *, ucp_config_t **)"),
    ("ucp_config_modify", "ucs_status_t (*)(ucp_config_t *, const char *, const char *)"),
    ("ucp_config_release", "void (*)(ucp_config_t *)"),
    (
        "ucp_worker_create",
        "ucs_status_t (*)(ucp_context_h, const ucp_worker_params_t *, ucp_worker_h *)",
    ),
    ("ucp_worker_destroy", "void (*)(ucp_worker_h)"),
    ("ucp_worker_get_address", "ucs_status_t (*)(ucp_worker_h, ucp_address_t **, size_t *)"),
    ("ucp_worker_release_address", "void (*)(ucp_worker_h, ucp_address_t *)"),
    ("ucp_worker_progress", "unsigned (*)(ucp_worker_h)"),
    ("ucp_worker_get_efd", "ucs_status_t (*)(ucp_worker_h, int *)"),
    ("ucp_worker_arm", "ucs_status_t (*)(ucp_worker_h)"),
    (
        "ucp_worker_set_am_recv_handler",
        "ucs_status_t (*)(ucp_worker_h, const ucp_am_handler_param_t *)",
    ),
    ("ucp_ep_create", "ucs_status_t (*)(ucp_worker_h, const ucp_ep_params_t *, ucp_ep_h *)"),
    ("ucp_ep_close_nbx", "ucs_status_ptr_t (*)(ucp_ep_h, const ucp_request_param_t *)"),
    ("ucp_ep_print_info", "void (*)(ucp_ep_h, FILE *)"),
    (
        "ucp_am_send_nbx",
        "ucs_status_ptr_t (*)(ucp_ep_h, unsigned, const void *, size_t, const void *, size_t, const ucp_request_param_t *)",
    ),
    ("ucp_am_data_release", "void (*)(ucp_worker_h, void *)"),
    ("ucp_request_check_status", "ucs_status_t (*)(void *)"),
    ("ucp_request_free", "void (*)(void *)"),
    ("ucs_status_string", "const char *(*)(ucs_status_t)"),
];

/// C signatures of the handlers.
const HANDLERS: &[(&str, &str)] = &[
    ("ucp_err_handler_cb_t", "void (*)(void *, ucp_ep_h, ucs_status_t)"),
    (
        "ucp_am_recv_callback_t",
        "ucs_status_t (*)(void *, const void *, size_t, void *, size_t, const ucp_am_recv_param_t *)",
    ),
];

#[test]
fn the_declarations_are_those_of_the_header() {
    if !std::path::Path::new(HEADER).exists() {
        skip(Need::Ucx, format_args!("no {HEADER}: install libucx-dev"));
        return;
    }
    let known: Vec<&[u8]> = SIGNATURES.iter().map(|(name, _)| name.as_bytes()).collect();
    assert_eq!(known, sys::NAMES, "a function without a signature to compare");
    let mut text = "#include <stddef.h>\n#include <stdio.h>\n#include <ucp/api/ucp.h>\n".to_owned();
    text += &structures();
    text += &constants();
    for (name, signature) in SIGNATURES {
        writeln!(
            text,
            "_Static_assert(__builtin_types_compatible_p(__typeof__(&{name}), {signature}), \"{name}\");"
        )
        .unwrap();
    }
    for (name, signature) in HANDLERS {
        writeln!(
            text,
            "_Static_assert(__builtin_types_compatible_p({name}, {signature}), \"{name}\");"
        )
        .unwrap();
    }
    compile(&text).unwrap();
    // A mismatch would be noticed.
    let wrong = text.replace(
        "offsetof(ucp_ep_params_t, err_mode) == 16",
        "offsetof(ucp_ep_params_t, err_mode) == 20",
    );
    assert!(compile(&wrong).unwrap_err().contains("ucp_ep_params_t.err_mode"));
}

fn compile(text: &str) -> Result<(), String> {
    let file = std::env::temp_dir().join(format!("penstock-ucx-{}.c", std::process::id()));
    std::fs::write(&file, text).unwrap();
    let done =
        Command::new("cc").args(["-std=gnu11", "-fsyntax-only"]).arg(&file).output().unwrap();
    std::fs::remove_file(&file).unwrap();
    if done.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&done.stderr).into_owned())
    }
}
