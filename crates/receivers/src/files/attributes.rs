//! Attributes that say which file a record is from.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use sluice_otlp::AnyValue;

/// Attributes that every record of a file has.
pub(crate) type Attributes = Vec<(String, AnyValue)>;

/// The attributes that are wanted.
#[derive(Clone, Debug, Default)]
pub struct FileAttributes {
    pub name: bool,
    pub path: bool,
    pub name_resolved: bool,
    pub path_resolved: bool,
    pub owner_name: bool,
    pub owner_group_name: bool,
    pub permissions: bool,
    pub record_number: bool,
    pub record_offset: bool,
    /// The same for all files.
    pub constant: Vec<(String, AnyValue)>,
}

impl FileAttributes {
    /// Those of the file at a path. `metadata`: of the open file.
    pub(crate) fn of(&self, path: &Path, metadata: Option<&fs::Metadata>) -> Attributes {
        let mut attributes = self.constant.clone();
        let mut add = |name: &str, value: String| {
            attributes.retain(|(key, _)| key != name);
            attributes.push((name.to_owned(), AnyValue::String(value)));
        };
        let name_of = |path: &Path| {
            path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
        };
        if self.name {
            add("log.file.name", name_of(path));
        }
        if self.path {
            add("log.file.path", path.to_string_lossy().into_owned());
        }
        if self.name_resolved || self.path_resolved {
            // A file that is gone has its last path.
            let resolved = fs::canonicalize(path).or_else(|_| std::path::absolute(path));
            let resolved = resolved.unwrap_or_else(|_| path.to_owned());
            if self.name_resolved {
                add("log.file.name_resolved", name_of(&resolved));
            }
            if self.path_resolved {
                add("log.file.path_resolved", resolved.to_string_lossy().into_owned());
            }
        }
        if let Some(metadata) = metadata {
            if self.owner_name {
                add("log.file.owner.name", name_of_id("/etc/passwd", metadata.uid()));
            }
            if self.owner_group_name {
                add("log.file.owner.group.name", name_of_id("/etc/group", metadata.gid()));
            }
            if self.permissions {
                add("log.file.permissions", format!("{:03o}", metadata.mode() & 0o777));
            }
        }
        attributes
    }
}

/// The name of a user or group; its number if the file does not have it.
fn name_of_id(file: &str, id: u32) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    let found = text.lines().find_map(|line| {
        let mut columns = line.split(':');
        let name = columns.next()?;
        (columns.nth(1)?.parse() == Ok(id)).then(|| name.to_owned())
    });
    found.unwrap_or_else(|| id.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_says_which_file_it_is_from() {
        let folder = tempfile::tempdir().expect("a folder");
        let (target, link) = (folder.path().join("target"), folder.path().join("link"));
        fs::write(&target, "").expect("is written");
        std::os::unix::fs::symlink(&target, &link).expect("is linked");
        let wanted = FileAttributes {
            name: true,
            path: true,
            name_resolved: true,
            path_resolved: true,
            owner_name: true,
            owner_group_name: true,
            permissions: true,
            constant: vec![("a".to_owned(), AnyValue::String("b".to_owned()))],
            ..FileAttributes::default()
        };
        let metadata = fs::metadata(&target).expect("is there");
        let attributes = wanted.of(&link, Some(&metadata));
        let owner = name_of_id("/etc/passwd", metadata.uid());
        let group = name_of_id("/etc/group", metadata.gid());
        let real = fs::canonicalize(&target).expect("is there");
        let expected = [
            ("a", "b"),
            ("log.file.name", "link"),
            ("log.file.path", &link.display().to_string()),
            ("log.file.name_resolved", "target"),
            ("log.file.path_resolved", &real.display().to_string()),
            ("log.file.owner.name", &owner),
            ("log.file.owner.group.name", &group),
            ("log.file.permissions", &format!("{:03o}", metadata.mode() & 0o777)),
        ];
        let expected =
            expected.map(|(key, value)| (key.to_owned(), AnyValue::String(value.to_owned())));
        assert_eq!(attributes, expected);
    }

    #[test]
    fn users_have_names_or_numbers() {
        assert_eq!(name_of_id("/etc/passwd", 0), "root");
        assert_eq!(name_of_id("/etc/passwd", 4_000_000_000), "4000000000");
    }
}
