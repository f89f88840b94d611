use super::*;
use crate::expand::tests::{Fake, said, shape};

fn tree(locations: &[&str], environment: &Fake) -> (Option<String>, Vec<String>) {
    let locations: Vec<String> = locations.iter().map(|location| (*location).to_owned()).collect();
    let mut diagnostics = Diagnostics::default();
    let tree = read_tree(&locations, environment, &mut diagnostics);
    (tree.as_ref().map(shape), said(&diagnostics))
}

#[test]
fn reads_every_kind_of_location() {
    let file = "a: 1\nf::g: 6\nf::h::i: {j::k: 7}";
    let environment = Fake::default()
        .file("/etc/c.yaml", "a: 1")
        .file("/etc/flat.yaml", file)
        .variable("CONFIG", "b: 2");
    let locations = [
        "/etc/c.yaml",
        "file:/etc/c.yaml",
        "env:CONFIG",
        "/etc/flat.yaml",
        "yaml:c::d: 3",
        "yaml:c::e: 4\nc::f::g: 5",
    ];
    let (tree, said) = tree(&locations, &environment);
    assert_eq!(tree.as_deref(), Some("{a:1,b:2,f:{g:6,h:{i:{j::k:7}}},c:{d:3,e:4,f:{g:5}}}"));
    assert_eq!(said, Vec::<String>::new());
}

/// Guarantee: a watcher of files knows all files on which the configuration depends, also missing
/// ones, and their content.
#[test]
fn tells_which_files_it_asked_for() {
    let text = "a: ${file:whole}\nb: Bearer ${file:part}\nc: ${file:missing}\nd: ${env:V}";
    let environment = Fake::default()
        .file("/etc/c.yaml", text)
        .file("whole", "1\n")
        .file("part", "token\n")
        .variable("V", "2");
    let mut diagnostics = Diagnostics::default();
    let locations = ["/etc/c.yaml", "yaml:e: 3", "none.yaml"].map(str::to_owned);
    read_tree(&locations[..2], &environment, &mut diagnostics);
    read_tree(&locations[2..], &environment, &mut diagnostics);
    let files: Vec<_> = diagnostics
        .sources
        .files()
        .map(|(path, text)| (path.to_str().unwrap_or_default(), text))
        .collect();
    let (whole, part) = (("whole", Some("1\n")), ("part", Some("token\n")));
    assert_eq!(
        files,
        [("/etc/c.yaml", Some(text)), whole, part, ("missing", None), ("none.yaml", None)]
    );
}

#[test]
fn says_what_cannot_be_read() {
    let environment = Fake::default().file("list.yaml", "- a").file("bad.yaml", "a: [");
    for (location, expected) in [
        ("none.yaml", "error: the configuration file `none.yaml` cannot be read: no such file"),
        (
            "env:CONFIG",
            "error: the environment variable `CONFIG` with the configuration is not set",
        ),
        (
            "https://example.com/c.yaml",
            "error: configuration cannot be read from `https:` (give a path, `file:PATH`, `env:NAME` or `yaml:TEXT`)",
        ),
        ("list.yaml", "list.yaml:1:1: error: a configuration must be a mapping, not a list"),
        ("bad.yaml", "bad.yaml:1:4: error: not valid YAML: unclosed bracket '['"),
    ] {
        assert_eq!(
            tree(&[location], &environment),
            (None, vec![expected.to_owned()]),
            "{location}"
        );
    }
    assert_eq!(tree(&[], &environment).1, ["error: no configuration was given"]);
}

/// Scenario: two files, one broken. Guarantee: only the broken one is reported, and no error that
/// follows from its absence.
#[test]
fn a_broken_file_hides_what_would_follow_from_it() {
    let environment = Fake::default().file("a.yaml", "a: 1").file("b.yaml", "b: {");
    let (tree, said) = tree(&["a.yaml", "b.yaml"], &environment);
    assert_eq!((tree, said.len()), (None, 1));
}
