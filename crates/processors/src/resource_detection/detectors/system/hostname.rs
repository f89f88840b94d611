//! How the host is called: by its kernel, or by the network.

use std::net::IpAddr;
use std::time::Duration;

use sluice_config::Fields;
use sluice_net::dns::Resolver;

use super::super::super::surroundings::Surroundings;

const HOSTS: &str = "/etc/hosts";
const RESOLV_CONF: &str = "/etc/resolv.conf";
/// For all sources that ask name servers, so that the kernel's name is there in time.
const NETWORK_TIMEOUT: Duration = Duration::from_secs(3);
/// As long as a name may be.
const NAME_LIMIT_BYTES: usize = 254;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The kernel's name of it.
    Os,
    /// The whole name: as the file of hosts has it, or name servers.
    Dns,
    Cname,
    /// The name of its address.
    Lookup,
}

const SOURCES: [(&str, Source); 4] = [
    ("os", Source::Os),
    ("dns", Source::Dns),
    ("cname", Source::Cname),
    ("lookup", Source::Lookup),
];

impl Source {
    fn name(self) -> &'static str {
        SOURCES.iter().find(|(_, source)| *source == self).map_or("", |(name, _)| name)
    }
}

pub(super) fn read(fields: &mut Fields<'_>) -> Vec<Source> {
    let doc = "Where the name of the host is looked for; the first that has one counts. `os`: the \
               kernel. `dns`: the whole name, in `/etc/hosts` or by DNS. `cname`: the canonical \
               name by DNS. `lookup`: the name of the host's address.";
    let given = fields.string_list("hostname_sources", &["dns", "os"], doc);
    let mut sources = Vec::new();
    for name in &given {
        match SOURCES.iter().find(|(known, _)| known == name) {
            Some((_, source)) => sources.push(*source),
            None => {
                let message = format!("has `{name}`, which is no source");
                let hint = "the sources are `os`, `dns`, `cname` and `lookup`";
                fields.error_at_with_hint("hostname_sources", &message, hint);
            }
        }
    }
    if sources.is_empty() { vec![Source::Dns, Source::Os] } else { sources }
}

/// The name by the first source that has one.
///
/// # Errors
/// None has, and why.
pub(super) async fn find(sources: &[Source], around: &Surroundings) -> Result<String, String> {
    let host = around.host_name().await?;
    let asking = sources.iter().filter(|source| **source != Source::Os).count().max(1);
    let limit = NETWORK_TIMEOUT / asking as u32;
    let mut failures = Vec::new();
    for source in sources {
        let found = async {
            match source {
                Source::Os => Ok(host.clone()),
                Source::Dns => whole_name(&host, around).await,
                Source::Cname => canonical_name(&host, around).await,
                Source::Lookup => name_of_address(&host, around).await,
            }
        };
        match tokio::time::timeout(limit, found).await {
            Ok(Ok(name)) => return Ok(name),
            Ok(Err(reason)) => failures.push(format!("{}: {reason}", source.name())),
            Err(_) => failures.push(format!("{}: no answer within {limit:?}", source.name())),
        }
    }
    let failures = failures.join("; ");
    Err(format!("no source has a name of the host {host}: {failures}; add `os` to the sources"))
}

async fn whole_name(host: &str, around: &Surroundings) -> Result<String, String> {
    let hosts = around.read(HOSTS).await.ok().flatten().unwrap_or_default();
    if let Some(name) = entry_of(&hosts, host).map(|entry| entry[0]).filter(|it| is_name(it)) {
        return Ok(name.to_owned());
    }
    match canonical_name(host, around).await {
        Ok(name) => Ok(name),
        Err(_) => name_of_address(host, around).await,
    }
}

async fn canonical_name(host: &str, around: &Surroundings) -> Result<String, String> {
    let hosts = around.read(HOSTS).await.ok().flatten().unwrap_or_default();
    if let Some(entry) = entry_of(&hosts, host) {
        return Ok(entry[0].trim_end_matches('.').to_owned());
    }
    resolver(around).await?.canonical_name(host).await
}

async fn name_of_address(host: &str, around: &Surroundings) -> Result<String, String> {
    let hosts = around.read(HOSTS).await.ok().flatten().unwrap_or_default();
    let addresses = tokio::net::lookup_host((host, 0)).await;
    let addresses = addresses.map_err(|error| format!("it has no address: {error}"))?;
    let mut failure = "it has no address".to_owned();
    for address in addresses.map(|it| it.ip()) {
        if let Some(name) = first_name_of(&hosts, address) {
            return Ok(name.trim_end_matches('.').to_owned());
        }
        let names = match resolver(around).await {
            Ok(resolver) => resolver.names_of(address).await,
            Err(reason) => Err(reason),
        };
        match names.map(|names| names.into_iter().next()) {
            Ok(Some(name)) => return Ok(name.trim_end_matches('.').to_owned()),
            Ok(None) => failure = format!("{address} has no name"),
            Err(reason) => failure = reason,
        }
    }
    Err(failure)
}

async fn resolver(around: &Surroundings) -> Result<Resolver, String> {
    let path = around.path(RESOLV_CONF);
    let read = tokio::task::spawn_blocking(move || Resolver::read(&path)).await;
    let read = read.map_err(|error| error.to_string())?;
    read.map_err(|reason| format!("{RESOLV_CONF}: {reason}"))
}

/// The address and the names of each line of a file of hosts.
fn lines(hosts: &str) -> impl Iterator<Item = (&str, Vec<&str>)> {
    hosts.lines().filter_map(|line| {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let (address, names) = (words.next()?, words.collect::<Vec<_>>());
        (!names.is_empty()).then_some((address, names))
    })
}

/// The names of the first line that has the host among them.
fn entry_of<'a>(hosts: &'a str, host: &str) -> Option<Vec<&'a str>> {
    lines(hosts).map(|(_, names)| names).find(|names| names.contains(&host))
}

fn first_name_of(hosts: &str, address: IpAddr) -> Option<&str> {
    let of_address =
        |(text, _): &(&str, Vec<&str>)| text.parse::<IpAddr>().is_ok_and(|ip| ip == address);
    lines(hosts).find(of_address).map(|(_, names)| names[0])
}

fn is_name(text: &str) -> bool {
    let is_allowed = |it: char| !it.is_ascii() || it.is_ascii_alphanumeric() || ".-".contains(it);
    text.len() <= NAME_LIMIT_BYTES && text.chars().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "127.0.0.1 localhost # h3\n#10.0.0.9 h\n10.0.0.1\th1.example h1 h\n\
                        10.0.0.2 h2.example. h h2\n10.0.0.3\n::1 six\n";

    #[test]
    fn the_first_line_of_the_file_of_hosts_counts() {
        assert_eq!(entry_of(TEXT, "h").unwrap()[0], "h1.example");
        assert_eq!(entry_of(TEXT, "h2").unwrap()[0], "h2.example.");
        assert_eq!(entry_of(TEXT, "h3"), None);
        assert_eq!(first_name_of(TEXT, "10.0.0.2".parse().unwrap()), Some("h2.example."));
        assert_eq!(first_name_of(TEXT, "0:0::1".parse().unwrap()), Some("six"));
        assert_eq!(first_name_of(TEXT, "10.0.0.3".parse().unwrap()), None);
    }

    #[test]
    fn names_are_told_from_other_texts() {
        assert!(is_name("host-1.example") && is_name("hü"));
        assert!(!is_name("a_b") && !is_name(&"a".repeat(255)));
    }
}
