//! Every supported form of every instruction, in one table for the parser, the checks and the
//! documentation.
//!
//! A row writes suffixes as PTX's manual does: `.word` is required, `{.word}` is optional, `.(a|b)`
//! is one of several words, and `.CLASS` in capitals is a named list of words (see [`class`]). An
//! instruction may have its suffixes in another order, because assemblers accept any order. Only
//! the order of the type suffixes counts.
//!
//! A row's operands are `name:type`. The operands `d`, `p` and `q` are written, all others are
//! read. Types: `t` and `s` are the first and the last type suffix, `w` is an integer of twice the
//! width of `t`, `~t` is a register that may be wider, `vt` is a vector if the instruction has
//! `.v2`, `.v4` or `.v8`. Other types are PTX's, and `[]`, `tex`, `label`, `targets`, `call`,
//! `symbol` (`t`, or the address of a variable), `imm` (an integer in the text) and `handle`. `?`
//! behind the type marks an optional operand, `!` before the name one that may be negated, and `|`
//! the second destination of `d|p`.

mod pattern;
mod row;
mod table;

use std::collections::HashMap;
use std::sync::LazyLock;

pub use pattern::class;
pub(crate) use pattern::{Form, OperandForm, OperandKind, Suffixes, TypeRule};
pub use row::FormRow;

/// Returns all supported forms, in alphabetical order of the names.
pub fn table() -> impl Iterator<Item = FormRow> {
    table::ROWS.iter().copied()
}

/// Returns the row of an opcode with its suffixes, such as `add.sat.s32`, or `None` if the opcode
/// is not supported.
///
/// If several rows differ only in their operands, the function returns the first.
pub fn row_of(mnemonic: &str) -> Option<FormRow> {
    let (name, suffixes) = mnemonic.split_once('.').unwrap_or((mnemonic, ""));
    let words: Vec<&str> = suffixes.split('.').filter(|word| !word.is_empty()).collect();
    of(name).iter().find(|form| form.suffixes(&words).is_some()).map(|form| form.row)
}

static FORMS: LazyLock<HashMap<&'static str, Vec<Form>>> = LazyLock::new(|| {
    let mut forms: HashMap<&'static str, Vec<Form>> = HashMap::new();
    for row in table::ROWS {
        forms.entry(row.name).or_default().push(Form::compile(row));
    }
    forms
});

/// Returns the forms whose first word is `name`; empty if that opcode is not supported.
pub(crate) fn of(name: &str) -> &'static [Form] {
    FORMS.get(name).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::Opcode;

    #[test]
    fn every_row_compiles_and_the_table_is_in_order() {
        let names: Vec<&str> = table().map(|row| row.name).collect();
        assert!(names.is_sorted(), "the table is not in alphabetical order");
        for row in table() {
            assert!(of(row.name).iter().any(|form| form.row == row), "{}", row.syntax());
            assert!(row.doc.ends_with('.'), "{}: {}", row.syntax(), row.doc);
        }
    }

    #[test]
    fn no_two_rows_are_the_same() {
        let mut seen = std::collections::HashSet::new();
        for row in table() {
            assert!(
                seen.insert((row.name, row.suffixes, row.operands)),
                "{} is there twice",
                row.syntax()
            );
        }
    }

    #[test]
    fn every_opcode_has_a_row() {
        for opcode in Opcode::ALL {
            assert!(table().any(|row| row.opcode == *opcode), "{opcode:?} has no row");
        }
    }

    #[test]
    fn a_row_reads_like_the_manual() {
        let row = table()
            .find(|row| row.name == "add" && row.suffixes.contains("{.sat}.s32"))
            .expect("there is a saturating sum");
        assert_eq!(row.syntax(), "add{.sat}.s32 d, a, b");
    }
}
