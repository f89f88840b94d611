//! `ordering_criteria`: which of the files that match are read.

use std::sync::Arc;

use sluice_config::Fields;
use sluice_tail::{Ordering, ParseTime, SortBy, SortKind};

use super::time::Layout;
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
        text => bytes_pattern(text).map(Some),
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
    let sort_by: Vec<SortBy> = sort_by.into_iter().flatten().collect();
    let needs_pattern = |sort: &SortBy| !matches!(sort.kind, SortKind::Modified);
    if pattern.is_none() && sort_by.iter().any(needs_pattern) {
        fields.error_missing("regex");
    }
    if let Some(pattern) = &pattern {
        for sort in sort_by.iter().filter(|sort| needs_pattern(sort)) {
            if !pattern.capture_names().flatten().any(|name| name == sort.key) {
                fields.error_at("regex", &format!("has no group `{}` to sort by", sort.key));
            }
        }
    }
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
    let doc = "For `timestamp`: the layout of the time, as `%Y%m%d%H`.";
    let layout = fields.parsed("layout", "layout of a time", None, doc, Layout::new);
    fields.no_effect("location", "times of one place have the same order in any");
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
            if !fields.is_given("layout") {
                fields.error_missing("layout");
            }
            let layout = layout?;
            let parse: Arc<ParseTime> = Arc::new(move |text| layout.parse(text));
            SortKind::Timestamp(parse)
        }
    };
    Some(SortBy { key, kind, ascending })
}
