//! Linking PTX with `cuLink*`: pairs of modules that nvlink takes, logs, options and refusals.

mod common;

use std::ffi::{CString, c_char, c_uint, c_void};
use std::ptr::{null, null_mut, without_provenance_mut};

use common::*;
use penstock_cuda::api::link::*;
use penstock_cuda::api::module::*;
use penstock_cuda_sys::driver::*;

const HEAD: &str = ".version 7.0\n.target sm_75\n.address_size 64\n";

/// Bytes of each log of a [`Linker`].
const LOG_BYTES: usize = 2000;

/// A link with its options and logs.
struct Linker {
    link: CUlinkState,
    errors: Vec<u8>,
    notes: Vec<u8>,
    values: [*mut c_void; 5],
}

impl Linker {
    fn new() -> Box<Self> {
        let (errors, notes) = (vec![0; LOG_BYTES], vec![0; LOG_BYTES]);
        let mut made = Box::new(Self { link: null_mut(), errors, notes, values: [null_mut(); 5] });
        let mut names = [
            CU_JIT_ERROR_LOG_BUFFER,
            CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
            CU_JIT_INFO_LOG_BUFFER,
            CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
            CU_JIT_WALL_TIME,
        ];
        made.values = [
            made.errors.as_mut_ptr().cast(),
            without_provenance_mut(LOG_BYTES),
            made.notes.as_mut_ptr().cast(),
            without_provenance_mut(LOG_BYTES),
            null_mut(),
        ];
        // SAFETY: there are five options, and they live as long as the link.
        ok(unsafe {
            cuLinkCreate_v2(5, names.as_mut_ptr(), made.values.as_mut_ptr(), &raw mut made.link)
        });
        made
    }

    fn add_as(&self, kind: c_uint, name: *const c_char, bytes: &[u8]) -> CUresult {
        let data = bytes.as_ptr().cast_mut().cast();
        // SAFETY: `bytes` has this length, the name is null or a string, and there are no options.
        unsafe {
            let (none, nobody) = (null_mut(), null_mut());
            cuLinkAddData_v2(self.link, kind, data, bytes.len(), name, 0, none, nobody)
        }
    }

    fn add(&self, name: &str, text: &str) -> CUresult {
        let (name, text) = (CString::new(name).unwrap(), CString::new(text).unwrap());
        self.add_as(CU_JIT_INPUT_PTX, name.as_ptr(), text.as_bytes_with_nul())
    }

    /// Returns the code of `cuLinkComplete`, and the image.
    fn complete(&self) -> (CUresult, *mut c_void) {
        let (mut image, mut size) = (null_mut(), 0);
        // SAFETY: the results go to local variables.
        (unsafe { cuLinkComplete(self.link, &raw mut image, &raw mut size) }, image)
    }

    /// Returns a log up to its 0, and checks that its option has its length.
    fn log(&self, bytes: &[u8], size: usize) -> String {
        let end = bytes.iter().position(|byte| *byte == 0).unwrap();
        assert_eq!(self.values[size].addr(), end);
        String::from_utf8(bytes[..end].to_vec()).unwrap()
    }

    fn error(&self) -> String {
        self.log(&self.errors, 1)
    }
}

impl Drop for Linker {
    fn drop(&mut self) {
        // SAFETY: handles are checked and never followed.
        _ = unsafe { cuLinkDestroy(self.link) };
    }
}

/// A kernel `e`. `%rd1` is the address of its result.
fn kernel(declarations: &str, body: &str) -> String {
    format!(
        "{HEAD}{declarations}\n.visible .entry e(.param .u64 p) {{ .reg .b32 %r<9>; \
         .reg .b64 %rd<9>; ld.param.u64 %rd1, [p]; cvta.to.global.u64 %rd1, %rd1; {body} ret; }}\n"
    )
}

/// A function that changes its argument, `%r1`.
fn function_of(linkage: &str, name: &str, body: &str) -> String {
    format!(
        "{linkage} .func (.param .b32 r) {name}(.param .b32 x) {{ .reg .b32 %r<9>; \
         .reg .b64 %rd<9>; ld.param.b32 %r1, [x]; {body} st.param.b32 [r], %r1; ret; }}\n"
    )
}

/// Calls a function with `argument`.
fn call(name: &str, argument: &str) -> String {
    format!(
        "{{ .param .b32 a; .param .b32 b; st.param.b32 [a], {argument}; \
         call.uni (b), {name}, (a); ld.param.b32 %r1, [b]; }}"
    )
}

fn external(name: &str) -> String {
    format!(".extern .func (.param .b32 r) {name}(.param .b32 x);\n")
}

const ADD: &str = "add.s32 %r1, %r1, 5;";

const PRINTF: &str = ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n\
                      .global .align 1 .b8 $str[3] = {104, 10, 0};\n";

const SAY: &str = "mov.u64 %rd5, $str; cvta.global.u64 %rd5, %rd5; { .param .b64 a; .param .b64 b; \
                   .param .b32 c; st.param.b64 [a], %rd5; st.param.b64 [b], 0; \
                   call.uni (c), vprintf, (a, b); }";

/// A part of two modules: declarations of the first and what its kernel does, declarations of the
/// second, and `%r1` at the end.
struct Piece {
    first: String,
    body: String,
    second: String,
    expected: u32,
}

fn piece(first: &[&str], body: &[&str], second: &[&str], expected: u32) -> Piece {
    Piece { first: first.concat(), body: body.concat(), second: second.concat(), expected }
}

fn functions() -> Vec<Piece> {
    let weak = |number: u32| function_of(".weak", "w", &format!("mul.lo.s32 %r1, %r1, {number};"));
    let strong = function_of(".visible", "w", "mul.lo.s32 %r1, %r1, 4;");
    let same = function_of(".weak", "w2", "mul.lo.s32 %r1, %r1, 3;");
    let own = |number: u32| function_of("", "s", &format!("add.s32 %r1, %r1, {number};"));
    let through = function_of(".visible", "f2", &call("s", "%r1"));
    let says = function_of(".visible", "f3", &format!("{SAY} add.s32 %r1, %r1, 2;"));
    let pointed = "mov.u64 %rd2, f; { .param .b32 a; .param .b32 b; st.param.b32 [a], 9; \
                   pr: .callprototype (.param .b32 _) _ (.param .b32 _); \
                   call (b), %rd2, (a), pr; ld.param.b32 %r1, [b]; }";
    vec![
        piece(&[&external("f")], &[&call("f", "7")], &[&function_of(".visible", "f", ADD)], 12),
        piece(&[], &[pointed], &[], 14),
        piece(&[&weak(3)], &[&call("w", "7")], &[&strong], 28),
        piece(&[&same], &[&call("w2", "7")], &[&same], 21),
        piece(
            &[&own(1), &external("f2")],
            &[&call("s", "7"), &call("f2", "%r1")],
            &[&own(100), &through],
            108,
        ),
        piece(&[PRINTF, &external("f3")], &[SAY, &call("f3", "7")], &[PRINTF, &says], 9),
    ]
}

fn variables() -> Vec<Piece> {
    let adds = "ld.global.u32 %r2, [v2]; add.s32 %r1, %r1, %r2;";
    let room = ".shared .align 4 .u32 t;\n";
    let shares = "st.shared.u32 [t], 20; ld.shared.u32 %r1, [t];";
    let common = ".common .global .align 4 .u32 m;\n";
    vec![
        piece(
            &[".extern .global .align 4 .u32 v;\n"],
            &["ld.global.u32 %r1, [v];"],
            &[".visible .global .align 4 .u32 v = 9;\n"],
            9,
        ),
        piece(
            &[".extern .const .align 4 .u32 c[2];\n"],
            &["ld.const.u32 %r1, [c+4];"],
            &[".visible .const .align 4 .u32 c[2] = {3, 4};\n"],
            4,
        ),
        piece(
            &[".global .align 4 .u32 v2 = 1;\n", &external("g")],
            &["ld.global.u32 %r2, [v2];", &call("g", "%r2")],
            &[".global .align 4 .u32 v2 = 50;\n", &function_of(".visible", "g", adds)],
            51,
        ),
        piece(
            &[room, &external("g2")],
            &[
                "st.shared.u32 [t], 5;",
                &call("g2", "7"),
                "ld.shared.u32 %r2, [t]; add.s32 %r1, %r1, %r2;",
            ],
            &[room, &function_of(".visible", "g2", shares)],
            25,
        ),
        piece(
            &[common, &external("g3")],
            &["st.global.u32 [m], 6;", &call("g3", "7")],
            &[common, &function_of(".visible", "g3", "ld.global.u32 %r1, [m];")],
            6,
        ),
    ]
}

#[test]
fn linked_modules_compute_what_nvlink_makes_of_them() {
    let _context = TestContext::new();
    let pieces: Vec<Piece> = functions().into_iter().chain(variables()).collect();
    let body = |(index, piece): (usize, &Piece)| {
        format!("{} st.global.u32 [%rd1+{}], %r1;\n", piece.body, 4 * index)
    };
    let body: String = pieces.iter().enumerate().map(body).collect();
    let first: String = pieces.iter().map(|piece| piece.first.as_str()).collect();
    let second: String = pieces.iter().map(|piece| piece.second.as_str()).collect();
    let texts =
        [kernel(&first, &body), format!("// in one line\n{}{second}", HEAD.replace('\n', " "))];
    let expected: Vec<u32> = pieces.iter().map(|piece| piece.expected).collect();
    let address = allocate(4 * expected.len());
    for order in [[0, 1], [1, 0]] {
        let linker = Linker::new();
        for index in order {
            let code = linker.add(&format!("m{index}"), &texts[index]);
            assert_eq!(code, CUDA_SUCCESS, "{}", linker.error());
        }
        let (code, image) = linker.complete();
        assert_eq!(code, CUDA_SUCCESS, "{}", linker.error());
        let mut module = null_mut();
        // SAFETY: the image lives as long as the link.
        ok(unsafe { cuModuleLoadData(&raw mut module, image) });
        upload(address, &vec![0_u32; expected.len()]);
        ok(launch(function(module, "e"), 1, 1, null_mut(), &[address]));
        assert_eq!(download::<u32>(address, expected.len()), expected);
    }
}

#[test]
fn the_logs_say_what_is_wrong_and_what_was_done() {
    let _context = TestContext::new();
    let linker = Linker::new();
    ok(linker.add("a.cu", &kernel(&external("f"), &call("f", "7"))));
    assert_eq!(linker.add("bad.cu", &format!("{HEAD}\n.func {{")), CUDA_ERROR_INVALID_PTX);
    let (code, _) = linker.complete();
    assert_eq!(code, CUDA_ERROR_INVALID_PTX);
    let told = linker.error();
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines.len(), 2, "{told}");
    assert!(lines[0].starts_with("bad.cu: ptx:5:"), "{told}");
    assert_eq!(lines[1], "error   : Undefined reference to 'f' in 'a.cu'");
    // What is missing may still come.
    let text = CString::new(HEAD.to_owned() + &function_of(".visible", "f", ADD)).unwrap();
    ok(linker.add_as(CU_JIT_INPUT_PTX, null(), text.as_bytes_with_nul()));
    let (code, image) = linker.complete();
    ok(code);
    assert_eq!(
        linker.log(&linker.notes, 3),
        "info    : 2 inputs linked, 0 names told apart, 1 declarations merged"
    );
    assert_ne!(linker.values[4].addr(), 0, "the time in milliseconds, as a float");
    assert_eq!(linker.complete(), (CUDA_SUCCESS, image), "the image is the same");
    assert_eq!(linker.add("late", HEAD), CUDA_ERROR_INVALID_VALUE);

    let twice = Linker::new();
    for _ in 0..2 {
        let text = CString::new(HEAD.to_owned() + &function_of(".visible", "f", ADD)).unwrap();
        ok(twice.add_as(CU_JIT_INPUT_FATBINARY, c"".as_ptr(), text.as_bytes_with_nul()));
    }
    assert_eq!(twice.complete().0, CUDA_ERROR_INVALID_PTX);
    assert_eq!(
        twice.error(),
        "error   : Multiple definition of 'f' in 'input 2', first defined in 'input 1'"
    );
    assert_eq!(Linker::new().complete().0, CUDA_ERROR_INVALID_IMAGE);
}

#[test]
fn what_has_no_ptx_is_refused_with_words_that_help() {
    let _context = TestContext::new();
    let mut elf = vec![0_u8; 64];
    elf[..4].copy_from_slice(b"\x7fELF");
    for kind in [CU_JIT_INPUT_CUBIN, CU_JIT_INPUT_FATBINARY] {
        let linker = Linker::new();
        assert_eq!(linker.add_as(kind, c"x.cubin".as_ptr(), &elf), CUDA_ERROR_NO_BINARY_FOR_GPU);
        let told = linker.error();
        assert!(told.starts_with("x.cubin: a module has only machine code"), "{told}");
        assert!(told.contains("-gencode arch=compute_75,code=compute_75"), "{told}");
    }
    for (kind, expected) in [
        (CU_JIT_INPUT_NVVM, CUDA_ERROR_NO_BINARY_FOR_GPU),
        (6, CUDA_ERROR_INVALID_VALUE),
        (CU_JIT_INPUT_PTX, CUDA_ERROR_NO_BINARY_FOR_GPU),
    ] {
        assert_eq!(Linker::new().add_as(kind, null(), &elf), expected, "{kind}");
    }
}

#[test]
fn the_result_of_a_link_is_input_of_another() {
    let _context = TestContext::new();
    let first = Linker::new();
    let own = function_of("", "s", ADD);
    let shown = |name: &str| own.clone() + &function_of(".visible", name, &call("s", "%r1"));
    ok(first.add("g", &(HEAD.to_owned() + &shown("g"))));
    ok(first.add("h", &(HEAD.to_owned() + &shown("h"))));
    let (code, image) = first.complete();
    ok(code);
    let second = Linker::new();
    // SAFETY: the image is a text with a terminating 0.
    let text = unsafe { std::ffi::CStr::from_ptr(image.cast()) };
    ok(second.add_as(CU_JIT_INPUT_CUBIN, c"first".as_ptr(), text.to_bytes_with_nul()));
    let declared = own.clone() + &external("g") + &external("h");
    let body = [call("s", "1"), call("g", "%r1"), call("h", "%r1")].concat();
    ok(second.add("e", &kernel(&declared, &(body + "st.global.u32 [%rd1], %r1;"))));
    let (code, image) = second.complete();
    assert_eq!(code, CUDA_SUCCESS, "{}", second.error());
    let mut module = null_mut();
    // SAFETY: the image lives as long as the link.
    ok(unsafe { cuModuleLoadData(&raw mut module, image) });
    let address = allocate(4);
    ok(launch(function(module, "e"), 1, 1, null_mut(), &[address]));
    assert_eq!(download::<u32>(address, 1), [16]);
}

#[test]
fn options_are_taken_and_refused_as_the_manual_says() {
    let _context = TestContext::new();
    let create = |options: &[(c_uint, usize)]| {
        let mut names: Vec<c_uint> = options.iter().map(|(name, _)| *name).collect();
        let mut values: Vec<*mut c_void> =
            options.iter().map(|(_, value)| without_provenance_mut(*value)).collect();
        let mut link = null_mut();
        let count = c_uint::try_from(names.len()).unwrap();
        // SAFETY: there are this many options.
        let code = unsafe {
            cuLinkCreate_v2(count, names.as_mut_ptr(), values.as_mut_ptr(), &raw mut link)
        };
        // SAFETY: handles are checked and never followed.
        _ = unsafe { cuLinkDestroy(link) };
        code
    };
    const TARGET: c_uint = CU_JIT_TARGET;
    for (options, expected) in [
        (&[(TARGET, 75)][..], CUDA_SUCCESS),
        (&[(TARGET, 0x1_0000 + 90)], CUDA_SUCCESS),
        (&[(TARGET, 7)], CUDA_ERROR_INVALID_VALUE),
        (&[(TARGET, 0x1_0000)], CUDA_ERROR_INVALID_VALUE),
        (&[(CU_JIT_TARGET_FROM_CUCONTEXT, 0), (0, 32), (7, 4), (12, 1)], CUDA_SUCCESS),
        (&[(TARGET, 75), (CU_JIT_TARGET_FROM_CUCONTEXT, 0)], CUDA_ERROR_INVALID_VALUE),
        (&[(TARGET, 75), (CU_JIT_THREADS_PER_BLOCK, 32)], CUDA_ERROR_INVALID_VALUE),
        (&[(CU_JIT_FALLBACK_STRATEGY, 0)], CUDA_ERROR_INVALID_VALUE),
        (&[(CU_JIT_GLOBAL_SYMBOL_COUNT, 0)], CUDA_ERROR_NOT_SUPPORTED),
        (&[(1000, 0)], CUDA_ERROR_INVALID_VALUE),
    ] {
        assert_eq!(create(options), expected, "{options:?}");
    }
    let linker = Linker::new();
    let text = CString::new(HEAD).unwrap();
    let (data, bytes) = (text.as_ptr().cast_mut().cast(), text.as_bytes_with_nul().len());
    for (mut name, expected) in [
        (CU_JIT_ERROR_LOG_BUFFER, CUDA_ERROR_INVALID_VALUE),
        (CU_JIT_WALL_TIME, CUDA_ERROR_INVALID_VALUE),
        (CU_JIT_TARGET, CUDA_ERROR_INVALID_VALUE),
        (7, CUDA_SUCCESS),
    ] {
        let mut value = without_provenance_mut(4);
        // SAFETY: there is one option, and `text` has this many bytes.
        let code = unsafe {
            let (kind, none) = (CU_JIT_INPUT_PTX, null());
            let (name, value) = (&raw mut name, &raw mut value);
            cuLinkAddData_v2(linker.link, kind, data, bytes, none, 1, name, value)
        };
        assert_eq!(code, expected, "{name}");
    }
}
