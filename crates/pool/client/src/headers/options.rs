//! The options of a build that concern included files.

use std::ops::Range;

use penstock_wire::text::to_bytes;

use super::directive::Define;

/// A folder to search: the option `-I`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderOption {
    /// Where the option and its folder stand.
    pub place: Range<usize>,
    pub folder: String,
}

/// What the options of a build say about included files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    pub folders: Vec<FolderOption>,
    pub defines: Vec<Define>,
}

impl Options {
    /// Reads options. Quotes keep spaces together, and a backslash takes the meaning of the next
    /// byte, as in PoCL, Intel's runtime and a shell.
    pub fn read(text: &str) -> Self {
        let mut words = Words { text, at: 0 };
        let mut options = Self::default();
        while let Some(word) = words.next() {
            let Some(letter @ (b'I' | b'D')) = word.text.as_bytes().get(1).copied() else {
                continue;
            };
            if !word.text.starts_with('-') {
                continue;
            }
            let joined = word.text.get(2..).filter(|rest| !rest.is_empty()).map(str::to_owned);
            let (place, value) = match joined {
                Some(value) => (word.place, value),
                None => {
                    let Some(next) = words.next() else { break };
                    (word.place.start..next.place.end, next.text)
                }
            };
            match letter {
                b'I' => options.folders.push(FolderOption { place, folder: value }),
                _ => options.defines.extend(Define::of_option(&to_bytes(&value))),
            }
        }
        options
    }
}

struct Word {
    place: Range<usize>,
    /// Without quotes.
    text: String,
}

struct Words<'a> {
    text: &'a str,
    at: usize,
}

impl Iterator for Words<'_> {
    type Item = Word;

    fn next(&mut self) -> Option<Word> {
        let rest = self.text.get(self.at..)?;
        let start = self.at + rest.find(|letter: char| !letter.is_ascii_whitespace())?;
        let mut word = String::new();
        let (mut quoted, mut escaped) = (false, false);
        let mut end = self.text.len();
        for (offset, letter) in self.text.get(start..)?.char_indices() {
            match letter {
                _ if escaped => {
                    escaped = false;
                    word.push(letter);
                }
                '\\' => escaped = true,
                '"' => quoted = !quoted,
                _ if letter.is_ascii_whitespace() && !quoted => {
                    end = start + offset;
                    break;
                }
                _ => word.push(letter),
            }
        }
        self.at = end;
        Some(Word { place: start..end, text: word })
    }
}

#[cfg(test)]
mod tests {
    use super::super::directive::{Form, Name, Value};
    use super::*;

    #[test]
    fn folders_are_found_in_order_and_in_place() {
        let text = r#"-DA=1 -I /a/b  -Irel -cl-std=CL2.0 -I "/c d/e" -I"f g" -I /h\ i -w -I"#;
        let options = Options::read(text);
        let folders: Vec<_> = options.folders.iter().map(|it| it.folder.as_str()).collect();
        assert_eq!(folders, ["/a/b", "rel", "/c d/e", "f g", "/h i"]);
        let places: Vec<_> = options.folders.iter().map(|it| &text[it.place.clone()]).collect();
        assert_eq!(places, ["-I /a/b", "-Irel", r#"-I "/c d/e""#, r#"-I"f g""#, r"-I /h\ i"]);
    }

    #[test]
    fn what_stands_in_quotes_is_no_option() {
        assert_eq!(Options::read(r#"-D X="a -Ib" -DY=c"#).folders, []);
        assert_eq!(Options::read("-cl-fast-relaxed-math -Werror - -").folders, []);
        assert_eq!(Options::read("").folders, []);
    }

    #[test]
    fn macros_with_names_of_files_are_found() {
        let options = Options::read(r#"-D H=\"x.h\" -DG=<y.h> -D N=3"#);
        let name = |form, path: &str| Value::Name(Name { form, path: path.into() });
        let values: Vec<_> = options.defines.into_iter().map(|define| define.value).collect();
        assert_eq!(
            values,
            [name(Form::Quote, "x.h"), name(Form::Angle, "y.h"), Value::Macro(b"3".to_vec())]
        );
    }
}
