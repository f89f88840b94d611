//! The `grpc-timeout` header: at most eight digits and a unit.

use std::time::Duration;

const DIGITS_MAX: usize = 8;

/// Writes a header value in the finest unit that has room for it. Rounds up: a deadline is never
/// made shorter.
pub fn format(timeout: Duration) -> String {
    let units =
        [(1, 'n'), (1_000, 'u'), (1_000_000, 'm'), (1_000_000_000, 'S'), (60_000_000_000, 'M')];
    for (nanos, unit) in units {
        let count = timeout.as_nanos().div_ceil(nanos);
        if count < 10_u128.pow(DIGITS_MAX as u32) {
            return format!("{count}{unit}");
        }
    }
    let hours = timeout.as_nanos().div_ceil(3_600_000_000_000).min(99_999_999);
    format!("{hours}H")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reads a header value as a server does.
    fn parse(value: &[u8]) -> Option<Duration> {
        let (unit, digits) = value.split_last()?;
        if digits.is_empty() || digits.len() > DIGITS_MAX || !digits.iter().all(u8::is_ascii_digit)
        {
            return None;
        }
        let count = digits.iter().fold(0_u64, |count, digit| count * 10 + u64::from(digit - b'0'));
        match unit {
            b'H' => Some(Duration::from_secs(count * 3600)),
            b'M' => Some(Duration::from_secs(count * 60)),
            b'S' => Some(Duration::from_secs(count)),
            b'm' => Some(Duration::from_millis(count)),
            b'u' => Some(Duration::from_micros(count)),
            b'n' => Some(Duration::from_nanos(count)),
            _ => None,
        }
    }

    #[test]
    fn what_is_written_is_read_back_and_never_shorter() {
        for nanos in [0, 1, 99_999_999, 100_000_000, 5_000_000_001, 3_600_000_000_000, u64::MAX] {
            let timeout = Duration::from_nanos(nanos);
            let read = parse(format(timeout).as_bytes()).expect("is well-formed");
            assert!(
                read >= timeout && read <= timeout + timeout / 1000 + Duration::from_micros(1),
                "{timeout:?} {read:?}"
            );
        }
        assert_eq!(format(Duration::MAX), "99999999H");
    }

    proptest! {
        #[test]
        fn what_can_be_read_is_written_without_loss(count in 0..100_000_000, unit in "[HMSmun]") {
            let timeout = parse(format!("{count}{unit}").as_bytes()).expect("is well-formed");
            prop_assert_eq!(parse(format(timeout).as_bytes()), Some(timeout));
        }
    }
}
