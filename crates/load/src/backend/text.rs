//! Identities in text: a log line carries its own wherever a pipeline has put it, in the body, in a
//! field that was parsed out of it, or in JSON that is no OTLP.

use std::sync::LazyLock;

use anyhow::Result;
use memchr::memmem::Finder;
use serde_json::value::RawValue;

use super::scan::Item;
use crate::identity::{Stamp, TEXT_END, TEXT_MARK};

static MARK: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(TEXT_MARK));
static END: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(TEXT_END));

/// The line in one record. `None`: there is none, or only a part of one.
pub(super) fn identify(record: &[u8]) -> Item {
    let at = MARK.find(record)? + TEXT_MARK.len();
    let stamp = Stamp::parse(record.get(at..at + Stamp::LEN)?)?;
    // A pipeline that parses the line may turn the order of its fields around.
    END.find(record).map(|_| stamp)
}

/// Appends the lines of a body that is not OTLP: a JSON array of records, or JSON objects in a row.
pub(super) fn scan(body: &[u8], items: &mut Vec<Item>) -> Result<()> {
    let read = |record: &RawValue| identify(record.get().as_bytes());
    for value in serde_json::Deserializer::from_slice(body).into_iter::<&RawValue>() {
        let value = value?;
        match serde_json::from_str::<Vec<&RawValue>>(value.get()) {
            Ok(records) => items.extend(records.into_iter().map(read)),
            Err(_) => items.push(read(value)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Identity;

    fn line(sequence: u64) -> String {
        format!(
            "{{\"user\":\"{TEXT_MARK}{:016x}{:016x}\",\"referer\":\"{TEXT_END}\"}}",
            Identity::new(7, sequence).0,
            99
        )
    }

    #[test]
    fn a_whole_line_is_known_wherever_it_is_and_a_torn_one_is_not() {
        let line = line(5);
        let expected = Stamp { identity: Identity::new(7, 5), sent_unix_ns: 99 };
        assert_eq!(identify(format!("\x0a\x03abc{line}xyz").as_bytes()), Some(expected));
        for torn in [&line[..20], &line[..line.len() - 10], "", "some other line"] {
            assert_eq!(identify(torn.as_bytes()), None, "{torn}");
        }
    }

    #[test]
    fn every_record_of_an_array_or_a_row_of_objects_is_an_item() {
        let torn = format!("{{\"log\":\"{TEXT_MARK}00\"}}");
        for body in [
            format!("[{}, {torn}, {}]", line(1), line(3)),
            format!("{}\n{torn}\n{}\n", line(1), line(3)),
        ] {
            let mut items = Vec::new();
            scan(body.as_bytes(), &mut items).unwrap();
            let identities: Vec<_> =
                items.iter().map(|item| item.map(|stamp| stamp.identity)).collect();
            assert_eq!(
                identities,
                [Some(Identity::new(7, 1)), None, Some(Identity::new(7, 3))],
                "{body}"
            );
        }
        assert!(scan(b"[{}", &mut Vec::new()).is_err() && scan(b"text", &mut Vec::new()).is_err());
    }
}
