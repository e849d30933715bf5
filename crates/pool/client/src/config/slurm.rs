//! Slurm's list of nodes: `gpu[01-03,07],login1`, `rack[1-2]node[001-032]-ib`.
//!
//! ```text
//! list  = name ("," name)*
//! name  = (text | "[" range ("," range)* "]")+
//! range = digits | digits "-" digits        numbers are padded to the width of the first
//! ```

use super::{ConfigError, NODES_MAX, SLURM_VARIABLE, Where};

/// Length of a host name: that of a domain name.
const NAME_BYTES_MAX: usize = 253;

/// Number of digits of a number in brackets. Every such number fits a `u64`.
const DIGITS_MAX: usize = 19;

/// Number of brackets in one name. Slurm itself documents at most two dimensions and takes some
/// more.
const BRACKETS_MAX: usize = 8;

/// Returns the host names that `list` stands for, in its order.
///
/// # Errors
/// If the list is not understood or names more than [`NODES_MAX`] nodes.
pub fn expand(list: &str) -> Result<Vec<String>, ConfigError> {
    let mut reader = Reader { bytes: list.trim().as_bytes(), at: 0 };
    let mut hosts = Vec::new();
    loop {
        reader.name(&mut hosts)?;
        match reader.next() {
            None => return Ok(hosts),
            Some(b',') => {}
            Some(_) => return Err(reader.fail_before("an unexpected character")),
        }
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn fail(&self, reason: &'static str) -> ConfigError {
        ConfigError::Slurm { reason, at: self.at }
    }

    /// As [`Reader::fail`], about the character that was just taken.
    fn fail_before(&self, reason: &'static str) -> ConfigError {
        ConfigError::Slurm { reason, at: self.at.saturating_sub(1) }
    }

    /// Reads one name and appends the hosts that it stands for to `hosts`.
    fn name(&mut self, hosts: &mut Vec<String>) -> Result<(), ConfigError> {
        // Each part of the name is appended to each beginning so far.
        let mut beginnings = vec![String::new()];
        let mut brackets = 0;
        loop {
            let text = self.text();
            for beginning in &mut beginnings {
                beginning.push_str(&text);
            }
            if self.peek() != Some(b'[') {
                break;
            }
            brackets += 1;
            if brackets > BRACKETS_MAX {
                return Err(self.fail("too many brackets in one name"));
            }
            beginnings = self.brackets(&beginnings, NODES_MAX - hosts.len())?;
        }
        if beginnings.iter().any(|host| host.is_empty() || host.len() > NAME_BYTES_MAX) {
            return Err(self.fail("a host name that is empty or too long"));
        }
        if hosts.len() + beginnings.len() > NODES_MAX {
            return Err(ConfigError::TooManyNodes { place: Where::Variable(SLURM_VARIABLE) });
        }
        hosts.append(&mut beginnings);
        Ok(())
    }

    /// Reads characters of a host name that have no meaning in the list.
    fn text(&mut self) -> String {
        let mut text = String::new();
        while let Some(byte) =
            self.peek().filter(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
        {
            text.push(char::from(byte));
            self.at += 1;
        }
        text
    }

    /// Reads `[...]` and combines every beginning with every number, at most `count_max` in all.
    fn brackets(
        &mut self,
        beginnings: &[String],
        count_max: usize,
    ) -> Result<Vec<String>, ConfigError> {
        self.next();
        let mut numbers = Vec::new();
        loop {
            self.range(&mut numbers, count_max)?;
            match self.next() {
                Some(b',') => {}
                Some(b']') => break,
                Some(_) => return Err(self.fail_before("an unexpected character in brackets")),
                None => return Err(self.fail("a bracket that is not closed")),
            }
        }
        if beginnings.len().saturating_mul(numbers.len()) > count_max {
            return Err(ConfigError::TooManyNodes { place: Where::Variable(SLURM_VARIABLE) });
        }
        let mut names = Vec::with_capacity(beginnings.len() * numbers.len());
        for beginning in beginnings {
            names.extend(numbers.iter().map(|number| format!("{beginning}{number}")));
        }
        Ok(names)
    }

    fn range(&mut self, numbers: &mut Vec<String>, count_max: usize) -> Result<(), ConfigError> {
        let (first, width) = self.number()?;
        let mut last = first;
        if self.peek() == Some(b'-') {
            self.at += 1;
            last = self.number()?.0;
        }
        if last < first {
            return Err(self.fail("a range that ends before it begins"));
        }
        if last - first >= (count_max.saturating_sub(numbers.len())) as u64 {
            return Err(ConfigError::TooManyNodes { place: Where::Variable(SLURM_VARIABLE) });
        }
        numbers.extend((first..=last).map(|number| format!("{number:0width$}")));
        Ok(())
    }

    /// Reads a number, and returns its value and the number of its digits.
    fn number(&mut self) -> Result<(u64, usize), ConfigError> {
        let mut value = 0u64;
        let mut width = 0;
        while let Some(digit) = self.peek().filter(u8::is_ascii_digit) {
            width += 1;
            if width > DIGITS_MAX {
                return Err(self.fail("a number that is too long"));
            }
            value = value * 10 + u64::from(digit - b'0');
            self.at += 1;
        }
        if width == 0 {
            return Err(self.fail("a number is missing in brackets"));
        }
        Ok((value, width))
    }
}
