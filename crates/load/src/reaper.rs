//! Cleans up after a killed bench: a shell waits for the bench's end, kills the process group that
//! it watches, and removes a folder and control groups.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

pub const SHELL: &str = "/bin/sh";

/// Each line that it reads is the process group that it watches from then on. The end of input is
/// the end of the bench. Arguments: the temporary folder, then the control groups.
const SCRIPT: &str = r#"
trap '' HUP INT TERM
while read -r line; do group=$line; done
[ -n "$group" ] && kill -s KILL -- "-$group"
folder=$1
shift
for cgroup in "$@"; do
    for try in 1 2 3 4 5 6 7 8 9 10; do
        while read -r pid; do kill -s KILL "$pid"; done <"$cgroup/cgroup.procs"
        rmdir "$cgroup" && break
        sleep 0.1
    done
done
rm -rf -- "$folder"
"#;

/// Dropping it ends the shell without any cleanup.
#[derive(Debug)]
pub struct Reaper(Child);

impl Reaper {
    /// `None` where there is no shell: then a killed bench leaves the folder behind.
    pub fn start(folder: &Path, control_groups: &[PathBuf]) -> Option<Reaper> {
        let mut command = Command::new(SHELL);
        command.args(["-c", SCRIPT, "sluice-load-test-keeper"]).arg(folder).args(control_groups);
        let quiet = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // A process group of its own: a signal to the bench's group does not reach it.
        quiet.process_group(0).current_dir("/").spawn().ok().map(Reaper)
    }

    /// The subject has this process group from now on.
    pub fn watch(&mut self, group: u32) {
        if let Some(input) = self.0.stdin.as_mut() {
            // An error means that the shell was killed. The subject still ends with the bench.
            let _ = writeln!(input, "{group}");
        }
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        // Killed before its input is closed. An error means that it is gone.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
