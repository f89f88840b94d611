//! Checks when the troubles are over: at the end of a case, and now and then before.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sluice_log::inspect::{Finding, overview, verify};
use sluice_log::repair::{Remedy, apply, examine};
use sluice_log::{Holding, Next, StoredRecord};

use super::{NAMES, World};
use crate::support::note::*;

fn is_known(record: &StoredRecord) -> bool {
    record.metadata.len() == 8
}

impl World {
    /// As [`World::settle`], in the next process if this one is dead.
    pub(crate) fn settle_if_alive(&mut self) {
        if self.disk.is_dying() {
            self.crash(None);
            self.heal();
            self.start();
        }
        self.settle();
    }

    /// The troubles end. The same process goes on by itself, and every reader gets what it is owed
    /// and can be read.
    fn settle(&mut self) {
        self.heal();
        self.mend_hopeless();
        self.append(7, 100);
        wait_until("all is written", || self.log().unwritten_bytes() == 0);
        self.mend_hopeless();
        for index in 0..3 {
            self.note_dropped();
            self.rewind(index);
            self.read_to_the_end(index);
            self.check_missing(index);
        }
        self.is_exact = true;
        wait_until("the trouble ends", || self.log().trouble().is_none());
    }

    fn read_to_the_end(&mut self, index: usize) {
        let id = self.id(index);
        let began = Instant::now();
        loop {
            match self.log().read(id) {
                Next::Entry(offset, note) => self.take(index, offset, note.value),
                Next::Empty | Next::Full => return,
                Next::Loading => std::thread::sleep(Duration::from_micros(200)),
            }
            let (trouble, stats) = (self.log().trouble(), self.log().stats());
            assert!(began.elapsed() < PATIENCE, "nothing comes: {trouble:?} {stats:?}");
        }
    }

    /// Checks what did not come although it is owed.
    fn check_missing(&mut self, index: usize) {
        let name = NAMES[index];
        self.note_lost(index);
        let lost = self.log().lost_total(self.id(index));
        let hurt = &self.was_hurt;
        let reader = &mut self.readers[index];
        let unexplained: Vec<&u64> = reader
            .lost
            .difference(hurt)
            .filter(|value| !self.reads_were_refused && !reader.aside.contains(value))
            .collect();
        assert!(unexplained.is_empty(), "{name} lost {unexplained:?}, which can be read");
        if self.was_exact {
            let mut exact = Holding::default();
            let new = reader.lost.difference(&reader.counted);
            new.for_each(|value| exact.add(self.appended[*value as usize].1));
            let mut most = exact;
            // Damaged frames that the reader is not owed, but may still have waited for, count as
            // lost, or as dropped or resolved.
            let mut may_count: Vec<&u64> = hurt.intersection(&reader.maybe).collect();
            let counted = reader.lost.intersection(&reader.counted);
            may_count.extend(counted.filter(|value| reader.back.contains(value)));
            may_count.iter().for_each(|value| most.add(self.appended[**value as usize].1));
            let (lost_values, before) = (&reader.lost, &reader.counted);
            assert!(
                lost == exact || (exact.bytes..=most.bytes).contains(&lost.bytes) && exact != most,
                "{name} lost {lost_values:?}, before: {before:?}, perhaps {may_count:?}: {lost:?} of {exact:?}"
            );
        }
    }

    /// All that shows the log at rest agrees on the files that were set aside.
    fn check_views(&self) -> Vec<PathBuf> {
        let disk: std::sync::Arc<dyn sluice_log::disk::Disk> =
            std::sync::Arc::new(self.disk.clone());
        let above = Path::new(DIRECTORY).parent().expect("a directory");
        let logs = overview(&disk, above).expect("a list");
        let aside = logs.iter().flat_map(|log| &log.set_aside).map(|file| file.path.clone());
        let aside: Vec<PathBuf> = aside.collect();
        let verified = verify(&*disk, above, &mut |_, _| {}).expect("a list");
        let findings = verified.findings.into_iter().filter_map(|finding| match finding {
            Finding::SetAside { path } => Some(path),
            Finding::LostCursor { name, .. } => panic!("{name} is lost"),
            _ => None,
        });
        assert_eq!(findings.collect::<Vec<_>>(), aside);
        aside
    }

    /// Puts back what can be read. False if there may be more to do.
    pub(crate) fn repair(&mut self) -> bool {
        self.heal();
        self.check_views();
        let examined = examine(&self.disk, Path::new(DIRECTORY), &is_known).expect("examined");
        for file in &examined {
            if let Remedy::PutBack(_) = file.remedy {
                apply(&self.disk, file).expect("put back");
            }
        }
        self.check_views();
        examined.iter().all(|file| matches!(file.remedy, Remedy::GiveUp))
    }

    /// The end of a case: everything that is owed comes when all of the disk can be read again.
    pub(crate) fn finish(mut self, is_killed: bool) {
        self.settle_if_alive();
        for round in 0.. {
            if is_killed && round == 0 {
                self.crash(None)
            } else {
                self.end()
            }
            self.restore_all();
            let is_done = self.repair();
            self.start();
            self.settle();
            for index in 0..3 {
                self.resolve_all(index);
            }
            let owed: Vec<_> = self.readers.iter().map(|reader| reader.owed.clone()).collect();
            if is_done && owed.iter().all(BTreeSet::is_empty) {
                break;
            }
            assert!(round < 4, "never delivered: {owed:?}");
            wait_until("what was delivered goes", || self.log().stats().segments <= 1);
        }
        self.end();
        self.start();
        for (index, name) in NAMES.iter().enumerate() {
            self.read_to_the_end(index);
            assert!(self.readers[index].came.is_empty(), "{name} gets no more");
            assert_eq!(self.log().held(self.id(index)), Holding::default(), "{name}");
        }
    }
}
