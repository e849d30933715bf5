//! Suggestions for misspelt names.

use crate::limits::SUGGESTION_CHARS_MAX;

/// Returns the name that is most similar to `word`, or `None` if no name is similar.
pub(crate) fn nearest(
    word: &str,
    names: impl IntoIterator<Item = &'static str>,
) -> Option<&'static str> {
    let letters = word.chars().take(SUGGESTION_CHARS_MAX + 1).count();
    if letters > SUGGESTION_CHARS_MAX {
        return None;
    }
    // At most a third of the letters may differ. Words of one or two letters have no similar names.
    let distance_max = letters / 3;
    let word = word.to_ascii_lowercase();
    // The number of letters to insert, delete, change or swap with the next.
    let distance = |name: &str| strsim::osa_distance(&word, &name.to_ascii_lowercase());
    let distances = names.into_iter().map(|name| (distance(name), name));
    distances
        .filter(|(distance, _)| *distance <= distance_max)
        .min_by_key(|(distance, _)| *distance)
        .map(|it| it.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_near_is_suggested() {
        let names = ["vendor", "version", "type"];
        assert_eq!(nearest("vendr", names), Some("vendor"));
        assert_eq!(
            nearest("TPYE", names),
            Some("type"),
            "two letters that are swapped count as one"
        );
        assert_eq!(nearest("colour", names), None);
        assert_eq!(nearest("x", names), None);
        assert_eq!(nearest(&"v".repeat(10_000), names), None);
    }
}
