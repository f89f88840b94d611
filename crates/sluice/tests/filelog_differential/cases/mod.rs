//! The cases: receivers, and the files that each of them reads.

mod container;
pub(crate) mod differing;
mod expressions;
mod files;
mod operators;
mod parsers;
mod reading;
mod syslog;

use std::fs;
use std::path::Path;

pub(crate) struct Case {
    pub(crate) name: String,
    /// Options of the receiver beside those that all cases have: lines of YAML.
    pub(crate) options: String,
    /// Paths below the case's folder, and what is in them.
    pub(crate) files: Vec<(String, Vec<u8>)>,
    /// Whether records of a file keep their order. The Collector takes a whole batch through one
    /// output of an operator before the next.
    pub(crate) is_ordered: bool,
}

impl Case {
    /// A case with one file.
    fn new(name: &str, options: &str, content: impl Into<Vec<u8>>) -> Case {
        Case::of_files(name, options, vec![("a.log".to_owned(), content.into())])
    }

    fn of_files(name: &str, options: &str, files: Vec<(String, Vec<u8>)>) -> Case {
        let lines = options.lines().filter(|line| !line.trim().is_empty());
        let options = lines.map(|line| format!("    {line}\n")).collect();
        Case { name: name.to_owned(), options, files, is_ordered: true }
    }

    /// A case whose only options are the operators of this list.
    fn operators(name: &str, operators: &str, content: impl Into<Vec<u8>>) -> Case {
        Case::new(name, &format!("operators:\n{operators}"), content)
    }

    fn in_any_order(self) -> Case {
        Case { is_ordered: false, ..self }
    }

    pub(crate) fn write(&self, folder: &Path) {
        for (path, content) in &self.files {
            let path = folder.join(&self.name).join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("it can be made");
            fs::write(path, content).expect("it can be written");
        }
    }
}

pub(crate) fn all() -> Vec<Case> {
    let mut cases = reading::cases();
    cases.extend(files::cases());
    cases.extend(parsers::cases());
    cases.extend(syslog::cases());
    cases.extend(operators::cases());
    cases.extend(expressions::cases());
    cases.extend(container::cases());
    cases.extend(differing::cases());
    cases
}
