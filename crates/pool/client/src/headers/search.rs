//! The search for all files that a build may include.

use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;

use penstock_ggas::with_header;
use penstock_wire::headers::{HeaderFile, HeaderLink, Headers, OptionPart, SearchFolder};
use penstock_wire::limits::{HEADER_ENTRIES_MAX, HEADERS_BYTES_MAX};
use penstock_wire::text::to_bytes;

use super::directive::{BYTE_ORDER_MARK, Define, Directives, Form, Include, Name, Value};
use super::options::Options;
use super::tree::{Files, Found, TooLarge, Ways, joined};

/// A program includes more than may travel with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TooMuch {
    #[error(
        "the files that the program includes have more than {} MiB (HEADERS_BYTES_MAX); the last \
         one was {file}", HEADERS_BYTES_MAX >> 20
    )]
    Bytes { file: String },
    #[error(
        "the program includes more than {HEADER_ENTRIES_MAX} files and folders \
         (HEADER_ENTRIES_MAX); the last one was {file}"
    )]
    Entries { file: String },
    #[error(
        "the path {file} has more components or bytes than an included file may have \
         (HEADER_DEPTH_MAX, HEADER_PATH_BYTES_MAX)"
    )]
    Path { file: String },
}

/// Returns what a build needs from the client's file system, or `None` if it needs nothing.
/// `sources` are the directives of the program and of the headers that it got as objects.
/// `current` is the current folder of the process, if it has one.
///
/// # Errors
/// The program includes too much.
pub fn collect(
    files: &dyn Files,
    sources: &[&Directives],
    options: &str,
    current: Option<&[u8]>,
) -> Result<Option<Headers>, TooMuch> {
    let given = Options::read(options);
    let has_absolute = sources.iter().any(|source| source.has_absolute());
    let mut search = Search::new(files, sources, &given, current);
    for source in sources {
        search.take_source(source);
    }
    search.run()?;
    let is_idle = given.folders.is_empty() && search.texts.is_empty() && !search.is_open;
    if is_idle && !has_absolute {
        return Ok(None);
    }
    search.finish(options, &given).map(Some)
}

/// A folder to search.
struct Place {
    /// Without links; `None` if there is no such folder.
    folder: Option<Vec<u8>>,
    /// As the program named it; empty for the current folder.
    named: Vec<u8>,
}

/// The text in which a directive stands.
#[derive(Clone)]
struct Includer {
    /// Its folder, without links; `None` for the source of the program.
    folder: Option<Vec<u8>>,
    /// The folder as messages of a compiler name it.
    named: Vec<u8>,
}

struct Search<'a> {
    files: &'a dyn Files,
    ways: Ways,
    places: Vec<Place>,
    /// Whether the current folder is the first of the places; otherwise it is the last.
    current_first: bool,
    /// Files by their path, with the text for the compiler.
    texts: BTreeMap<Vec<u8>, Vec<u8>>,
    directives: BTreeMap<Vec<u8>, Rc<Directives>>,
    /// Files and the folders in which their names stood.
    seen: HashSet<Found>,
    work: Vec<(Includer, Rc<Directives>)>,
    defines: Vec<Define>,
    computed: Vec<(Includer, Vec<u8>)>,
    /// Whether some include cannot be followed here, so that the driver tries it, too.
    is_open: bool,
    has_absolute: bool,
    bytes: usize,
}

impl<'a> Search<'a> {
    fn new(
        files: &'a dyn Files,
        sources: &[&Directives],
        given: &Options,
        current: Option<&[u8]>,
    ) -> Self {
        let in_current = |include: &&Include| {
            let name = &include.name;
            name.form == Form::Quote
                && !name.is_absolute()
                && current
                    .is_some_and(|folder| Ways::default().find(files, folder, &name.path).is_some())
        };
        // PoCL searches the current folder first, for both forms, and Clang only for quotes.
        let current_first = sources.iter().flat_map(|it| &it.includes).any(|it| in_current(&it));
        let of_option = |folder: &str| Place {
            folder: current
                .or(folder.starts_with('/').then_some(b"/"))
                .and_then(|current| Ways::folder(files, current, &to_bytes(folder))),
            named: to_bytes(folder),
        };
        let mut places: Vec<Place> =
            given.folders.iter().map(|option| of_option(&option.folder)).collect();
        let here = Place { folder: current.map(<[u8]>::to_vec), named: Vec::new() };
        places.insert(if current_first { 0 } else { places.len() }, here);
        Self {
            files,
            ways: Ways::default(),
            places,
            current_first,
            texts: BTreeMap::new(),
            directives: BTreeMap::new(),
            seen: HashSet::new(),
            work: Vec::new(),
            defines: given.defines.clone(),
            computed: Vec::new(),
            is_open: false,
            has_absolute: false,
            bytes: 0,
        }
    }

    fn take_source(&mut self, source: &Directives) {
        self.has_absolute |= source.has_absolute();
        let includer = Includer { folder: None, named: Vec::new() };
        self.work.push((includer, Rc::new(source.clone())));
    }

    fn run(&mut self) -> Result<(), TooMuch> {
        loop {
            while let Some((includer, directives)) = self.work.pop() {
                for include in &directives.includes {
                    self.follow(&includer, &include.name, include.next)?;
                }
                self.defines.extend(directives.defines.iter().cloned());
                for operand in &directives.computed {
                    match operand {
                        Some(name) => self.computed.push((includer.clone(), name.clone())),
                        None => self.is_open = true,
                    }
                }
            }
            // Any definition may be the one that holds.
            for (includer, operand) in self.computed.clone() {
                for name in self.values_of(&operand) {
                    if name.is_absolute() {
                        // The macro may be used elsewhere, so its text stays as it is.
                        self.is_open = true;
                    } else {
                        self.follow(&includer, &name, false)?;
                    }
                }
            }
            if self.work.is_empty() {
                break;
            }
        }
        let operands: HashSet<Vec<u8>> = self.computed.iter().map(|(_, it)| it.clone()).collect();
        self.is_open |= operands.iter().any(|operand| self.values_of(operand).is_empty());
        Ok(())
    }

    /// Returns all names of files that a macro may stand for.
    fn values_of(&self, operand: &[u8]) -> Vec<Name> {
        let (mut names, mut seen) = (Vec::new(), HashSet::new());
        let mut left = vec![operand];
        while let Some(name) = left.pop() {
            if !seen.insert(name) {
                continue;
            }
            for define in self.defines.iter().filter(|define| define.macro_name == name) {
                match &define.value {
                    Value::Name(name) => names.push(name.clone()),
                    Value::Macro(other) => left.push(other),
                }
            }
        }
        names
    }

    /// Takes the file that an include leads to, if there is one.
    fn follow(&mut self, includer: &Includer, name: &Name, next: bool) -> Result<(), TooMuch> {
        if name.is_absolute() {
            self.has_absolute = true;
            if let Some(found) = self.ways.find(self.files, b"/", &name.path) {
                self.take(found, &name.path)?;
            }
            return Ok(());
        }
        if name.form == Form::Quote
            && let Some(folder) = &includer.folder
            && let Some(found) = self.ways.find(self.files, folder, &name.path)
        {
            self.take(found, &named(&includer.named, &name.path))?;
            if !next {
                return Ok(());
            }
        }
        for at in 0..self.places.len() {
            let Some(place) = self.places.get(at) else { break };
            let Some(folder) = &place.folder else { continue };
            let named = named(&place.named, &name.path);
            let Some(found) = self.ways.find(self.files, folder, &name.path) else { continue };
            let is_readable = self.take(found, &named)?;
            // The next one behind a place that is unknown here can be any of them.
            if is_readable && !next {
                break;
            }
        }
        Ok(())
    }

    /// Takes a file under the name that messages show. Returns whether it can be read.
    fn take(&mut self, found: Found, name: &[u8]) -> Result<bool, TooMuch> {
        let file = || name.escape_ascii().to_string();
        if self.seen.contains(&found) {
            return Ok(true);
        }
        if self.seen.len() >= HEADER_ENTRIES_MAX {
            return Err(TooMuch::Entries { file: file() });
        }
        if penstock_wire::headers::components(&found.file).is_none() {
            return Err(TooMuch::Path { file: file() });
        }
        let directives = match self.directives.get(&found.file) {
            Some(known) => known.clone(),
            None => {
                let bytes_max = bytes_max().saturating_sub(self.bytes);
                let content = self.files.read(&found.file, bytes_max);
                let content = content.map_err(|TooLarge| TooMuch::Bytes { file: file() })?;
                let Some(content) = content else { return Ok(false) };
                let content = content.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&content);
                let content = with_header(content);
                let directives = Rc::new(Directives::read(&content));
                self.has_absolute |= directives.has_absolute();
                let mut text = line_directive(name);
                text.extend_from_slice(&directives.relocated(&content));
                self.bytes += text.len() + found.file.len();
                self.texts.insert(found.file.clone(), text);
                self.directives.insert(found.file.clone(), directives.clone());
                directives
            }
        };
        let folder = name.iter().rposition(|byte| *byte == b'/');
        let named = name.get(..folder.map_or(0, |slash| slash + 1)).unwrap_or_default().to_vec();
        self.work.push((Includer { folder: Some(found.folder.clone()), named }, directives));
        self.seen.insert(found);
        Ok(true)
    }

    /// Returns the files, and the options with the worker's folders in place of the client's.
    fn finish(self, options: &str, given: &Options) -> Result<Headers, TooMuch> {
        let first = usize::from(self.current_first);
        let current = if self.current_first { 0 } else { given.folders.len() };
        let mut parts = Vec::new();
        let mut text = String::new();
        let has_current = !self.texts.is_empty();
        if self.current_first && has_current {
            push_folder(&mut parts, &mut text, current);
            text.push(' ');
        }
        let mut taken = 0;
        for (number, option) in given.folders.iter().enumerate() {
            text.push_str(options.get(taken..option.place.start).unwrap_or_default());
            push_folder(&mut parts, &mut text, number + first);
            taken = option.place.end;
        }
        text.push_str(options.get(taken..).unwrap_or_default());
        if !self.current_first && has_current {
            text.push(' ');
            push_folder(&mut parts, &mut text, current);
        }
        if self.has_absolute {
            text.push_str(" -I");
            parts.push(OptionPart::Text(std::mem::take(&mut text)));
            parts.push(OptionPart::Absolute);
        }
        if self.is_open {
            // Last, because a confined worker may not even look there.
            let known = self.places.iter().filter_map(|place| place.folder.as_deref());
            for folder in known.filter_map(|folder| std::str::from_utf8(folder).ok()) {
                if !folder.contains(|letter: char| letter.is_ascii_whitespace()) {
                    text.push_str(" -I");
                    text.push_str(folder);
                }
            }
        }
        if !text.is_empty() {
            parts.push(OptionPart::Text(text));
        }
        let file = |(path, text)| HeaderFile { path, text };
        let link = |(path, target)| HeaderLink { path, target };
        let place = |place: Place| SearchFolder { path: place.folder, named: place.named };
        let headers = Headers {
            files: self.texts.into_iter().map(file).collect(),
            links: self.ways.links.into_iter().map(link).collect(),
            folders: self.ways.folders.into_iter().collect(),
            search: self.places.into_iter().map(place).collect(),
            options: parts,
        };
        let last = || headers.files.last().map_or_else(String::new, |it| shown(&it.path));
        if entries(&headers) > HEADER_ENTRIES_MAX {
            return Err(TooMuch::Entries { file: last() });
        }
        Ok(headers)
    }
}

/// Returns the number of files, links and folders that a worker makes.
fn entries(headers: &Headers) -> usize {
    let mut folders: HashSet<&[u8]> = headers.folders.iter().map(Vec::as_slice).collect();
    let paths = headers.files.iter().map(|file| &file.path);
    for path in paths.chain(headers.links.iter().map(|link| &link.path)).chain(&headers.folders) {
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        folders.extend(ends.filter_map(|(end, _)| path.get(..end)));
    }
    headers.files.len() + headers.links.len() + headers.search.len() + folders.len()
}

/// Ends the text with an option for a search folder.
fn push_folder(parts: &mut Vec<OptionPart>, text: &mut String, number: usize) {
    text.push_str("-I");
    parts.push(OptionPart::Text(std::mem::take(text)));
    parts.push(OptionPart::Folder(u32::try_from(number).unwrap_or(u32::MAX)));
}

/// Most bytes of all files. The rest of the limit is for paths, links and options.
const fn bytes_max() -> usize {
    #[expect(clippy::cast_possible_truncation, reason = "32 MiB fit into any address space")]
    let all = HEADERS_BYTES_MAX as usize;
    all / 8 * 7
}

/// Returns the line that gives the text behind it the name of the user's file.
fn line_directive(name: &[u8]) -> Vec<u8> {
    if name.iter().any(u8::is_ascii_control) {
        return Vec::new();
    }
    let mut line = b"#line 1 \"".to_vec();
    for byte in name {
        if matches!(byte, b'"' | b'\\') {
            line.push(b'\\');
        }
        line.push(*byte);
    }
    line.extend_from_slice(b"\"\n");
    line
}

/// Returns the name of a file as a compiler shows it.
fn named(folder: &[u8], name: &[u8]) -> Vec<u8> {
    if folder.is_empty() { name.to_vec() } else { joined(folder, name) }
}

fn shown(path: &[u8]) -> String {
    path.escape_ascii().to_string()
}
