//! Findings as text for people.

use penstock_doctor::{Finding, Severity, Topic};

use crate::table;

/// Widest line, also of a wider terminal: longer lines are hard to read.
const WIDTH_MAX: usize = 100;
/// Narrowest line. A narrower terminal breaks the lines itself.
const WIDTH_MIN: usize = 40;

/// Returns the findings topic by topic, the worst of each topic first, and a summary.
pub fn text(findings: &[Finding], checks: usize, width: Option<usize>) -> String {
    let width = width.unwrap_or(WIDTH_MAX).clamp(WIDTH_MIN, WIDTH_MAX);
    let mut text = String::new();
    for topic in Topic::ALL {
        let of_topic: Vec<&Finding> = findings.iter().filter(|it| it.topic == topic).collect();
        if of_topic.is_empty() {
            continue;
        }
        text.push_str(&format!("{}\n", topic.title()));
        for severity in Severity::ALL {
            for group in groups(&of_topic, severity) {
                text.push_str(&of_group(&group, width));
            }
        }
        text.push('\n');
    }
    text + &summary(findings, checks)
}

/// Returns the findings of this severity, check by check. Findings with the same repair are one
/// group, so that the text says only once why they matter.
fn groups<'a>(findings: &[&'a Finding], severity: Severity) -> Vec<Vec<&'a Finding>> {
    let mut groups: Vec<Vec<&Finding>> = Vec::new();
    for &finding in findings.iter().filter(|it| it.severity == severity) {
        let same = |group: &&mut Vec<&Finding>| {
            group.iter().all(|it| it.check == finding.check && it.repair == finding.repair)
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push(finding),
            None => groups.push(vec![finding]),
        }
    }
    groups
}

fn of_group(group: &[&Finding], width: usize) -> String {
    let Some(first) = group.first() else { return String::new() };
    let mut text = format!("\n  {}: {}\n", first.severity.name(), first.check);
    for finding in group {
        text.push_str(&paragraph("seen", &finding.seen, width));
    }
    text.push_str(&paragraph("why", &first.why, width));
    text.push_str(&paragraph("do", &first.repair, width));
    for finding in group.iter().filter(|it| !it.place.is_empty()) {
        text.push_str(&paragraph("from", &finding.place, width));
    }
    text
}

/// Returns a paragraph with a label in its margin.
fn paragraph(label: &str, content: &str, width: usize) -> String {
    let mut text = String::new();
    let mut line = format!("    {label:<5}");
    let margin = line.len();
    for word in table::printable(content).split_whitespace() {
        let is_first = line.chars().count() == margin;
        if !is_first && line.chars().count() + 1 + word.chars().count() > width {
            text.push_str(&format!("{}\n", line.trim_end()));
            line = " ".repeat(margin);
        }
        if line.chars().count() > margin {
            line.push(' ');
        }
        line.push_str(word);
    }
    text + line.trim_end() + "\n"
}

fn summary(findings: &[Finding], checks: usize) -> String {
    let count = |severity: Severity| {
        let count = findings.iter().filter(|it| it.severity == severity).count();
        format!("{count} {}{}", severity.name(), if count == 1 { "" } else { "s" })
    };
    let counts = Severity::ALL.map(count).join(", ");
    format!("{checks} checks: {counts}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(check: &'static str, topic: Topic, severity: Severity, seen: &str) -> Finding {
        Finding {
            check,
            topic,
            severity,
            place: "dev/kvm".into(),
            seen: seen.into(),
            why: "It matters very much to everybody who waits for it.".into(),
            repair: "sudo modprobe kvm".into(),
        }
    }

    #[test]
    fn findings_are_grouped_by_topic_and_the_worst_comes_first() {
        let findings = [
            finding("note-a", Topic::Virtualisation, Severity::Note, "a note"),
            finding("kvm", Topic::Virtualisation, Severity::Error, "one is closed"),
            finding("kvm", Topic::Virtualisation, Severity::Error, "two is closed"),
        ];
        let text = text(&findings, 9, Some(50));
        let expected = [
            "Virtual machines and containers",
            "",
            "  error: kvm",
            "    seen one is closed",
            "    seen two is closed",
            "    why  It matters very much to everybody who",
            "         waits for it.",
            "    do   sudo modprobe kvm",
            "    from dev/kvm",
            "    from dev/kvm",
            "",
            "  note: note-a",
        ];
        assert!(text.starts_with(&expected.join("\n")), "{text}");
        assert!(text.ends_with("\n9 checks: 2 errors, 0 warnings, 1 note\n"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 50), "{text}");
    }

    #[test]
    fn nothing_found_is_one_line() {
        assert_eq!(text(&[], 9, None).lines().count(), 1);
    }
}
