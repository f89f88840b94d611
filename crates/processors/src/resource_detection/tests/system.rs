use super::*;

/// The root of a file system with these files.
fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a directory");
    for (name, text) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("is made");
        std::fs::write(path, text).expect("is written");
    }
    folder
}

const KERNEL: [(&str, &str); 4] = [
    ("proc/sys/kernel/hostname", "h\n"),
    ("proc/sys/kernel/ostype", "Linux\n"),
    ("proc/sys/kernel/osrelease", "6.1.0-1\n"),
    ("proc/sys/kernel/version", "#1 SMP\n"),
];

async fn found(options: &str, files: &[(&str, &str)], variables: &[(&str, &str)]) -> Vec<String> {
    let root = root(&[&KERNEL[..], files].concat());
    let around = Surroundings::of(root.path(), variables, "");
    let yaml = format!("{{detectors: [system], system: {options}}}");
    let (lines, schema) = detected(&yaml, &around).await.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(schema, SCHEMA);
    lines
}

/// `resource_attributes` with these on, and the two that are on by default off.
fn only(names: &[&str]) -> String {
    let on = names.iter().map(|name| format!("{name}: {{enabled: true}}"));
    let off = ["host.name", "os.type"].map(|name| format!("{name}: {{enabled: false}}"));
    let all: Vec<String> = off.into_iter().chain(on).collect();
    format!("{{hostname_sources: [os], resource_attributes: {{{}}}}}", all.join(", "))
}

/// Guarantee: by default there are two attributes, and the file of hosts has the host's whole name.
#[tokio::test]
async fn the_name_of_the_host_is_that_of_the_first_source_that_has_one() {
    let hosts = ("etc/hosts", "127.0.0.1 localhost\n10.0.0.1 h.example h\n");
    assert_eq!(found("{}", &[hosts], &[]).await, ["host.name=h.example", "os.type=linux"]);
    for (sources, name) in
        [("os", "h"), ("dns, os", "h.example"), ("cname", "h.example"), ("os, dns", "h")]
    {
        let lines = found(&format!("{{hostname_sources: [{sources}]}}"), &[hosts], &[]).await;
        assert_eq!(lines[0], format!("host.name={name}"), "{sources}");
    }
    // Without a file of hosts and a name server.
    assert_eq!(found("{}", &[], &[]).await[0], "host.name=h");
    let yaml = "{detectors: [system], system: {hostname_sources: [cname]}, \
                retry: {enabled: false}}";
    let root = root(&KERNEL);
    let around = Surroundings::of(root.path(), &[], "");
    let failure = detected(yaml, &around).await.expect_err("no source has one");
    assert!(failure.contains("`system`: no source has a name of the host h: cname:"), "{failure}");
}

/// Guarantee: the ID of the installation is systemd's, or else D-Bus's; without one it is left out.
#[tokio::test]
async fn the_id_of_the_host_is_that_of_its_installation() {
    let (systemd, dbus) = (("etc/machine-id", "1a\n"), ("var/lib/dbus/machine-id", "2b\n"));
    let only = only(&["host.id"]);
    assert_eq!(found(&only, &[systemd, dbus], &[]).await, ["host.id=1a"]);
    assert_eq!(found(&only, &[dbus], &[]).await, ["host.id=2b"]);
    assert_eq!(found(&only, &[("etc/machine-id", "")], &[]).await, [""; 0]);
    assert_eq!(found(&only, &[], &[]).await, [""; 0]);
}

/// Guarantee: texts about the system are those of its files, also where variables say where it is.
#[tokio::test]
async fn the_operating_system_is_described() {
    let release = ("etc/os-release", "NAME=\"A Linux\"\nVERSION=\"1 (x)\"\nID=a\nVERSION_ID=1\n");
    let names = only(&["os.name", "os.version", "os.description", "os.build.id"]);
    let machine = std::env::consts::ARCH;
    let uname = format!("Linux h 6.1.0-1 #1 SMP {machine}");
    let expected = [
        "os.build.id=6.1.0-1".to_owned(),
        format!("os.description=A Linux 1 (x) ({uname})"),
        "os.name=a".to_owned(),
        "os.version=1".to_owned(),
    ];
    assert_eq!(found(&names, &[release], &[]).await, expected);
    let host = ("host/etc/os-release", "ID=b\nVERSION_ID=2\n");
    let build = ("etc/os-release", "BUILD_ID=\"rolling\"\n");
    let expected = [
        "os.build.id=rolling".to_owned(),
        format!("os.description={uname}"),
        "os.name=b".to_owned(),
        "os.version=2".to_owned(),
    ];
    let variables = [("HOST_ETC", "/host/etc"), ("HOST_PROC", "/host/proc")];
    assert_eq!(found(&names, &[host, build], &variables).await, expected);
    let cpu = ("host/proc/cpuinfo", "processor: 0\nmodel name: x\n");
    let expected = ["host.cpu.model.name=x", "host.cpu.stepping=0"];
    let names = only(&["host.cpu.model.name", "host.cpu.model.id", "host.cpu.stepping"]);
    assert_eq!(found(&names, &[cpu], &variables).await, expected);
}
