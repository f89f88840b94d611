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

fn walked(pattern: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut visit = |it: Found<'_>| {
        if let Found::File(path) = it {
            found.push(path.to_owned());
        }
    };
    Glob::new(pattern)
        .expect("a pattern")
        .walk(&mut visit, &mut |path, error| panic!("{}: {error}", path.display()));
    found.sort();
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
