//! Values that are built from files and built again when the files' contents change.
//!
//! Contents are compared, not times or inodes: Kubernetes replaces secrets through a `..data`
//! symlink, and every mechanism that watches files misses some way of replacing one. The files are
//! small and the interval is seconds (`docs/decisions/005-files-are-watched-by-content.md`).

use std::collections::BTreeMap;
use std::fmt::Display;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustix::fs::makedev;

/// Files are read at this interval if the configuration gives none.
pub const DEFAULT_RELOAD_INTERVAL: Duration = Duration::from_secs(10);

/// No certificate, key or password file is larger.
const FILE_LIMIT_BYTES: u64 = 16 << 20;

/// The files as they were at one moment: their contents, or why they cannot be read.
pub struct Snapshot(BTreeMap<PathBuf, Result<Vec<u8>, String>>);

impl Snapshot {
    fn take(files: &[PathBuf]) -> Self {
        let read = |path: &PathBuf| read_bounded(path).map_err(|error| error.to_string());
        Snapshot(files.iter().map(|path| (path.clone(), read(path))).collect())
    }

    /// The content of one of the files, or why it cannot be read.
    pub fn content(&self, path: &Path) -> Result<&[u8], &str> {
        match self.0.get(path) {
            Some(Ok(content)) => Ok(content),
            Some(Err(reason)) => Err(reason),
            None => Err("it is not among the watched files"),
        }
    }

    fn fingerprint(&self) -> u64 {
        BuildHasherDefault::<DefaultHasher>::default().hash_one(&self.0)
    }
}

/// A file of at most 16 MiB, which has to be a regular one, or `/dev/null`.
pub fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    use io::Read;
    // Opening a pipe waits for its writer, and a device may not end. `/dev/null` is empty.
    let metadata = std::fs::metadata(path)?;
    let is_null = metadata.file_type().is_char_device() && metadata.rdev() == makedev(1, 3);
    if !metadata.is_file() && !is_null {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut content = Vec::new();
    std::fs::File::open(path)?.take(FILE_LIMIT_BYTES + 1).read_to_end(&mut content)?;
    if content.len() as u64 > FILE_LIMIT_BYTES {
        return Err(io::Error::other("it is larger than 16 MiB"));
    }
    Ok(content)
}

type Build<T> = dyn Fn(&Snapshot) -> Result<T, String> + Send + Sync;

/// A value that follows its files.
pub struct Reloading<T> {
    what: String,
    files: Vec<PathBuf>,
    current: ArcSwap<T>,
    /// Fingerprint of the contents that were tried last, good or bad.
    fingerprint: Mutex<u64>,
    build: Box<Build<T>>,
}

impl<T: Send + Sync + 'static> Reloading<T> {
    /// Builds the value from `files`; `what` names it in logs. Inside a tokio runtime the files are
    /// read again every `interval` for as long as the value is in use; elsewhere, or without files
    /// or an interval, when `check` is called.
    pub fn start<E: Display>(
        what: impl Into<String>,
        files: Vec<PathBuf>,
        interval: Option<Duration>,
        build: impl Fn(&Snapshot) -> Result<T, E> + Send + Sync + 'static,
    ) -> Result<Arc<Self>, E> {
        let snapshot = Snapshot::take(&files);
        let first = build(&snapshot)?;
        let reloading = Arc::new(Reloading {
            what: what.into(),
            fingerprint: Mutex::new(snapshot.fingerprint()),
            files,
            current: ArcSwap::from_pointee(first),
            build: Box::new(move |snapshot| build(snapshot).map_err(|error| error.to_string())),
        });
        if let Some(interval) = interval.filter(|_| !reloading.files.is_empty())
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let interval = interval.max(Duration::from_millis(10));
            let reloading = Arc::downgrade(&reloading);
            runtime.spawn(async move {
                loop {
                    tokio::time::sleep(interval).await;
                    let Some(reloading) = reloading.upgrade() else { return };
                    if tokio::task::spawn_blocking(move || reloading.check()).await.is_err() {
                        return;
                    }
                }
            });
        }
        Ok(reloading)
    }

    pub fn current(&self) -> Arc<T> {
        self.current.load_full()
    }

    /// Reads the files. If their contents are new and good they take effect; if they are new and
    /// bad the old value stays and a log line says why. Returns whether the value changed. Blocks
    /// on file reads.
    pub fn check(&self) -> bool {
        let mut fingerprint = self.fingerprint.lock();
        let snapshot = Snapshot::take(&self.files);
        let now = snapshot.fingerprint();
        if now == *fingerprint {
            return false;
        }
        *fingerprint = now;
        match (self.build)(&snapshot) {
            Ok(value) => {
                self.current.store(Arc::new(value));
                tracing::info!(what = %self.what, "reloaded: its files have changed");
                true
            }
            Err(reason) => {
                tracing::error!(
                    what = %self.what,
                    %reason,
                    "its files have changed but cannot be used: what was loaded before stays in use"
                );
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, FileType, Mode};

    use super::*;

    thread_local! {
        /// Values that were built, or could not be.
        static BUILDS: Cell<u32> = const { Cell::new(0) };
    }

    fn number(path: PathBuf, interval: Option<Duration>) -> Result<Arc<Reloading<u32>>, String> {
        Reloading::start("a number", vec![path.clone()], interval, move |snapshot: &Snapshot| {
            BUILDS.set(BUILDS.get() + 1);
            let content = snapshot.content(&path).map_err(str::to_owned)?;
            String::from_utf8_lossy(content)
                .trim()
                .parse::<u32>()
                .map_err(|error| error.to_string())
        })
    }

    /// Scenario: good, then bad, then removed, then good contents. Guarantee: bad ones never take
    /// effect.
    #[test]
    fn bad_contents_keep_the_old_value() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("number");
        assert!(number(path.clone(), None).is_err());
        std::fs::write(&path, "1").expect("is written");
        let value = number(path.clone(), None).expect("is good");
        assert!(!value.check());
        std::fs::write(&path, "one").expect("is written");
        BUILDS.set(0);
        assert!(!value.check() && !value.check());
        assert_eq!((*value.current(), BUILDS.get()), (1, 1));
        std::fs::remove_file(&path).expect("is removed");
        assert!(!value.check());
        std::fs::write(&path, "2").expect("is written");
        assert!(value.check());
        assert_eq!(*value.current(), 2);
    }

    /// Scenario: a pipe without a writer, a device without an end, a directory, `/dev/null`, and a
    /// link to a file. Guarantee: the last two are read, the rest is refused and not opened.
    #[test]
    fn only_regular_files_are_opened() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        rustix::fs::mknodat(CWD, at("pipe"), FileType::Fifo, Mode::RWXU, 0).expect("is made");
        std::fs::write(at("file"), "1").expect("is written");
        symlink("file", at("link")).expect("is linked");
        symlink("pipe", at("link to pipe")).expect("is linked");
        for (path, expected) in [
            (at("pipe"), None),
            (at("link to pipe"), None),
            (PathBuf::from("/dev/zero"), None),
            (directory.path().to_owned(), None),
            (PathBuf::from("/dev/null"), Some("")),
            (at("link"), Some("1")),
        ] {
            let (send, read) = std::sync::mpsc::channel();
            let files = [path.clone()];
            std::thread::spawn(move || send.send(Snapshot::take(&files)));
            let snapshot = read.recv_timeout(Duration::from_secs(60)).expect("does not wait");
            let expected = expected.map(str::as_bytes).ok_or("it is not a regular file");
            assert_eq!(snapshot.content(&path), expected, "{}", path.display());
        }
    }

    /// Scenario: Kubernetes updates a mounted secret: `..data` is renamed to point at another
    /// directory. Guarantee: the new content is in use soon after.
    #[tokio::test]
    async fn a_replaced_symlink_is_noticed() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        for (name, content) in [("..1", "1"), ("..2", "2")] {
            std::fs::create_dir(at(name)).expect("is made");
            std::fs::write(at(name).join("number"), content).expect("is written");
        }
        symlink("..1", at("..data")).expect("is linked");
        symlink("..data/number", at("number")).expect("is linked");
        let value = number(at("number"), Some(Duration::from_millis(10))).expect("is good");
        assert_eq!(*value.current(), 1);
        symlink("..2", at("..data_tmp")).expect("is linked");
        std::fs::rename(at("..data_tmp"), at("..data")).expect("is renamed");
        for _ in 0..500 {
            if *value.current() == 2 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the new content was never taken");
    }
}
