//! Values that must never be shown.

use std::fmt;

/// A password, token or header value. `Debug` does not show it, and there is no `Display`.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Secret(String);

impl Secret {
    pub fn new(value: impl Into<String>) -> Self {
        Secret(value.into())
    }

    /// The value itself. Pass it only to the code that authenticates with it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("[REDACTED]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: a structure with a secret is logged. Guarantee: the value does not appear.
    #[test]
    fn debug_does_not_show_the_value() {
        let secret = Secret::new("hunter2");
        assert_eq!(format!("{secret:?} {:?}", Some(&secret)), "[REDACTED] Some([REDACTED])");
        assert_eq!(secret.expose(), "hunter2");
    }
}
