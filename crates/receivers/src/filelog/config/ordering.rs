//! `ordering_criteria`: which of the files that match are read.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use sluice_config::{Fields, Pattern};
use sluice_operators::{Layout, Location};
use sluice_tail::{Ordering, ParseTime, SortBy, SortKind};

use crate::splitting::bytes_pattern;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Numeric,
    Alphabetical,
    Timestamp,
    Mtime,
}

pub(super) fn read(fields: &mut Fields<'_>) -> Option<Ordering> {
    let doc = "Reads only the first of the files that match, in an order.";
    fields.section_unless_empty("ordering_criteria", doc, read_section).flatten()
}

fn read_section(fields: &mut Fields<'_>) -> Option<Ordering> {
    let kind = "a regular expression";
    let doc =
        "Its named groups are the keys to sort by. Paths that it does not match are not read.";
    let pattern = fields.parsed("regex", kind, None, doc, |text| match text {
        "" => Ok(None),
        text => Ok(Some((Pattern::new(text)?, bytes_pattern(text)?))),
    });
    let doc = "The first group of the path: each group of files has an order of its own.";
    let group_by = fields.parsed("group_by", kind, None, doc, |text| match text {
        "" => Ok(None),
        text => bytes_pattern(text).map(Some),
    });
    let doc = "The number of files that are read, of each group. 0: all.";
    let top = fields.integer("top_n", 1, 0..=usize::MAX, doc);
    let sort_by = fields.sections("sort_by", "The sorts, one after the other.", read_sort);
    let (pattern, group_by) = (pattern.flatten(), group_by.flatten());
    let mut sort_by: Vec<SortBy> = sort_by.into_iter().flatten().collect();
    let needs_pattern = |sort: &SortBy| !matches!(sort.kind, SortKind::Modified);
    if pattern.is_none() && sort_by.iter().any(needs_pattern) {
        fields.error_missing("regex");
    }
    if let Some((pattern, _)) = &pattern {
        for sort in sort_by.iter_mut().filter(|sort| needs_pattern(sort) && !sort.key.is_empty()) {
            if !pattern.group_names().flatten().any(|name| name == sort.key) {
                fields.error_at("regex", &format!("has no group `{}` to sort by", sort.key));
            }
            sort.key = Pattern::inner_name(&sort.key).into_owned();
        }
    }
    let pattern = pattern.map(|(_, pattern)| pattern);
    // As in the Collector, nothing is selected without a sort.
    (!sort_by.is_empty()).then_some(Ordering { pattern, group_by, top, sort_by })
}

fn read_sort(fields: &mut Fields<'_>) -> Option<SortBy> {
    let kinds = [
        ("numeric", Kind::Numeric),
        ("alphabetical", Kind::Alphabetical),
        ("timestamp", Kind::Timestamp),
        ("mtime", Kind::Mtime),
    ];
    let doc = "The key as a number, a text or a time, or the file's time of modification.";
    let kind = fields.optional_choice("sort_type", &kinds, doc);
    let key = fields.string("regex_key", "", "The group of `regex` that is the key.");
    let ascending = fields.boolean("ascending", false, "Whether the lowest is first.");
    let doc = "For `timestamp`: the layout of the time, as `%Y%m%d%H`, of the same directives as \
               that of `time_parser`. Files without such a time are not read.";
    let layout = fields.non_empty_string("layout", doc);
    let doc = "The time zone of times that say none.";
    let location = fields.parsed("location", "a time zone", Some("UTC"), doc, Location::named);
    if kind.is_none() && !fields.is_describing() {
        fields.error_missing("sort_type");
    }
    let kind = kind?;
    if key.is_empty() && kind != Kind::Mtime {
        fields.error_missing("regex_key");
    }
    let kind = match kind {
        Kind::Numeric => SortKind::Numeric,
        Kind::Alphabetical => SortKind::Alphabetical,
        Kind::Mtime => SortKind::Modified,
        Kind::Timestamp => {
            let Some(layout) = layout else {
                fields.error_missing("layout");
                return None;
            };
            match Layout::strptime(&layout) {
                Ok(layout) => SortKind::Timestamp(time_of(layout.within(location?))),
                Err(why) => {
                    fields.error_at("layout", &why);
                    return None;
                }
            }
        }
    };
    Some(SortBy { key, kind, ascending })
}

fn time_of(layout: Layout) -> Arc<ParseTime> {
    Arc::new(move |text| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        layout.read(text, i64::try_from(now.as_nanos()).unwrap_or(i64::MAX)).ok()
    })
}
