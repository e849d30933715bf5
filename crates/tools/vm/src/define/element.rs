//! An element of XML.

use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element {
    name: &'static str,
    attributes: Vec<(&'static str, String)>,
    text: String,
    children: Vec<Element>,
    /// Comment before the element.
    comment: Option<String>,
}

impl Element {
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            attributes: Vec::new(),
            text: String::new(),
            children: Vec::new(),
            comment: None,
        }
    }

    #[must_use]
    pub fn with(mut self, attribute: &'static str, value: impl ToString) -> Self {
        self.attributes.push((attribute, value.to_string()));
        self
    }

    #[must_use]
    pub fn text(self, text: impl ToString) -> Self {
        Self { text: text.to_string(), ..self }
    }

    #[must_use]
    pub fn comment(self, comment: impl ToString) -> Self {
        Self { comment: Some(comment.to_string()), ..self }
    }

    #[must_use]
    pub fn child(mut self, child: Self) -> Self {
        self.children.push(child);
        self
    }

    #[must_use]
    pub fn children(mut self, children: impl IntoIterator<Item = Self>) -> Self {
        self.children.extend(children);
        self
    }

    fn write(&self, target: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
        let margin = "  ".repeat(depth);
        if let Some(comment) = &self.comment {
            // Two hyphens would end the comment.
            writeln!(target, "{margin}<!-- {} -->", comment.replace("--", "- -"))?;
        }
        write!(target, "{margin}<{}", self.name)?;
        for (name, value) in &self.attributes {
            write!(target, " {name}='{}'", escaped(value))?;
        }
        if self.children.is_empty() && self.text.is_empty() {
            return writeln!(target, "/>");
        }
        write!(target, ">{}", escaped(&self.text))?;
        if !self.children.is_empty() {
            writeln!(target)?;
            for child in &self.children {
                child.write(target, depth + 1)?;
            }
            write!(target, "{margin}")?;
        }
        writeln!(target, "</{}>", self.name)
    }
}

impl fmt::Display for Element {
    /// Writes the element with a line for each element in it.
    fn fmt(&self, target: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(target, 0)
    }
}

fn escaped(text: &str) -> String {
    let mut safe = String::new();
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '\'' => safe.push_str("&apos;"),
            '"' => safe.push_str("&quot;"),
            letter => safe.push(letter),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_nested_and_values_escaped() {
        let element = Element::new("a")
            .comment("one -- two")
            .with("b", "it's <1>")
            .child(Element::new("c").text("x & y"))
            .child(Element::new("d"));
        let text = "<!-- one - - two -->\n<a b='it&apos;s &lt;1&gt;'>\n  <c>x &amp; y</c>\n  \
                    <d/>\n</a>\n";
        assert_eq!(element.to_string(), text);
    }
}
