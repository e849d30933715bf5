//! Suggestions for misspelt names.

use crate::limits::SUGGESTION_CHARS_MAX;

/// Returns the name that is most similar to `word`, or `None` if no name is similar.
pub(crate) fn nearest(
    word: &str,
    names: impl IntoIterator<Item = &'static str>,
) -> Option<&'static str> {
    let word: Vec<char> =
        word.chars().take(SUGGESTION_CHARS_MAX + 1).map(|c| c.to_ascii_lowercase()).collect();
    if word.len() > SUGGESTION_CHARS_MAX {
        return None;
    }
    // At most a third of the letters may differ. Words of one or two letters have no similar names.
    let distance_max = word.len() / 3;
    let distances = names.into_iter().map(|name| (distance(&word, name), name));
    distances
        .filter(|(distance, _)| *distance <= distance_max)
        .min_by_key(|(distance, _)| *distance)
        .map(|it| it.1)
}

/// Returns the number of letters to insert, delete, change or swap with the next to turn `word`
/// into `name`.
fn distance(word: &[char], name: &str) -> usize {
    let name: Vec<char> = name.chars().map(|c| c.to_ascii_lowercase()).collect();
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=name.len()).collect();
    for (row, letter) in word.iter().enumerate() {
        let mut next = vec![row + 1];
        for (column, other) in name.iter().enumerate() {
            let mut least = (last[column] + usize::from(letter != other))
                .min(last[column + 1] + 1)
                .min(next[column] + 1);
            if row > 0 && column > 0 && *letter == name[column - 1] && word[row - 1] == *other {
                least = least.min(before[column - 1] + 1);
            }
            next.push(least);
        }
        before = std::mem::replace(&mut last, next);
    }
    last[name.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letters(word: &str) -> Vec<char> {
        word.chars().collect()
    }

    #[test]
    fn distances_count_letters() {
        for (word, name, count) in [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "abc", 0),
            ("abc", "ABD", 1),
            ("acb", "abc", 1),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(&letters(word), name), count, "{word} {name}");
        }
    }

    #[test]
    fn only_what_is_near_is_suggested() {
        let names = ["vendor", "version", "type"];
        assert_eq!(nearest("vendr", names), Some("vendor"));
        assert_eq!(nearest("TPYE", names), Some("type"));
        assert_eq!(nearest("colour", names), None);
        assert_eq!(nearest("x", names), None);
        assert_eq!(nearest(&"v".repeat(10_000), names), None);
    }
}
