//! The part of HTTP/1.1 that a scrape needs: one request for `/metrics`, and one answer (RFC 9112).
//! Nothing here does I/O. The bytes come from strangers.

/// Longest head of a request in bytes. That of Prometheus has some 300, and a proxy adds cookies.
pub const HEAD_BYTES_MAX: usize = 8 << 10;

/// Where the metrics are.
pub const PATH: &str = "/metrics";

/// What the first bytes of a connection are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// They are no whole head yet.
    Part,
    /// They ask for the metrics.
    Metrics,
    /// They get another answer.
    Wrong(Refusal),
}

/// Answers without metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    BadRequest,
    NotFound,
    MethodNotAllowed,
}

/// Judges the bytes that have come so far.
pub fn judge(bytes: &[u8]) -> Head {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    let Some(head) = end.and_then(|end| bytes.get(..end)) else {
        let is_long = bytes.len() >= HEAD_BYTES_MAX;
        return if is_long { Head::Wrong(Refusal::BadRequest) } else { Head::Part };
    };
    match std::str::from_utf8(head).ok().and_then(request) {
        None => Head::Wrong(Refusal::BadRequest),
        Some((method, _)) if method != "GET" => Head::Wrong(Refusal::MethodNotAllowed),
        Some((_, target)) if target.split('?').next() == Some(PATH) => Head::Metrics,
        Some(_) => Head::Wrong(Refusal::NotFound),
    }
}

/// Returns the method and the target of a head, or `None` if it is not as RFC 9112 wants it.
fn request(head: &str) -> Option<(&str, &str)> {
    let mut lines = head.split("\r\n");
    let mut words = lines.next()?.split(' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    let is_known = matches!(version, "HTTP/1.1" | "HTTP/1.0") && words.next().is_none();
    let mut fields = lines.map(|line| line.split_once(':').map(|(name, _)| name));
    let has_fields = fields.all(|name| name.is_some_and(is_token));
    let is_right = is_known && is_token(method) && target.starts_with('/') && has_fields;
    is_right.then_some((method, target))
}

/// "token = 1*tchar" (RFC 9110, 5.6.2).
fn is_token(word: &str) -> bool {
    let is_tchar = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !word.is_empty() && word.bytes().all(is_tchar)
}

/// Returns the answer with the metrics.
pub fn metrics(text: &str) -> String {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    answer("200 OK", &format!("Content-Type: {kind}\r\n"), text)
}

/// Returns the answer to a head that asks for something else.
pub fn refusal(refusal: Refusal) -> String {
    let plain = "Content-Type: text/plain\r\n";
    match refusal {
        Refusal::BadRequest => {
            answer("400 Bad Request", plain, "This is no request of HTTP/1.1.\n")
        }
        Refusal::NotFound => answer("404 Not Found", plain, "The metrics are at /metrics.\n"),
        Refusal::MethodNotAllowed => {
            let fields = format!("{plain}Allow: GET\r\n");
            answer("405 Method Not Allowed", &fields, "The only method is GET.\n")
        }
    }
}

fn answer(status: &str, fields: &str, text: &str) -> String {
    let length = text.len();
    format!(
        "HTTP/1.1 {status}\r\n{fields}Content-Length: {length}\r\nConnection: close\r\n\r\n{text}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: &str = "GET /metrics HTTP/1.1\r\nHost: a:9\r\nAccept: */*\r\n\r\n";

    #[test]
    fn a_scrape_is_understood_when_its_head_is_whole() {
        for count in 0..REQUEST.len() {
            assert_eq!(judge(&REQUEST.as_bytes()[..count]), Head::Part, "{count} bytes");
        }
        assert_eq!(judge(REQUEST.as_bytes()), Head::Metrics);
        assert_eq!(judge(&[REQUEST.as_bytes(), b"and more"].concat()), Head::Metrics);
        assert_eq!(judge(b"GET /metrics?name=a HTTP/1.0\r\n\r\n"), Head::Metrics);
    }

    #[test]
    fn other_requests_get_the_answers_that_they_deserve() {
        let bad = Refusal::BadRequest;
        for (head, refusal) in [
            ("GET / HTTP/1.1", Refusal::NotFound),
            ("GET /metrics/ HTTP/1.1", Refusal::NotFound),
            ("GET /../metrics HTTP/1.1", Refusal::NotFound),
            ("POST /metrics HTTP/1.1", Refusal::MethodNotAllowed),
            ("HEAD /metrics HTTP/1.1", Refusal::MethodNotAllowed),
            ("get /metrics HTTP/1.1", Refusal::MethodNotAllowed),
            ("GET http://a/metrics HTTP/1.1", bad),
            ("GET metrics HTTP/1.1", bad),
            ("GET /metrics HTTP/2", bad),
            ("GET /metrics", bad),
            ("GET  /metrics HTTP/1.1", bad),
            ("GET /metrics HTTP/1.1 ", bad),
            ("G(T /metrics HTTP/1.1", bad),
            ("GET /metrics HTTP/1.1\r\nno colon", bad),
            ("GET /metrics HTTP/1.1\r\n: no name", bad),
            ("GET /metrics HTTP/1.1\r\n folded: a", bad),
            ("GET /metrics HTTP/1.1\nHost: a", bad),
            ("", bad),
        ] {
            let bytes = format!("{head}\r\n\r\n");
            assert_eq!(judge(bytes.as_bytes()), Head::Wrong(refusal), "{head:?}");
        }
        assert_eq!(judge(b"GET /\xff HTTP/1.1\r\n\r\n"), Head::Wrong(bad), "no UTF-8");
    }

    #[test]
    fn a_head_has_a_longest_length() {
        let long = vec![b'a'; HEAD_BYTES_MAX];
        assert_eq!(judge(&long[1..]), Head::Part);
        assert_eq!(judge(&long), Head::Wrong(Refusal::BadRequest));
    }

    #[test]
    fn answers_say_their_length_and_that_the_connection_ends() {
        let told = metrics("# EOF\n");
        assert!(told.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text;"));
        assert!(told.ends_with("Content-Length: 6\r\nConnection: close\r\n\r\n# EOF\n"), "{told}");
        let told = refusal(Refusal::MethodNotAllowed);
        assert!(told.contains("\r\nAllow: GET\r\n") && told.contains("405"), "{told}");
    }
}
