//! The READMEs list the options that the code reads, no more and no fewer.

use std::path::PathBuf;

use sluice_config::{Effect, Fields, OptionDoc};

const BEGIN: &str = "<!-- options: written by the tests, run them with UPDATE_READMES=1 -->\n";
const END: &str = "<!-- end of options -->\n";

fn table(options: &[OptionDoc]) -> String {
    let mut table = String::from("| Option | Kind | Default | |\n|---|---|---|---|\n");
    for option in options {
        let doc = match &option.effect {
            Effect::Used => option.doc.clone(),
            Effect::NoEffect(why) => format!("Accepted without effect: {why}."),
            Effect::NotYet(what) => format!("Not in this build: {what}."),
            Effect::RenamedTo(new) => format!("Old name of `{new}`."),
        };
        let cells = [format!("`{}`", option.path), option.kind.clone(), option.default.clone(), doc];
        table.push_str(&format!("| {} |\n", cells.map(|cell| cell.replace('|', "\\|")).join(" | ")));
    }
    table
}

/// Scenario: an option is added, renamed or removed in the code. Guarantee: the README says so, or this test does.
#[test]
fn readmes_list_every_option() {
    for kind in crate::KINDS {
        let options = Fields::describe(|fields| drop(crate::read(kind.name, fields)));
        if options.is_empty() {
            continue;
        }
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src").join(kind.name).join("README.md");
        let text = std::fs::read_to_string(&path).expect("a README");
        let (head, rest) = text.split_once(BEGIN).expect("the options' beginning");
        let (_, tail) = rest.split_once(END).expect("the options' end");
        let wanted = format!("{head}{BEGIN}{}{END}{tail}", table(&options));
        if std::env::var_os("UPDATE_READMES").is_some() {
            std::fs::write(&path, &wanted).expect("writes");
        }
        let text = std::fs::read_to_string(&path).expect("a README");
        assert!(text == wanted, "{} is out of date: run this test with UPDATE_READMES=1", path.display());
    }
}
