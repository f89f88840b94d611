//! Times in names of files, as numbers that rise with them.

/// A layout of `strptime`, of those directives that names of files have.
#[derive(Clone, Debug)]
pub(super) struct Layout(Vec<Part>);

#[derive(Clone, Debug)]
enum Part {
    Text(char),
    /// The directive and the most digits.
    Number(char, usize),
    Month,
}

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

impl Layout {
    pub(super) fn new(text: &str) -> Result<Layout, String> {
        let (mut parts, mut rest) = (Vec::new(), text.chars());
        while let Some(character) = rest.next() {
            if character != '%' {
                parts.push(Part::Text(character));
                continue;
            }
            match rest.next() {
                Some('Y') => parts.push(Part::Number('Y', 4)),
                Some('j') => parts.push(Part::Number('j', 3)),
                Some('s') => parts.push(Part::Number('s', 18)),
                Some('L') => parts.push(Part::Number('L', 3)),
                Some('f') => parts.push(Part::Number('f', 6)),
                Some(it @ ('y' | 'm' | 'd' | 'e' | 'H' | 'M' | 'S')) => {
                    parts.push(Part::Number(it, 2));
                }
                Some('b' | 'h' | 'B') => parts.push(Part::Month),
                Some('%') => parts.push(Part::Text('%')),
                Some(other) => return Err(format!("`%{other}` is not in this build of Sluice")),
                None => return Err("it ends with `%`".to_owned()),
            }
        }
        Ok(Layout(parts))
    }

    /// Microseconds since a moment, for times of this layout.
    pub(super) fn parse(&self, text: &str) -> Option<i64> {
        let mut rest = text;
        let [mut years, mut months, mut days, mut seconds, mut micros] = [0_i64; 5];
        for part in &self.0 {
            match part {
                Part::Text(character) => rest = rest.strip_prefix(*character)?,
                Part::Month => {
                    let start = rest.get(..3)?.to_ascii_lowercase();
                    months = MONTHS.iter().position(|month| **month == start)? as i64 + 1;
                    let end = rest.find(|it: char| !it.is_ascii_alphabetic());
                    rest = &rest[end.unwrap_or(rest.len())..];
                }
                Part::Number(directive, most) => {
                    let digits = rest.bytes().take(*most).take_while(u8::is_ascii_digit).count();
                    let value: i64 = rest.get(..digits)?.parse().ok()?;
                    rest = &rest[digits..];
                    match directive {
                        'Y' => years = value,
                        'y' => years = value + if value < 69 { 2000 } else { 1900 },
                        'm' => months = value,
                        'd' | 'e' => days = value,
                        'j' => days = value,
                        'H' => seconds += value * 3600,
                        'M' => seconds += value * 60,
                        'S' => seconds += value,
                        's' => seconds = value,
                        'L' => micros = value * 1000,
                        _ => micros = value * 10_i64.pow(6 - digits as u32),
                    }
                }
            }
        }
        let days = (years * 12 + months).checked_mul(31)?.checked_add(days)?;
        let seconds = days.checked_mul(24 * 3600)?.checked_add(seconds)?;
        rest.is_empty().then(|| seconds.checked_mul(1_000_000)?.checked_add(micros)).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_names_are_ordered() {
        for (layout, times) in [
            ("%Y%m%d%H", &["2024123123", "2025010100", "2025010101"][..]),
            ("%d-%b-%y", &["31-Dec-99", "01-jan-00", "02-Jan-00"]),
            ("%Y.%j", &["2024.365", "2024.366", "2025.001"]),
            ("%H%M%S.%L", &["000001.999", "000002.000"]),
            ("%s", &["9", "1700000000"]),
        ] {
            let layout = Layout::new(layout).expect("is known");
            let values: Vec<_> = times.iter().map(|time| layout.parse(time)).collect();
            assert!(values.iter().all(Option::is_some) && values.is_sorted(), "{values:?}");
            assert_eq!(layout.parse("x"), None);
        }
        assert!(Layout::new("%Q").is_err() && Layout::new("%").is_err());
    }
}
