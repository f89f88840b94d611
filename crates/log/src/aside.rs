//! Names of files that were set aside because they could not be read: `.damaged` is appended.

const EXTENSION: &str = ".damaged";

/// Names for setting a file aside, in the order in which they are tried: an older file of the same
/// name is never replaced.
fn names_aside(file_name: &str) -> impl Iterator<Item = String> + '_ {
    let further = (2..).map(move |number: u32| format!("{file_name}{EXTENSION}-{number}"));
    std::iter::once(format!("{file_name}{EXTENSION}")).chain(further)
}

/// The first of these names that is free.
pub(crate) fn free_name(file_name: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let mut names = names_aside(file_name);
    names.find(|name| !is_taken(name)).expect("there are more names than files")
}

/// The name that a file had before it was set aside. None if it was not.
pub(crate) fn name_before(file_name: &str) -> Option<&str> {
    let (before, number) = file_name.rsplit_once(EXTENSION)?;
    let is_number =
        |digits: &str| !digits.is_empty() && digits.bytes().all(|it| it.is_ascii_digit());
    let is_ours = number.is_empty() || number.strip_prefix('-').is_some_and(is_number);
    (is_ours && !before.is_empty()).then_some(before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_set_aside_is_known_by_its_name() {
        for before in ["00000000000000ff-2.seg", "a.cursor", "x.damaged.cursor", "x.damaged"] {
            for aside in names_aside(before).take(3) {
                assert_eq!(name_before(&aside), Some(before));
            }
        }
        for other in
            ["a.cursor", "x.damaged.cursor", "a.seg.damaged-x", "a.seg.damaged-", ".damaged"]
        {
            assert_eq!(name_before(other), None, "{other}");
        }
    }
}
