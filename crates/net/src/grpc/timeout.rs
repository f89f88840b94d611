//! The `grpc-timeout` header: at most eight digits and a unit.

use std::time::Duration;

/// The largest number of eight digits.
const MOST: u128 = 99_999_999;

/// Writes a header value in the finest unit that has room for it. Rounded up, never shorter.
pub fn format(timeout: Duration) -> String {
    let units =
        [(1, 'n'), (1_000, 'u'), (1_000_000, 'm'), (1_000_000_000, 'S'), (60_000_000_000, 'M')];
    let count = |nanos| timeout.as_nanos().div_ceil(nanos);
    let fitting = units.into_iter().find(|(nanos, _)| count(*nanos) <= MOST);
    let (nanos, unit) = fitting.unwrap_or((3_600_000_000_000, 'H'));
    format!("{}{unit}", count(nanos).min(MOST))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reads a header value as a server does.
    fn parse(value: &[u8]) -> Option<Duration> {
        let (unit, digits) = value.split_last()?;
        if digits.is_empty() || digits.len() > 8 || !digits.iter().all(u8::is_ascii_digit) {
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
