//! `Retry-After`: seconds, or the date at which to come back (RFC 9110, section 10.2.3).

use std::time::{Duration, SystemTime};

use http::HeaderMap;
use http::header::RETRY_AFTER;

/// The delay that the peer asks for. `None` if it asks for none in a readable form.
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    // A date that has passed means: now.
    Some(date.duration_since(SystemTime::now()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(value: &str) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, value.parse().expect("a header value"));
        retry_after(&headers)
    }

    /// Scenario: every form of the header. Guarantee: the right delay, never a negative one, and
    /// none for garbage.
    #[test]
    fn seconds_and_dates_are_read() {
        assert_eq!(read("120"), Some(Duration::from_secs(120)));
        assert_eq!(read("0"), Some(Duration::ZERO));
        let soon = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(60));
        let delay = read(&soon).expect("a date");
        assert!(delay > Duration::from_secs(50) && delay <= Duration::from_secs(60), "{delay:?}");
        assert_eq!(read("Wed, 21 Oct 2015 07:28:00 GMT"), Some(Duration::ZERO));
        assert_eq!(read("-1"), None);
        assert_eq!(read("later"), None);
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }

    proptest! {
        #[test]
        fn every_number_and_every_date_is_read(seconds: u64, date in 0_u64..253_402_300_800) {
            prop_assert_eq!(read(&seconds.to_string()), Some(Duration::from_secs(seconds)));
            // Up to the end of the year 9999, which is as far as the format goes.
            let date = SystemTime::UNIX_EPOCH + Duration::from_secs(date);
            let left = |now: SystemTime| date.duration_since(now).unwrap_or_default();
            let before = SystemTime::now();
            let delay = read(&httpdate::fmt_http_date(date));
            let range = left(SystemTime::now())..=left(before);
            prop_assert!(delay.is_some_and(|delay| range.contains(&delay)), "{delay:?}");
        }

        #[test]
        fn nonsense_means_nothing(value in "[0-9]{0,20}[a-z;:-][ -~é]{0,30}") {
            prop_assert_eq!(read(&value), None);
        }
    }
}
