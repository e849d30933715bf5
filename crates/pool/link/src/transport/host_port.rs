//! `HOST:PORT` and `[V6]:PORT`, as addresses of several transports have them.

/// Splits the port off a host, if there is one. The brackets of an IPv6 host are removed.
///
/// # Errors
/// Fails with a reason for the user if brackets are missing or not closed.
pub(super) fn split(text: &str) -> Result<(&str, Option<&str>), String> {
    if let Some(v6) = text.strip_prefix('[') {
        let (host, rest) = v6.split_once(']').ok_or("a bracket is not closed")?;
        let port = rest.strip_prefix(':');
        if port.is_none() && !rest.is_empty() {
            return Err("only a port follows the brackets".to_owned());
        }
        return Ok((host, port));
    }
    match text.split_once(':') {
        Some((_, port)) if port.contains(':') => Err("an IPv6 host needs brackets".to_owned()),
        Some((host, port)) => Ok((host, Some(port))),
        None => Ok((text, None)),
    }
}
