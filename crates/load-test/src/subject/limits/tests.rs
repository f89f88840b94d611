//! Folders that look like a cgroup mount: the files' names and contents are the kernel's, their
//! effect is not tried here.

use super::*;

const LIMITS: Limits = Limits { cpu_cores: Some(0.5), memory_bytes: Some(256 << 20) };

fn mount(files: &[(&str, &str)]) -> tempfile::TempDir {
    let mount = tempfile::tempdir().unwrap();
    for (file, text) in files {
        let path = mount.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    mount
}

fn read(mount: &tempfile::TempDir, file: &str) -> String {
    fs::read_to_string(mount.path().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

#[test]
fn version_2_has_one_folder_with_both_limits() {
    let mount = mount(&[
        ("cgroup.controllers", "cpuset cpu io memory pids\n"),
        ("cgroup.subtree_control", "cpu memory\n"),
    ]);
    let (mut group, errors) =
        ControlGroup::create_in(&Hierarchy::find(mount.path(), "0::/\n"), "one", LIMITS);
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!((group.limits, group.folders.len()), (LIMITS, 1));
    assert_eq!(read(&mount, "one/cpu.max"), "50000 100000");
    assert_eq!(read(&mount, "one/memory.max"), (256 << 20).to_string());
    assert_eq!(read(&mount, "cgroup.subtree_control"), "cpu memory\n", "both were on");
    group.add(42).unwrap();
    assert_eq!(read(&mount, "one/cgroup.procs"), "42");
    fs::write(mount.path().join("one/memory.events"), "low 0\noom 3\noom_kill 2\n").unwrap();
    assert_eq!(group.oom_kills(), Some(2));
}

#[test]
fn version_2_switches_a_controller_on_that_is_off() {
    let mount =
        mount(&[("cgroup.controllers", "cpu memory\n"), ("cgroup.subtree_control", "memory\n")]);
    let limits = Limits { cpu_cores: Some(2.0), memory_bytes: None };
    let (group, errors) =
        ControlGroup::create_in(&Hierarchy::find(mount.path(), "0::/\n"), "one", limits);
    assert!(errors.is_empty() && group.limits == limits, "{errors:?}");
    assert_eq!(read(&mount, "cgroup.subtree_control"), "+cpu");
    assert_eq!(read(&mount, "one/cpu.max"), "200000 100000");
}

#[test]
fn version_2_falls_back_to_the_group_beside_our_own() {
    // The root has no controllers to give, as in a container's or a user's part of the tree.
    let mount = mount(&[
        ("cgroup.controllers", "pids\n"),
        ("user.slice/app.slice/cgroup.subtree_control", "cpu memory\n"),
        ("user.slice/app.slice/run.scope/cgroup.procs", "1\n"),
    ]);
    let hierarchy =
        Hierarchy::find(mount.path(), "1:name=systemd:/x\n0::/user.slice/app.slice/run.scope\n");
    let (group, errors) = ControlGroup::create_in(&hierarchy, "two", LIMITS);
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(group.folders, [mount.path().join("user.slice/app.slice/two")]);
    assert_eq!(read(&mount, "user.slice/app.slice/two/cpu.max"), "50000 100000");
}

#[test]
fn version_1_has_a_folder_a_controller() {
    let mount = mount(&[("cpu,cpuacct/cgroup.procs", ""), ("memory/cgroup.procs", "")]);
    let (group, errors) =
        ControlGroup::create_in(&Hierarchy::find(mount.path(), "4:memory:/\n"), "one", LIMITS);
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!((group.limits, group.folders.len()), (LIMITS, 2));
    assert_eq!(read(&mount, "cpu,cpuacct/one/cpu.cfs_quota_us"), "50000");
    assert_eq!(read(&mount, "memory/one/memory.limit_in_bytes"), (256 << 20).to_string());
}

#[test]
fn a_limit_that_cannot_be_set_is_named_and_does_not_keep_the_other_from_being_set() {
    let mount = mount(&[("cpu/cgroup.procs", "")]);
    let (group, errors) =
        ControlGroup::create_in(&Hierarchy::find(mount.path(), ""), "one", LIMITS);
    assert_eq!(group.limits, Limits { cpu_cores: Some(0.5), memory_bytes: None });
    let expected = "it runs without a memory limit: no cgroup controller `memory` is mounted \
                    below /sys/fs/cgroup";
    assert_eq!(errors, [expected]);
    let nothing = tempfile::tempdir().unwrap();
    let (group, errors) =
        ControlGroup::create_in(&Hierarchy::find(nothing.path(), ""), "one", LIMITS);
    assert_eq!((group.limits, errors.len()), (Limits::default(), 2));
}

#[test]
fn a_group_that_may_not_be_joined_is_no_limit() {
    let mount = mount(&[("cpu/cgroup.procs", "")]);
    let limits = Limits { cpu_cores: Some(1.0), memory_bytes: None };
    let (mut group, _) = ControlGroup::create_in(&Hierarchy::find(mount.path(), ""), "one", limits);
    // Root cannot write to a folder either.
    fs::create_dir(group.folders[0].join("cgroup.procs")).unwrap();
    assert!(group.add(42).unwrap_err().starts_with("it runs without limits: "));
    assert_eq!(group.limits, Limits::default());
}

#[test]
fn a_group_that_was_made_is_removed() {
    let mount = mount(&[("cpu/cgroup.procs", "")]);
    let limits = Limits { cpu_cores: Some(1.0), memory_bytes: None };
    let (group, _) = ControlGroup::create_in(&Hierarchy::find(mount.path(), ""), "one", limits);
    let folder = group.folders[0].clone();
    // The kernel's files go with the folder.
    fs::remove_file(folder.join("cpu.cfs_quota_us")).unwrap();
    fs::remove_file(folder.join("cpu.cfs_period_us")).unwrap();
    drop(group);
    assert!(!folder.exists());
}
