//! The place of a gateway's directory: a folder, a file system whose power can be cut, or one that
//! also misbehaves now and then.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::faulty_mount::{Behaviour, FaultyMount};
use crate::mounted::{FileSystem, Mounted};

/// The place of a gateway's directory.
pub(crate) enum Place {
    Folder(TempDir),
    Mounted(Mounted),
    Troubled(Troubled),
}

/// A mounted file system behind faults that come and go.
pub(crate) struct Troubled {
    mounted: Mounted,
    /// `None` while the power is cut.
    faults: Option<FaultyMount>,
    lasts_until: Instant,
}

impl Place {
    pub(crate) fn folder() -> Place {
        Place::Folder(TempDir::with_prefix("sluice-disk-").expect("a folder"))
    }

    /// `None`: nothing can be mounted, which has been reported.
    pub(crate) fn mounted(file_system: FileSystem) -> Option<Place> {
        Mounted::new(file_system).map(Place::Mounted)
    }

    /// As [`Place::mounted`], with faults that [`Place::misbehave`] brings.
    pub(crate) fn troubled(file_system: FileSystem) -> Option<Place> {
        let mounted = Mounted::new(file_system)?;
        let faults = Some(faults_before(&mounted));
        Some(Place::Troubled(Troubled { mounted, faults, lasts_until: Instant::now() }))
    }

    pub(crate) fn directory(&self) -> PathBuf {
        match self {
            Place::Folder(folder) => folder.path().join("buffer"),
            Place::Mounted(mounted) => mounted.path().join("buffer"),
            Place::Troubled(it) => it.faults.as_ref().expect("is mounted").path().join("buffer"),
        }
    }

    pub(crate) fn mount(&self) -> &Mounted {
        match self {
            Place::Mounted(mounted) => mounted,
            Place::Troubled(troubled) => &troubled.mounted,
            Place::Folder(_) => panic!("a folder is not mounted"),
        }
    }

    pub(crate) fn is_troubled(&self) -> bool {
        matches!(self, Place::Troubled(_))
    }

    /// A fault that a start has to bear, as it passes.
    pub(crate) async fn misbehave_for_a_moment(&self) {
        if self.is_troubled() {
            self.behave(match fastrand::u32(..5) {
                0 => Behaviour::Errors(0.3),
                1 => Behaviour::Errors(1.0),
                2 => Behaviour::Slow(Duration::from_millis(20)),
                3 => Behaviour::Hangs,
                _ => Behaviour::Healthy,
            });
            tokio::time::sleep(Duration::from_millis(fastrand::u64(..1_000))).await;
            self.heal();
        }
    }

    /// Goes on to another fault, or to none, when the last one has lasted long enough.
    pub(crate) fn misbehave(&mut self) {
        let Place::Troubled(troubled) = self else { return };
        if Instant::now() < troubled.lasts_until {
            return;
        }
        troubled.lasts_until = Instant::now() + Duration::from_millis(fastrand::u64(50..800));
        self.behave(match fastrand::u32(..10) {
            0 => Behaviour::Errors(1.0),
            1 => Behaviour::Errors(0.2),
            2 => Behaviour::Slow(Duration::from_millis(100)),
            3 => Behaviour::Hangs,
            4 => Behaviour::ReadOnly,
            _ => Behaviour::Healthy,
        });
    }

    /// No fault from here on.
    pub(crate) fn heal(&self) {
        self.behave(Behaviour::Healthy);
    }

    fn behave(&self, behaviour: Behaviour) {
        if let Place::Troubled(Troubled { faults: Some(faults), .. }) = self {
            faults.behave(behaviour);
        }
    }

    /// Discards what is not synced, after the process died.
    pub(crate) fn cut_power(&mut self) {
        if let Place::Troubled(troubled) = self {
            // It has files open.
            troubled.faults = None;
            troubled.mounted.cut_power();
            troubled.faults = Some(faults_before(&troubled.mounted));
        } else {
            self.mount().cut_power();
        }
    }
}

fn faults_before(mounted: &Mounted) -> FaultyMount {
    FaultyMount::of(mounted.path()).expect("FUSE mounts (/dev/fuse, root)")
}
