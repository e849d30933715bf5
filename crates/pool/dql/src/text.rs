//! Comparisons of texts. They ignore the case of ASCII letters.

/// Whether `text` is `word`, or contains it without a letter, digit or underscore beside it.
pub(crate) fn has_word(text: &str, word: &str) -> bool {
    if word.is_empty() {
        return text.is_empty();
    }
    let is_inside = |c: char| c.is_alphanumeric() || c == '_';
    text.char_indices().any(|(at, _)| {
        let Some((before, rest)) = text.split_at_checked(at) else { return false };
        let Some((found, after)) = rest.split_at_checked(word.len()) else { return false };
        found.eq_ignore_ascii_case(word)
            && !before.chars().next_back().is_some_and(is_inside)
            && !after.chars().next().is_some_and(is_inside)
    })
}

/// Returns the words of a text that is a set of words.
pub(crate) fn tokens(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| c.is_whitespace() || c == ';').filter(|token| !token.is_empty())
}

/// Whether `name` means this host. A name without a dot means the first part of the host name.
pub(crate) fn is_host(host: &str, name: &str) -> bool {
    let first = host.split('.').next().unwrap_or_default();
    host.eq_ignore_ascii_case(name) || (!name.contains('.') && first.eq_ignore_ascii_case(name))
}

/// Implements `LIKE`: `%` stands for any characters, `_` for one. It takes at most as many steps as
/// the product of both lengths.
pub(crate) fn is_like(text: &str, pattern: &str) -> bool {
    if text.is_ascii() && pattern.is_ascii() {
        return is_match(text.as_bytes(), pattern.as_bytes(), u8::eq_ignore_ascii_case, b'%', b'_');
    }
    let text: Vec<char> = text.chars().collect();
    let pattern: Vec<char> = pattern.chars().collect();
    is_match(&text, &pattern, char::eq_ignore_ascii_case, '%', '_')
}

fn is_match<T: PartialEq>(
    text: &[T],
    pattern: &[T],
    same: impl Fn(&T, &T) -> bool,
    anything: T,
    one: T,
) -> bool {
    let (mut at, mut in_pattern) = (0, 0);
    // The last `%`, and the place in the text from which its successors were last tried. Only the
    // last `%` must ever be tried again.
    let mut again = None;
    while let Some(c) = text.get(at) {
        match pattern.get(in_pattern) {
            Some(p) if *p == anything => {
                again = Some((in_pattern, at));
                in_pattern += 1;
            }
            Some(p) if *p == one || same(p, c) => {
                at += 1;
                in_pattern += 1;
            }
            _ => {
                let Some((percent, tried)) = again else { return false };
                at = tried + 1;
                again = Some((percent, at));
                in_pattern = percent + 1;
            }
        }
    }
    pattern.get(in_pattern..).unwrap_or_default().iter().all(|p| *p == anything)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stand_alone() {
        for (text, word, found) in [
            ("NVIDIA Corporation", "nvidia", true),
            ("NVIDIA Corporation", "corporation", true),
            ("Intel(R) Corporation", "intel", true),
            ("GenuineIntel", "intel", false),
            ("Intel_x", "intel", false),
            ("pthread-skylake", "skylake", true),
            ("Tesla K20c", "K20", false),
            ("gpu", "gpu", true),
            ("é gpu", "gpu", true),
            ("ägpu", "gpu", false),
            ("gpü", "gp", false),
            ("", "x", false),
            ("", "", true),
            ("x", "", false),
        ] {
            assert_eq!(has_word(text, word), found, "{word} in {text}");
        }
    }

    #[test]
    fn patterns_match_as_in_sql() {
        for (text, pattern, matches) in [
            ("Tesla K20c", "tesla%", true),
            ("Tesla K20c", "%k20_", true),
            ("Tesla K20c", "%K20", false),
            ("Tesla K20c", "tesla", false),
            ("aXbXc", "a%x%c", true),
            ("aab", "%ab", true),
            ("abc", "a__", true),
            ("abc", "a____", false),
            ("", "%", true),
            ("", "_", false),
            ("", "", true),
            ("ä", "_", true),
            ("abc", "%%%", true),
        ] {
            assert_eq!(is_like(text, pattern), matches, "{text} LIKE {pattern}");
        }
    }

    #[test]
    fn a_host_can_be_named_without_its_domain() {
        assert!(is_host("gpu01.cluster.org", "GPU01"));
        assert!(is_host("gpu01.cluster.org", "gpu01.cluster.org"));
        assert!(!is_host("gpu01.cluster.org", "gpu01.cluster"));
        assert!(!is_host("gpu01", "gpu0"));
    }

    #[test]
    fn tokens_end_at_spaces_and_semicolons() {
        assert_eq!(tokens(" a;b  c;").collect::<Vec<_>>(), ["a", "b", "c"]);
    }
}
