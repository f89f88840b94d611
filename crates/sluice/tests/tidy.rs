//! Style that a machine can check, in every Rust and Markdown file that git knows or would add.
//!
//! The rules, by the names under which `tidy/exceptions.txt` lists them:
//!
//! - `width`: no line has more than `LINE_WIDTH` characters. Left out are, in Markdown, tables,
//!   fenced blocks, lines without a space to break at, and generated documents; in tests, lines
//!   that are a string literal, which are often texts that are compared as a whole.
//! - `comment`: a block of `//` lines, or of `///` lines on an item that is not `pub`, has at most
//!   `COMMENT_LINES` lines. Module heads (`//!`) and documentation of `pub` items may be longer.
//! - `phrase`: no `BANNED_PHRASES`, whether in comments, in messages or in Markdown.
//! - `identifier`: no `BANNED_IDENTIFIERS` in code. The field has another term for each of them.
//! - `length`: a source file has at most `FILE_LINES` lines, a file of tests `TEST_FILE_LINES`.
//! - `path`: no path of one person's machine.
//! - `unfinished`: no macro that stands for code to be written, or for debugging.
//!
//! `tidy/exceptions.txt` lists the files that are not clean yet, with the number of violations. A
//! file must have exactly as many as are listed, so the list cannot grow unseen, and what is mended
//! leaves it. `SLUICE_TIDY_WRITE=1 cargo test -p sluice --test tidy` writes the list anew.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const LINE_WIDTH: usize = 100;
const COMMENT_LINES: usize = 3;
const FILE_LINES: usize = 500;
const TEST_FILE_LINES: usize = 600;

/// Written in two parts, so that this file does not violate its own rules.
const BANNED_PHRASES: &[&str] = &[
    concat!("no", "body"),
    concat!("some", "body"),
    concat!("any", "body"),
    concat!("who", "ever"),
    concat!("So ", "long"),
    concat!("would ", "else"),
    concat!("or it ", "is"),
];

const BANNED_IDENTIFIERS: &[&str] = &[
    "Burial",
    "Farewell",
    "Gap",
    "Mourner",
    "Pulse",
    "Turns",
    "Unsaid",
    "Way",
    "obituaries",
    "mod burial",
    "mod keeper",
    "mod pulse",
    "mod turns",
];

const MACHINE_PATHS: &[&str] =
    &[concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/Us", "ers/"), concat!("/wo", "rk/")];

const UNFINISHED: &[&str] =
    &[concat!("todo", "!"), concat!("unimplemented", "!"), concat!("dbg", "!")];

/// Made by the program, or as it makes them: tables and messages as wide as they come.
const GENERATED: &[&str] =
    &["docs/configuration.md", "docs/limits.md", "docs/metrics.md", "crates/load-test/testdata/"];

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Language {
    Rust,
    Markdown,
}

/// A violation: the line, counted from 1, and the rule.
type Violation = (usize, &'static str);

fn violations(path: &str, text: &str) -> Vec<Violation> {
    let language = if path.ends_with(".rs") { Language::Rust } else { Language::Markdown };
    let mut found = Vec::new();
    if !GENERATED.iter().any(|generated| path.starts_with(generated)) {
        find_wide_lines(language, is_test_file(path), text, &mut found);
    }
    find_words(text, "phrase", BANNED_PHRASES, &mut found);
    find_words(text, "path", MACHINE_PATHS, &mut found);
    if language == Language::Rust {
        find_long_comments(text, &mut found);
        find_identifiers(text, &mut found);
        find_words(text, "unfinished", UNFINISHED, &mut found);
        let limit = if is_test_file(path) { TEST_FILE_LINES } else { FILE_LINES };
        found.extend((text.lines().count() > limit).then_some((limit + 1, "length")));
    }
    found.sort_unstable();
    found
}

fn is_test_file(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.split('/').any(|part| part == "tests")
}

fn find_wide_lines(language: Language, is_test: bool, text: &str, found: &mut Vec<Violation>) {
    let mut fenced = false;
    for (number, line) in (1..).zip(text.lines()) {
        if language == Language::Markdown {
            let fence = line.trim_start().starts_with("```");
            fenced ^= fence;
            let breakable = line.trim_start().contains(' ');
            if fenced || fence || line.starts_with('|') || !breakable {
                continue;
            }
        }
        let is_literal =
            language == Language::Rust && is_test && line.trim_start().starts_with('"');
        if !is_literal && line.chars().count() > LINE_WIDTH {
            found.push((number, "width"));
        }
    }
}

/// The marker of a line that is a comment and nothing else.
fn comment_marker(line: &str) -> Option<&'static str> {
    let line = line.trim_start();
    ["///", "//!", "//"].into_iter().find(|marker| line.starts_with(marker))
}

fn find_long_comments(text: &str, found: &mut Vec<Violation>) {
    let lines: Vec<&str> = text.lines().collect();
    let mut first = 0;
    for block in lines.chunk_by(|one, other| comment_marker(one) == comment_marker(other)) {
        let behind = first + block.len();
        let bounded = match comment_marker(block[0]) {
            Some("//") => true,
            Some("///") => !is_public(&lines[behind..]),
            _ => false,
        };
        if bounded && block.len() > COMMENT_LINES {
            found.push((first + 1, "comment"));
        }
        first = behind;
    }
}

/// Whether the item that begins here, behind its attributes, is `pub` for anyone.
fn is_public(lines: &[&str]) -> bool {
    let item = lines.iter().map(|line| line.trim_start()).find(|line| !line.starts_with("#["));
    item.is_some_and(|item| item.starts_with("pub"))
}

fn find_identifiers(text: &str, found: &mut Vec<Violation>) {
    for (number, line) in (1..).zip(text.lines()) {
        let code = code_of(line);
        found.extend(
            BANNED_IDENTIFIERS
                .iter()
                .filter(|word| has_word(&code, word))
                .map(|_| (number, "identifier")),
        );
    }
}

/// The line without its comment and string literals. Good enough for a list of names: what a
/// literal of several lines holds is taken for code.
fn code_of(line: &str) -> String {
    let line = line.replace("\\\"", "");
    let outside: Vec<_> = line.split('"').step_by(2).collect();
    outside.join("\"\"").split("//").next().unwrap_or_default().to_owned()
}

fn find_words(text: &str, rule: &'static str, words: &[&str], found: &mut Vec<Violation>) {
    for (number, line) in (1..).zip(text.lines()) {
        let lower = line.to_lowercase();
        for word in words {
            // A phrase with a capital is banned at the start of a sentence only.
            let is_lower = !word.contains(char::is_uppercase);
            if has_word(if is_lower { &lower } else { line }, word) {
                found.push((number, rule));
            }
        }
    }
}

/// Whether the text has the word as a whole: no letter, digit or underscore stands next to it.
fn has_word(text: &str, word: &str) -> bool {
    let part_of_word =
        |character: Option<char>| character.is_some_and(|c| c.is_alphanumeric() || c == '_');
    text.match_indices(word).any(|(at, _)| {
        let before =
            word.starts_with(char::is_alphanumeric) && part_of_word(text[..at].chars().next_back());
        let behind = word.ends_with(char::is_alphanumeric)
            && part_of_word(text[at + word.len()..].chars().next());
        !before && !behind
    })
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the workspace").to_owned()
}

/// Rust and Markdown files that git tracks, and new ones that it does not ignore.
fn files() -> Vec<String> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.rs", "*.md"])
        .current_dir(root())
        .output()
        .expect("git runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let names = String::from_utf8(output.stdout).expect("readable names");
    let mut files: Vec<_> = names.split_terminator('\0').map(str::to_owned).collect();
    // A file that was removed and not committed yet is still listed.
    files.retain(|file| root().join(file).is_file());
    files.sort();
    files.dedup();
    files
}

const EXCEPTIONS: &str = "crates/sluice/tests/tidy/exceptions.txt";

type Counts = BTreeMap<(String, String), usize>;

fn listed_exceptions(text: &str) -> Counts {
    let entry = |line: &str| {
        let [path, rule, count] =
            line.split(' ').collect::<Vec<_>>().try_into().expect("`path rule count`");
        ((path.to_owned(), rule.to_owned()), count.parse().expect("a count"))
    };
    text.lines().map(entry).collect()
}

/// What differs between what is found and what is listed, as lines for a reader.
fn differences(found: &BTreeMap<(String, String), Vec<usize>>, listed: &Counts) -> Vec<String> {
    let mut differences = Vec::new();
    for ((path, rule), lines) in found {
        let allowed = listed.get(&(path.clone(), rule.clone())).copied().unwrap_or(0);
        if lines.len() != allowed {
            differences.push(format!(
                "{path}: {rule}: {} found, {allowed} listed; lines {lines:?}",
                lines.len()
            ));
        }
    }
    let mended = listed.iter().filter(|(key, _)| !found.contains_key(*key));
    differences.extend(
        mended.map(|((path, rule), count)| format!("{path}: {rule}: none found, {count} listed")),
    );
    differences
}

/// Guarantee: every file keeps the rules at the head of this file, but for the listed exceptions.
#[test]
fn every_file_is_tidy_but_for_the_listed_exceptions() {
    let files = files();
    assert!(files.len() > 100, "{} files", files.len());
    let mut found: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for path in files {
        let text = std::fs::read_to_string(root().join(&path)).expect("a readable file");
        for (line, rule) in violations(&path, &text) {
            found.entry((path.clone(), rule.to_owned())).or_default().push(line);
        }
    }
    if std::env::var_os("SLUICE_TIDY_WRITE").is_some() {
        let mut text = String::new();
        for ((path, rule), lines) in &found {
            writeln!(text, "{path} {rule} {}", lines.len()).expect("memory");
        }
        std::fs::write(root().join(EXCEPTIONS), text).expect("the list is written");
        return;
    }
    let listed = std::fs::read_to_string(root().join(EXCEPTIONS)).expect("the list of exceptions");
    let differences = differences(&found, &listed_exceptions(&listed));
    assert!(
        differences.is_empty(),
        "Mend what is new. Where violations became fewer, write the list anew with SLUICE_TIDY_WRITE=1.\n{}",
        differences.join("\n")
    );
}

fn rules_broken(path: &str, text: &str) -> Vec<&'static str> {
    violations(path, text).into_iter().map(|(_, rule)| rule).collect()
}

#[test]
fn wide_lines_are_found_where_they_could_be_broken() {
    let wide = format!("a {}", "x".repeat(LINE_WIDTH));
    assert_eq!(rules_broken("src/a.rs", &wide), ["width"]);
    assert_eq!(rules_broken("a.md", &wide), ["width"]);
    let fenced = format!("```\n{wide}\n```\n| {wide} |\n{}\n", "x".repeat(LINE_WIDTH + 1));
    assert_eq!(rules_broken("a.md", &fenced), [""; 0]);
    assert_eq!(rules_broken("docs/configuration.md", &wide), [""; 0]);
    let literal = format!("\"{wide}\",");
    assert_eq!(rules_broken("src/a.rs", &literal), ["width"]);
    assert_eq!(rules_broken("tests/a.rs", &literal), [""; 0]);
    let umlauts = "ä".repeat(LINE_WIDTH);
    assert_eq!(rules_broken("src/a.rs", &umlauts), [""; 0], "characters count, not bytes");
}

#[test]
fn long_comments_are_found_except_on_what_is_public() {
    let block = |marker: &str, lines: usize| format!("{marker} why\n").repeat(lines);
    assert_eq!(rules_broken("src/a.rs", &(block("//", 4) + "fn f() {}\n")), ["comment"]);
    assert_eq!(rules_broken("src/a.rs", &(block("//", 3) + "fn f() {}\n")), [""; 0]);
    assert_eq!(rules_broken("src/a.rs", &(block("///", 4) + "#[test]\nfn f() {}\n")), ["comment"]);
    assert_eq!(
        rules_broken("src/a.rs", &(block("///", 4) + "#[must_use]\npub(crate) fn f() {}\n")),
        [""; 0]
    );
    assert_eq!(rules_broken("src/a.rs", &block("//!", 9)), [""; 0]);
    let mixed = block("///", 3) + &block("//", 3) + "fn f() {}\n";
    assert_eq!(rules_broken("src/a.rs", &mixed), [""; 0]);
}

#[test]
fn words_are_found_only_as_a_whole() {
    let phrase = BANNED_PHRASES[0];
    assert_eq!(rules_broken("a.md", &format!("There {phrase} waits.")), ["phrase"]);
    assert_eq!(rules_broken("a.md", &phrase.to_uppercase()), ["phrase"]);
    assert_eq!(rules_broken("src/a.rs", &format!("fn {phrase}_waits() {{}}")), [""; 0]);
    let headless = BANNED_PHRASES[4];
    assert_eq!(rules_broken("a.md", &format!("{headless} as it waits.")), ["phrase"]);
    assert_eq!(rules_broken("a.md", &headless.to_lowercase()), [""; 0]);
    assert_eq!(rules_broken("src/a.rs", "struct Burial;"), ["identifier"]);
    assert_eq!(
        rules_broken("src/a.rs", "struct Burials; // Burial\nlet a = \"a \\\"Burial\";"),
        [""; 0]
    );
    assert_eq!(rules_broken("src/a.rs", &format!("{}()", UNFINISHED[0])), ["unfinished"]);
    assert_eq!(rules_broken("a.md", &format!("see {}me", MACHINE_PATHS[0])), ["path"]);
}

#[test]
fn long_files_are_found_and_tests_may_be_longer() {
    let lines = "fn f() {}\n".repeat(FILE_LINES + 1);
    assert_eq!(rules_broken("crates/a/src/a.rs", &lines), ["length"]);
    assert_eq!(rules_broken("crates/a/src/a/tests.rs", &lines), [""; 0]);
    let lines = "fn f() {}\n".repeat(TEST_FILE_LINES + 1);
    assert_eq!(rules_broken("crates/a/tests/a.rs", &lines), ["length"]);
}

#[test]
fn the_list_may_neither_grow_nor_stay_behind() {
    let listed = listed_exceptions("a.rs width 2\nb.rs phrase 1\n");
    let found = |lines: &[usize]| {
        BTreeMap::from([(("a.rs".to_owned(), "width".to_owned()), lines.to_vec())])
    };
    let differing = |lines: &[usize]| differences(&found(lines), &listed);
    assert_eq!(differing(&[1, 2]), ["b.rs: phrase: none found, 1 listed"]);
    assert_eq!(differing(&[1]).len(), 2);
    assert_eq!(differing(&[1, 2, 3]).len(), 2);
}
