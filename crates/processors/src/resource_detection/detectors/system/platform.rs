//! The distribution of Linux, as the files of each one say it, and as the Collector reads them.

use super::super::super::surroundings::Surroundings;

/// Files of distributions, in the order in which they count. Where one is, it says the version.
const FILES: [(&str, Named); 12] = [
    ("oracle-release", Named::RedHat(Some("oracle"))),
    ("enterprise-release", Named::RedHat(Some("oracle"))),
    ("slackware-version", Named::Slackware),
    ("debian_version", Named::Debian),
    ("neokylin-release", Named::RedHat(None)),
    ("redhat-release", Named::RedHat(None)),
    ("system-release", Named::RedHat(None)),
    ("gentoo-release", Named::RedHat(Some("gentoo"))),
    ("SuSE-release", Named::Suse),
    ("arch-release", Named::Arch),
    ("alpine-release", Named::Alpine),
    ("os-release", Named::OsRelease),
];
/// Shorter files say nothing.
const LEAST_BYTES: usize = 5;
/// Distributions on top of Debian, by the ID in `lsb-release`.
const OF_DEBIAN: [(&str, &str); 6] = [
    ("Ubuntu", "ubuntu"),
    ("LinuxMint", "linuxmint"),
    ("Kylin", "Kylin"),
    ("Cumulus Linux", "cumuluslinux"),
    ("uos", "uos"),
    ("Deepin", "Deepin"),
];
/// Others that have `lsb-release` alone.
const OF_LSB: [(&str, &str); 4] = [
    ("RedHat", "redhat"),
    ("Amazon", "amazon"),
    ("ScientificSL", "scientific"),
    ("XenServer", "xenserver"),
];

#[derive(Clone, Copy)]
enum Named {
    /// The name, if the text does not say it.
    RedHat(Option<&'static str>),
    Slackware,
    Debian,
    Suse,
    Arch,
    Alpine,
    OsRelease,
}

/// Name and version of the distribution; empty where they are not known.
pub(super) fn find(around: &Surroundings) -> (String, String) {
    let etc = around.given("HOST_ETC").unwrap_or_else(|| "/etc".to_owned());
    let read = |name: &str| around.read_now(&format!("{etc}/{name}")).ok().flatten();
    let lsb = read("lsb-release").unwrap_or_default();
    let lsb = |key| value_in(&lsb, key).unwrap_or_default();
    let (id, release) = (lsb("DISTRIB_ID"), lsb("DISTRIB_RELEASE"));
    let found = FILES.iter().find_map(|(name, named)| {
        let text = read(name).filter(|text| text.len() >= LEAST_BYTES)?;
        Some((text, *named))
    });
    let Some((text, named)) = found else {
        let known = OF_LSB.iter().find(|(known, _)| *known == id);
        let name = known.map_or_else(|| id.to_lowercase(), |(_, name)| (*name).to_owned());
        return (name, release);
    };
    let first_line = || text.lines().next().unwrap_or_default().to_owned();
    let (name, version) = match named {
        Named::RedHat(name) => {
            let text = joined(&text);
            let name = name.map_or_else(|| red_hat(&text), str::to_owned);
            (name, red_hat_version(&text))
        }
        Named::Slackware => ("slackware".to_owned(), joined(&text).replacen("slackware ", "", 1)),
        Named::Debian => match OF_DEBIAN.iter().find(|(known, _)| *known == id) {
            Some((_, name)) => ((*name).to_owned(), release),
            None => {
                let tool = around.read_now("/usr/bin/raspi-config");
                let is_raspbian = tool.is_ok_and(|it| it.is_some());
                let name = if is_raspbian { "raspbian" } else { "debian" };
                (name.to_owned(), first_line())
            }
        },
        Named::Suse => suse(&text),
        Named::Arch => ("arch".to_owned(), release),
        Named::Alpine => ("alpine".to_owned(), first_line()),
        Named::OsRelease => {
            let value = |key| value_in(&text, key).unwrap_or_default();
            let name = Some(value("ID")).filter(|id| id != "amzn");
            (name.unwrap_or_else(|| "amazon".to_owned()), value("VERSION_ID"))
        }
    };
    (name.trim_matches('"').to_owned(), version)
}

/// The last value of a key, without quotes.
fn value_in(text: &str, key: &str) -> Option<String> {
    let mut pairs = text.lines().filter_map(|line| line.split_once('='));
    let (_, value) = pairs.rfind(|(known, _)| *known == key)?;
    Some(value.trim().trim_matches(['"', '\'']).to_owned())
}

fn joined(text: &str) -> String {
    text.lines().collect::<String>().to_lowercase()
}

fn red_hat(text: &str) -> String {
    match text.contains("red hat") {
        true => "redhat".to_owned(),
        false => text.split(' ').next().unwrap_or_default().to_owned(),
    }
}

/// In `centos linux release 7.9.2009 (core)`, the number.
fn red_hat_version(text: &str) -> String {
    if text.contains("rawhide") {
        return "rawhide".to_owned();
    }
    let rest = text.split_once("release ").map_or("", |(_, rest)| rest);
    let is_first = |it: char| it == '_' || it.is_ascii_alphanumeric();
    let mut end = 0;
    for (at, it) in rest.char_indices() {
        if !(if at == 0 { is_first(it) } else { it == '.' || it.is_ascii_digit() }) {
            break;
        }
        end = at + 1;
    }
    rest[..end].to_owned()
}

fn suse(text: &str) -> (String, String) {
    let name = if joined(text).contains("opensuse") { "opensuse" } else { "suse" };
    let after = |key: &str| {
        let line = text.lines().find_map(|line| line.split_once(key))?.1;
        let end = line.find(|it: char| it != '.' && !it.is_ascii_digit()).unwrap_or(line.len());
        Some(line[..end].to_owned())
    };
    let version = after("VERSION = ").unwrap_or_default();
    let version = match after("PATCHLEVEL = ") {
        Some(patch) => format!("{version}.{patch}"),
        None => version,
    };
    (name.to_owned(), version)
}

/// A text about the system for people: the distribution, and what `uname -snrvm` says.
pub(super) fn description(around: &Surroundings) -> Result<String, String> {
    let [kernel, host, release, version] =
        ["ostype", "hostname", "osrelease", "version"].map(|name| kernel(around, name));
    let machine = std::env::consts::ARCH;
    let uname = format!("{} {} {} {} {machine}", kernel?, host?, release?, version?);
    let text = ["/etc/os-release", "/usr/lib/os-release"]
        .iter()
        .find_map(|path| around.read_now(path).ok().flatten())
        .unwrap_or_default();
    let value = |key| unquoted(&text, key).filter(|value| !value.is_empty());
    let name = value("NAME").zip(value("VERSION").or_else(|| value("VERSION_ID")));
    let named = name.map(|(name, version)| format!("{name} {version}"));
    Ok(match named.or_else(|| value("PRETTY_NAME")) {
        Some(named) => format!("{named} ({uname})"),
        None => uname,
    })
}

/// The ID of the build of the distribution, or else the release of the kernel.
pub(super) fn build_id(around: &Surroundings) -> Result<String, String> {
    let text = around.read_now("/etc/os-release").ok().flatten().unwrap_or_default();
    let id = text.lines().find_map(|line| line.strip_prefix("BUILD_ID="));
    match id.map(|id| id.trim_matches('"')).filter(|id| !id.is_empty()) {
        Some(id) => Ok(id.to_owned()),
        None => kernel(around, "osrelease"),
    }
}

fn kernel(around: &Surroundings, name: &str) -> Result<String, String> {
    let path = format!("/proc/sys/kernel/{name}");
    let text = around.read_now(&path)?;
    Ok(text.ok_or_else(|| format!("there is no {path}"))?.trim().to_owned())
}

/// The last value of a key of `os-release`, as a shell would read it.
fn unquoted(text: &str, key: &str) -> Option<String> {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let mut pairs = lines.filter_map(|line| line.split_once('='));
    let (_, value) = pairs.rfind(|(known, _)| known.trim() == key)?;
    let value = value.trim();
    let inner = ['"', '\''].iter().find_map(|it| value.strip_prefix(*it)?.strip_suffix(*it));
    let mut out = String::new();
    let mut rest = inner.unwrap_or(value).chars().peekable();
    while let Some(it) = rest.next() {
        let escaped = rest.peek().copied().filter(|next| it == '\\' && "$\"'\\`".contains(*next));
        out.push(escaped.unwrap_or(it));
        if escaped.is_some() {
            rest.next();
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[(&str, &str)]) -> (String, String) {
        let folder = tempfile::tempdir().expect("a directory");
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("is made");
            std::fs::write(path, text).expect("is written");
        }
        find(&Surroundings::of(folder.path(), &[], ""))
    }

    /// Guarantee: name and version of each distribution are those that the Collector finds.
    #[test]
    fn distributions_are_told_apart() {
        let ubuntu = "DISTRIB_ID=Ubuntu\nDISTRIB_RELEASE=24.04\n";
        let os_release = "NAME=x\nID=\"rhel\"\nVERSION_ID=\"9.4\"\n";
        for (files, name, version) in [
            (vec![("etc/debian_version", "12.11\n")], "debian", "12.11"),
            (
                vec![("etc/debian_version", "12.11\n"), ("usr/bin/raspi-config", "x")],
                "raspbian",
                "12.11",
            ),
            (
                vec![("etc/debian_version", "trixie/sid\n"), ("etc/lsb-release", ubuntu)],
                "ubuntu",
                "24.04",
            ),
            (
                vec![("etc/redhat-release", "CentOS Linux release 7.9.2009 (Core)\n")],
                "centos",
                "7.9.2009",
            ),
            (
                vec![("etc/redhat-release", "Red Hat Enterprise Linux release 9.4 (Plow)\n")],
                "redhat",
                "9.4",
            ),
            (vec![("etc/redhat-release", "Fedora release 42 (Rawhide)\n")], "fedora", "rawhide"),
            (vec![("etc/alpine-release", "3.20.1\n")], "alpine", "3.20.1"),
            (
                vec![("etc/SuSE-release", "openSUSE 13\nVERSION = 13.2\nPATCHLEVEL = 1\n")],
                "opensuse",
                "13.2.1",
            ),
            (vec![("etc/os-release", os_release)], "rhel", "9.4"),
            (vec![("etc/os-release", "ID=amzn\nVERSION_ID=2023\n")], "amazon", "2023"),
            (vec![("etc/lsb-release", "DISTRIB_ID=Other\nDISTRIB_RELEASE=1\n")], "other", "1"),
            // Too short to say anything.
            (vec![("etc/debian_version", "12\n"), ("etc/os-release", os_release)], "rhel", "9.4"),
            (vec![], "", ""),
        ] {
            assert_eq!(of(&files), (name.to_owned(), version.to_owned()), "{files:?}");
        }
    }

    #[test]
    fn values_are_read_as_a_shell_reads_them() {
        let text = "#A=no\nA=\"a \\\"b\\\" \\$c\"\nB='x'\nC=plain\n D = d \n";
        let value = |key| unquoted(text, key);
        assert_eq!(value("A").as_deref(), Some("a \"b\" $c"));
        assert_eq!(value("B").as_deref(), Some("x"));
        assert_eq!(value("C").as_deref(), Some("plain"));
        assert_eq!(value("D").as_deref(), Some("d"));
        assert_eq!(value("E"), None);
    }
}
