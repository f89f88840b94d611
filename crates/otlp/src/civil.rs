//! Dates of times, which OTLP counts from 1970.

/// A time in UTC as `2026-11-21T06:05:43`.
pub fn civil_time(unix_seconds: i64) -> String {
    let (year, month, day) = civil_date(unix_seconds.div_euclid(86_400));
    let time = unix_seconds.rem_euclid(86_400);
    let (hour, minute, second) = (time / 3600, time / 60 % 60, time % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
}

/// Days since 1970 → year, month, day (Hinnant, "chrono-Compatible Low-Level Date Algorithms").
pub fn civil_date(days: i64) -> (i64, i64, i64) {
    // Years begin in March here, so that the leap day is the last of its year.
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leap_days_and_the_ends_of_centuries_are_where_the_calendar_has_them() {
        let days = [
            (0, (1970, 1, 1)),
            (-1, (1969, 12, 31)),
            (11_016, (2000, 2, 29)),
            (19_782, (2024, 2, 29)),
            (47_541, (2100, 3, 1)),
        ];
        for (day, date) in days {
            assert_eq!(civil_date(day), date, "{day}");
        }
    }
}
