use proptest::prelude::*;

use super::*;

fn matches(pattern: &str, path: &str) -> bool {
    Glob::new(pattern).expect("a pattern").matches(Path::new(path))
}

#[test]
fn patterns_match_as_in_the_collector() {
    for (pattern, path, expected) in [
        ("/var/log/*.log", "/var/log/a.log", true),
        ("/var/log/*.log", "/var/log/b/a.log", false),
        ("/var/log/*", "/var/log/.hidden", true),
        ("/var/**/*.log", "/var/a.log", true),
        ("/var/**/*.log", "/var/a/b/c.log", true),
        ("/var/**", "/var/a/b", true),
        ("/var/**", "/var", false),
        ("/var/log/pods/*_a_*/*/*.log", "/var/log/pods/n_a_u/c/0.log", true),
        ("/a/{b,c/d}/*.log", "/a/c/d/x.log", true),
        ("/a/{b,c{1,2}}.log", "/a/c2.log", true),
        ("/a/{b,c}.log", "/a/d.log", false),
        ("/a/file?.log", "/a/fileö.log", true),
        ("/a/[a-c]*", "/a/b", true),
        ("/a/[!a-c]*", "/a/b", false),
        ("/a/[^a-c]*", "/a/d", true),
        ("/a/[]]", "/a/]", true),
        ("/a/\\*", "/a/*", true),
        ("/a/\\*", "/a/b", false),
        ("a/*.log", "a/b.log", true),
        ("./a/*.log", "a/b.log", true),
        ("/a/*a*a*a*b", "/a/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
    ] {
        assert_eq!(matches(pattern, path), expected, "{pattern} {path}");
    }
    for wrong in ["", "/a/[", "/a/[b", "/a/{b", "/a\\"] {
        assert!(Glob::new(wrong).is_err(), "{wrong}");
    }
    assert!(Glob::new(&"{a,b}".repeat(20)).is_err());
}

/// The paths that a walk finds, and those of directories that it skips. It may look into so many.
fn walked_within(pattern: &str, most_looks: usize) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let (mut found, mut skipped, mut looks) = (Vec::new(), Vec::new(), 0);
    let mut visit = |it: Found<'_>| match it {
        Found::File(path) => found.push(path.to_owned()),
        Found::Skipped(path) => skipped.push(path.to_owned()),
        Found::Directory(path) => {
            looks += 1;
            assert!(looks <= most_looks, "a look too many: {}", path.display());
        }
    };
    Glob::new(pattern)
        .expect("a pattern")
        .walk(&mut visit, &mut |path, error| panic!("{}: {error}", path.display()));
    found.sort();
    (found, skipped)
}

/// The number of wanted files that a walk finds, and whether it skips a directory.
fn wanted(pattern: &str, is_wanted: impl Fn(&Path) -> bool) -> (usize, bool) {
    let (mut count, mut has_skipped) = (0, false);
    let mut visit = |it: Found<'_>| match it {
        Found::File(path) => {
            count += usize::from(is_wanted(path));
            is_wanted(path)
        }
        Found::Skipped(_) => {
            has_skipped = true;
            true
        }
        Found::Directory(_) => true,
    };
    let glob = Glob::new(pattern).expect("a pattern");
    glob.walk_for(&mut visit, &mut |path, error| panic!("{}: {error}", path.display()));
    (count, has_skipped)
}

fn walked(pattern: &str) -> Vec<PathBuf> {
    let (found, skipped) = walked_within(pattern, usize::MAX);
    assert_eq!(skipped, [] as [PathBuf; 0]);
    found
}

/// Scenario: directories with links, one of which leads back to a directory above. Guarantee: the
/// walk ends and finds what `matches` says.
#[test]
fn a_walk_finds_what_matches_and_ends_where_links_lead_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path();
    for directory in ["a/b/c", "d"] {
        fs::create_dir_all(root.join(directory)).expect("is made");
    }
    for file in ["x.log", "a/x.log", "a/b/c/x.log", "a/b/c/x.txt", "d/y.log"] {
        fs::write(root.join(file), "").expect("is written");
    }
    std::os::unix::fs::symlink(root, root.join("a/up")).expect("is linked");
    std::os::unix::fs::symlink(root.join("d/y.log"), root.join("a/z.log")).expect("is linked");
    let of = |files: &[&str]| files.iter().map(|file| root.join(file)).collect::<Vec<_>>();
    let pattern = |rest: &str| format!("{}/{rest}", root.display());
    assert_eq!(walked(&pattern("*.log")), of(&["x.log"]));
    assert_eq!(walked(&pattern("a/*.log")), of(&["a/x.log", "a/z.log"]));
    assert_eq!(walked(&pattern("a/b/**/*.txt")), of(&["a/b/c/x.txt"]));
    assert_eq!(walked(&pattern("**/y.log")), of(&["d/y.log"]));
    assert_eq!(walked(&pattern("d/y.log")), of(&["d/y.log"]));
    assert_eq!(walked(&pattern("none/*.log")), of(&[]));
}

/// Scenario: many directories that each link to all others, and one that links to a directory
/// elsewhere. Guarantee: the walk ends soon, and finds each file, also under its path without
/// links.
#[test]
fn links_among_directories_do_not_multiply() {
    const COUNT: usize = 12;
    let folder = tempfile::tempdir().expect("a folder");
    let (root, far) = (folder.path().join("root"), folder.path().join("far/below"));
    fs::create_dir_all(&far).expect("is made");
    fs::write(far.join("far.log"), "").expect("is written");
    let directory = |at: usize| root.join(format!("d{at:02}"));
    for at in 0..COUNT {
        fs::create_dir_all(directory(at)).expect("is made");
        fs::write(directory(at).join("x.log"), "").expect("is written");
        for to in (0..COUNT).filter(|to| *to != at) {
            let link = directory(at).join(format!("l{to:02}"));
            std::os::unix::fs::symlink(directory(to), link).expect("is linked");
        }
    }
    std::os::unix::fs::symlink(folder.path().join("far"), directory(5).join("z")).expect("linked");
    // Each is listed twice: for what matches in it, and for the directories below.
    let most_paths = 1 + LINKED_PATHS_MAX + COUNT;
    let pattern = format!("{}/**/*.log", root.display());
    let (found, skipped) = walked_within(&pattern, 2 * most_paths * (COUNT + 3));
    assert!((0..COUNT).all(|at| found.contains(&directory(at).join("x.log"))));
    assert!(found.iter().any(|path| path.ends_with("z/below/far.log")));
    assert!(!skipped.is_empty());
}

/// Guarantee: a directory is found under its own path and under a few of links, in order, and what
/// is left out is told.
#[test]
fn a_directory_has_a_bounded_number_of_paths_with_links() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path();
    fs::create_dir_all(root.join("z/below")).expect("is made");
    fs::write(root.join("z/below/x.log"), "").expect("is written");
    let link = |at: usize| root.join(format!("l{at}"));
    let add = |at| std::os::unix::fs::symlink(root.join("z"), link(at)).expect("is linked");
    (0..LINKED_PATHS_MAX).for_each(add);
    let pattern = format!("{}/**", root.display());
    let mut expected: Vec<PathBuf> =
        (0..LINKED_PATHS_MAX).map(|at| link(at).join("below/x.log")).collect();
    expected.push(root.join("z/below/x.log"));
    assert_eq!(walked(&pattern), expected);
    add(LINKED_PATHS_MAX);
    let (found, skipped) = walked_within(&pattern, usize::MAX);
    assert_eq!((found, skipped), (expected, vec![link(LINKED_PATHS_MAX)]));
}

/// Scenario: a directory has more paths with links than are followed. On the first of them no file
/// is wanted. Guarantee: these do not count, but there is a bound for them as well.
#[test]
fn paths_on_which_no_file_is_wanted_do_not_count() {
    let (folder, far) = (tempfile::tempdir(), tempfile::tempdir());
    let (folder, far) = (folder.expect("a folder"), far.expect("a folder"));
    let root = folder.path();
    fs::write(far.path().join("x.log"), "").expect("is written");
    fs::write(far.path().join("y.log"), "").expect("is written");
    for at in 0..TRIED_PATHS_MAX + 9 {
        let link = root.join(format!("l{at:02}"));
        std::os::unix::fs::symlink(far.path(), link).expect("is linked");
    }
    let pattern = format!("{}/**/*.log", root.display());
    let from = |least: usize| {
        let first = root.join(format!("l{least:02}"));
        wanted(&pattern, |path| *path >= *first && path.ends_with("x.log"))
    };
    assert_eq!(from(0), (LINKED_PATHS_MAX, true));
    assert_eq!(from(20), (LINKED_PATHS_MAX, true));
    assert_eq!(from(TRIED_PATHS_MAX - 1), (1, true));
    assert_eq!(from(TRIED_PATHS_MAX), (0, true));
}

proptest! {
    /// For any pattern and name: no panic, and a name matches itself with its wildcards escaped.
    #[test]
    fn any_pattern_is_read_or_refused(
        pattern in "[a-c*?\\[\\]!^{},\\\\/-]{1,20}",
        name in ".{1,12}",
    ) {
        if let Ok(glob) = Glob::new(&pattern) {
            glob.matches(Path::new(&name));
        }
        prop_assume!(!name.contains('/'));
        let escaped: Vec<u8> = name.bytes().flat_map(|byte| [b'\\', byte]).collect();
        prop_assert!(matches_name(&escaped, name.as_bytes()));
    }
}
