//! What a build takes from a picture of a file system.

use penstock_wire::headers::{Headers, OptionPart};
use penstock_wire::limits::HEADERS_BYTES_MAX;

use super::directive::Directives;
use super::picture::Picture;
use super::search::{TooMuch, collect};

fn collected(files: &Picture, source: &str, options: &str) -> Option<Headers> {
    let source = Directives::of(source.as_bytes())?;
    collect(files, &[&source], options, Some(b"/here")).unwrap()
}

fn paths(headers: &Headers) -> Vec<&str> {
    headers.files.iter().map(|file| std::str::from_utf8(&file.path).unwrap()).collect()
}

fn text_of<'a>(headers: &'a Headers, path: &str) -> &'a str {
    let file = headers.files.iter().find(|file| file.path == path.as_bytes()).unwrap();
    std::str::from_utf8(&file.text).unwrap()
}

/// Writes options as the worker would, with `N` for folder N.
fn options(headers: &Headers) -> String {
    let part = |part: &OptionPart| match part {
        OptionPart::Text(text) => text.clone(),
        OptionPart::Folder(number) => format!("{number}"),
        OptionPart::Absolute => "abs".into(),
    };
    headers.options.iter().map(part).collect()
}

#[test]
fn files_travel_with_all_that_they_include() {
    let files = Picture::default()
        .file("/inc/a.h", "#pragma once\n#include \"sub/b.h\"\n#include <c.h>\n")
        .file("/inc/sub/b.h", "#include \"d.h\"\n#include \"../a.h\"\n")
        .file("/inc/sub/d.h", "int d;\n")
        .file("/inc/unused.h", "")
        .file("/two/c.h", "#ifdef NEVER\n#include \"e.h\"\n#endif\n")
        .file("/two/e.h", "");
    let source = "#include \"a.h\"\n#include <math.h>\n";
    let headers = collected(&files, source, "-DX -I /inc -I/two -w").unwrap();
    assert_eq!(
        paths(&headers),
        ["/inc/a.h", "/inc/sub/b.h", "/inc/sub/d.h", "/two/c.h", "/two/e.h"]
    );
    assert_eq!(options(&headers), "-DX -I0 -I1 -w -I2");
    assert!(text_of(&headers, "/inc/sub/b.h").starts_with("#line 1 \"/inc/sub/b.h\"\n#include"));
    assert_eq!(text_of(&headers, "/two/e.h"), "#line 1 \"/two/e.h\"\n");
}

#[test]
fn the_current_folder_is_searched() {
    let files = Picture::default()
        .file("/here/x.h", "here")
        .file("/here/inc/x.h", "inc")
        .file("/here/inc/y.h", "inc");
    let headers = collected(&files, "#include \"x.h\"\n", "-I inc").unwrap();
    assert_eq!((paths(&headers), options(&headers).as_str()), (vec!["/here/x.h"], "-I0 -I1"));
    assert_eq!(text_of(&headers, "/here/x.h"), "#line 1 \"x.h\"\nhere");
    assert_eq!(headers.search[1].path.as_deref(), Some(&b"/here/inc"[..]));
    // In angle brackets, the folders of the options come first.
    let headers = collected(&files, "#include <x.h>\n", "-I inc").unwrap();
    assert_eq!((paths(&headers), options(&headers).as_str()), (vec!["/here/inc/x.h"], "-I0 -I1"));
    assert_eq!(text_of(&headers, "/here/inc/x.h"), "#line 1 \"inc/x.h\"\ninc");
    assert_eq!(headers.search[0].path.as_deref(), Some(&b"/here/inc"[..]));
}

#[test]
fn absolute_names_lead_below_the_worker_s_folder() {
    let files = Picture::default()
        .file("/a/x.h", "#include </a/y.h>\n#include \"z.h\"\n")
        .file("/a/y.h", "")
        .file("/a/z.h", "");
    let headers = collected(&files, "#include \"/a/x.h\"\n", "").unwrap();
    assert_eq!(paths(&headers), ["/a/x.h", "/a/y.h", "/a/z.h"]);
    assert_eq!(options(&headers), " -I0 -Iabs");
    let text = text_of(&headers, "/a/x.h");
    assert_eq!(text, "#line 1 \"/a/x.h\"\n#include <penstock-absolute/a/y.h>\n#include \"z.h\"\n");
    // The compiler must not look on the node for a file that the client lacks.
    let headers = collected(&files, "#include \"/a/none.h\"\n", "").unwrap();
    assert_eq!((paths(&headers), options(&headers).as_str()), (vec![], " -Iabs"));
}

#[test]
fn a_build_that_needs_no_files_stays_as_it_is() {
    let files = Picture::default().file("/inc/a.h", "");
    assert_eq!(collected(&files, "kernel void f() {}\n#define A\n", "-I /inc"), None);
    assert_eq!(collected(&files, "#include <math.h>\n", "-DA"), None);
    // The node's folder of this name is none of the program's.
    let headers = collected(&files, "#include \"none.h\"\n", "-I /inc").unwrap();
    assert_eq!((paths(&headers), options(&headers).as_str()), (vec![], "-I0"));
}

#[test]
fn a_file_that_cannot_be_read_is_as_good_as_missing() {
    let files = Picture::default().file("/one/a.h", "").file("/two/a.h", "").secret("/one/a.h");
    let headers = collected(&files, "#include \"a.h\"\n", "-I /one -I /two").unwrap();
    assert_eq!(paths(&headers), ["/two/a.h"]);
}

#[test]
fn operands_that_are_macros_are_followed() {
    let files = Picture::default()
        .file("/inc/config.h", "#define PART \"part.h\"\n")
        .file("/inc/part.h", "")
        .file("/inc/option.h", "");
    let source = "#include \"config.h\"\n#include PART\n#include OPTION\n";
    let given = "-I /inc -DOPTION=\\\"option.h\\\"";
    let headers = collected(&files, source, given).unwrap();
    assert_eq!(paths(&headers), ["/inc/config.h", "/inc/option.h", "/inc/part.h"]);
    assert!(!options(&headers).contains("/inc"), "{}", options(&headers));
    // What cannot be computed here is left to the driver, behind the client's files.
    let headers = collected(&files, "#define S(x) #x\n#include S(part.h)\n", given).unwrap();
    assert_eq!(options(&headers), "-I0 -DOPTION=\\\"option.h\\\" -I/inc -I/here");
}

#[test]
fn a_file_is_searched_from_each_folder_in_which_its_name_stands() {
    let files = Picture::default()
        .file("/real/a.h", "#include \"b.h\"\n")
        .file("/one/b.h", "")
        .file("/real/b.h", "")
        .link("/one/a.h", "/real/a.h");
    let source = "#include \"/one/a.h\"\n#include \"/real/a.h\"\n";
    let headers = collected(&files, source, "").unwrap();
    assert_eq!(paths(&headers), ["/one/b.h", "/real/a.h", "/real/b.h"]);
    assert_eq!((headers.links[0].path.as_slice(), headers.links.len()), (&b"/one/a.h"[..], 1));
}

#[test]
fn include_next_takes_all_files_of_the_name() {
    let files = Picture::default()
        .file("/one/a.h", "#include_next <a.h>\n")
        .file("/two/a.h", "")
        .file("/two/b.h", "");
    let headers = collected(&files, "#include <a.h>\n", "-I/one -I/two").unwrap();
    assert_eq!(paths(&headers), ["/one/a.h", "/two/a.h"]);
}

#[test]
fn what_exceeds_a_limit_is_an_error_that_names_it() {
    let half = "x".repeat(usize::try_from(HEADERS_BYTES_MAX / 2).unwrap());
    let files = Picture::default().file("/inc/a.h", &half).file("/inc/b.h", &half);
    let source = Directives::of(b"#include \"a.h\"\n#include \"b.h\"\n").unwrap();
    let error = collect(&files, &[&source], "-I /inc", None).unwrap_err();
    assert_eq!(error, TooMuch::Bytes { file: "/inc/b.h".into() });
    assert!(error.to_string().contains("HEADERS_BYTES_MAX"), "{error}");
    let deep = format!("/inc{}", "/d".repeat(200));
    let files = Picture::default().file(&format!("{deep}/a.h"), "");
    let error = collect(&files, &[&source], &format!("-I {deep}"), None).unwrap_err();
    assert!(error.to_string().contains("HEADER_DEPTH_MAX"), "{error}");
    let many: String = (0..9000).map(|n| format!("#include \"{n}.h\"\n")).collect();
    let files = (0..9000).fold(Picture::default(), |it, n| it.file(&format!("/inc/{n}.h"), ""));
    let source = Directives::of(many.as_bytes()).unwrap();
    let error = collect(&files, &[&source], "-I /inc", None).unwrap_err();
    assert!(error.to_string().contains("HEADER_ENTRIES_MAX"), "{error}");
}

#[test]
fn names_that_would_break_a_line_get_no_line() {
    let files = Picture::default().file("/inc/a\"b\\.h", "x").file("/inc/a\tb.h", "x");
    let headers = collected(&files, "#include <a\"b\\.h>\n#include <a\tb.h>\n", "-I/inc").unwrap();
    assert_eq!(text_of(&headers, "/inc/a\"b\\.h"), "#line 1 \"/inc/a\\\"b\\\\.h\"\nx");
    assert_eq!(text_of(&headers, "/inc/a\tb.h"), "x");
}
