//! `${env:NAME}`, `${file:PATH}`, `${yaml:TEXT}` in scalars.
/// What expansion may ask of the world around it. Tests have their own.
pub trait Environment {
    /// The value of an environment variable, if it is set.
    fn variable(&self, name: &str) -> Option<String>;

    /// The contents of a file, of at most `limit_bytes`.
    fn read_file(&self, path: &std::path::Path, limit_bytes: u64) -> std::io::Result<String>;
}

/// The process's environment and file system.
pub struct SystemEnvironment;

impl Environment for SystemEnvironment {
    fn variable(&self, name: &str) -> Option<String> {
        std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
    }

    fn read_file(&self, path: &std::path::Path, limit_bytes: u64) -> std::io::Result<String> {
        use std::io::Read;
        let mut text = String::new();
        std::fs::File::open(path)?.take(limit_bytes + 1).read_to_string(&mut text)?;
        if text.len() as u64 > limit_bytes {
            return Err(std::io::Error::other(format!("it is larger than {limit_bytes} bytes")));
        }
        Ok(text)
    }
}
