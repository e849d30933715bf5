//! Alerts, with which a peer says why it ends a connection.

use std::fmt;

/// Description of an alert, RFC 8446, 6.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Alert(pub u8);

impl Alert {
    pub const CLOSE_NOTIFY: Self = Self(0);
    pub const UNEXPECTED_MESSAGE: Self = Self(10);
    pub const BAD_RECORD_MAC: Self = Self(20);
    pub const RECORD_OVERFLOW: Self = Self(22);
    pub const ILLEGAL_PARAMETER: Self = Self(47);
    pub const ACCESS_DENIED: Self = Self(49);
    pub const DECODE_ERROR: Self = Self(50);
    pub const INTERNAL_ERROR: Self = Self(80);
    pub const USER_CANCELED: Self = Self(90);
    pub const NO_APPLICATION_PROTOCOL: Self = Self(120);

    /// Returns the level that goes with this alert. Receivers ignore it.
    ///
    /// RFC 8446, 6: "All the alerts listed in Section 6.2 MUST be sent with AlertLevel=fatal".
    pub(crate) fn level(self) -> u8 {
        const WARNING: u8 = 1;
        const FATAL: u8 = 2;
        if matches!(self, Self::CLOSE_NOTIFY | Self::USER_CANCELED) { WARNING } else { FATAL }
    }

    /// Returns the name that the standard gives to the alert.
    pub fn name(self) -> Option<&'static str> {
        Some(match self.0 {
            0 => "close_notify",
            10 => "unexpected_message",
            20 => "bad_record_mac",
            22 => "record_overflow",
            40 => "handshake_failure",
            42 => "bad_certificate",
            43 => "unsupported_certificate",
            44 => "certificate_revoked",
            45 => "certificate_expired",
            46 => "certificate_unknown",
            47 => "illegal_parameter",
            48 => "unknown_ca",
            49 => "access_denied",
            50 => "decode_error",
            51 => "decrypt_error",
            70 => "protocol_version",
            71 => "insufficient_security",
            80 => "internal_error",
            86 => "inappropriate_fallback",
            90 => "user_canceled",
            109 => "missing_extension",
            110 => "unsupported_extension",
            112 => "unrecognized_name",
            113 => "bad_certificate_status_response",
            115 => "unknown_psk_identity",
            116 => "certificate_required",
            120 => "no_application_protocol",
            _ => return None,
        })
    }
}

impl fmt::Display for Alert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "alert {}", self.0),
        }
    }
}

impl fmt::Debug for Alert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
