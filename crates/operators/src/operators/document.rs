//! The page that lists the operators with their options.

use std::fmt::Write as _;

use sluice_config::{Effect, Fields, OptionDoc};

use super::kinds;
use crate::chain::describe_common;
use crate::expression::function_names;
use crate::operator::Read;
use crate::parsers::describe_shared;

const HEAD: &str = include_str!("document/head.md");

/// Above the options that several parsers share.
const PARSERS: &str = "
## Options of parsers

Parsers that refer to this section have these options beside their own.
";

/// The page in Markdown, from the same calls that read the options.
pub fn document() -> String {
    let functions: Vec<_> = function_names().map(|name| format!("`{name}`")).collect();
    let mut page = HEAD.replace("FUNCTIONS", &(functions.join(", ") + "."));
    let common = Fields::describe(|fields| describe_common(fields, true));
    table(&mut page, &common);
    page.push_str(PARSERS);
    let shared = Fields::describe(describe_shared);
    table(&mut page, &shared);
    let mut sorted: Vec<_> = kinds().collect();
    sorted.sort_by_key(|kind| kind.name);
    for kind in sorted {
        // Writing to a string cannot fail.
        let _ = write!(page, "\n## `{}`\n\n{}\n", kind.name, kind.summary);
        let mut options = match kind.read {
            Read::Transform(read) => Fields::describe(read),
            Read::Stage(read) => Fields::describe(read),
            Read::Router(read) => {
                page.push_str("\nIt has neither `output` nor `if` nor `on_error`.\n");
                Fields::describe(read)
            }
        };
        if shared.iter().all(|option| options.contains(option)) {
            page.push_str("\nIt also has the [options of parsers](#options-of-parsers).\n");
            options.retain(|option| !shared.contains(option));
        }
        table(&mut page, &options);
    }
    page
}

fn table(page: &mut String, options: &[OptionDoc]) {
    if options.is_empty() {
        return;
    }
    page.push_str("\n| option | type | default | |\n|---|---|---|---|\n");
    for OptionDoc { path, kind, default, doc, effect } in options {
        let meaning = match effect {
            Effect::Used => doc.clone(),
            Effect::NoEffect(why) => format!("*No effect:* {why}."),
            Effect::NotYet(what) => format!("*Not in this build:* {what}."),
        };
        let line = [path, kind, default, &meaning].map(|text| text.replace('|', "\\|"));
        let [path, kind, default, meaning] = line;
        let _ = writeln!(page, "| `{path}` | {kind} | {default} | {meaning} |");
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Scenario: an option is added, renamed or removed in the code. Guarantee: docs/operators.md
    /// says so, or this test fails.
    #[test]
    fn the_committed_page_is_the_generated_one() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operators.md");
        let wanted = document();
        if std::env::var_os("UPDATE_READMES").is_some() {
            std::fs::write(&path, &wanted).expect("writes");
        }
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(text == wanted, "docs/operators.md: run this test with UPDATE_READMES=1");
        assert!(kinds().all(|kind| text.contains(&format!("## `{}`", kind.name))));
    }
}
