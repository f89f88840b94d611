//! The resource of a target.

use std::net::IpAddr;

/// The attributes of the resource that a job's instance is: `service.name`, `server.address` and so
/// on, as the Collector has them.
pub(crate) fn resource_attributes(
    job: &str,
    instance: &str,
    scheme: &str,
) -> Vec<(String, String)> {
    let (host, port) = split_host_port(instance).unwrap_or((instance, ""));
    let mut attributes = vec![("service.name", job)];
    if is_discernible(host) {
        attributes.push(("server.address", host));
    }
    attributes.extend([
        ("service.instance.id", instance),
        ("server.port", port),
        ("url.scheme", scheme),
    ]);
    attributes.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Host and port; an address of IPv6 stands in brackets.
fn split_host_port(text: &str) -> Option<(&str, &str)> {
    let (host, port) = text.rsplit_once(':')?;
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let host = inner.or_else(|| (!host.contains([':', '[', ']'])).then_some(host))?;
    (!host.contains(['[', ']']) && !port.contains(['[', ']'])).then_some((host, port))
}

/// Whether a host means the same elsewhere.
fn is_discernible(host: &str) -> bool {
    match host.parse::<IpAddr>().map(|address| address.to_canonical()) {
        Ok(address) => !address.is_loopback() && !address.is_unspecified(),
        Err(_) => host != "localhost",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_are_hosts_and_ports() {
        for (text, expected) in [
            ("a:80", Some(("a", "80"))),
            ("[::1]:80", Some(("::1", "80"))),
            (":80", Some(("", "80"))),
            ("a", None),
            ("a:b:80", None),
            ("[::1]", None),
            ("[[::1]]:80", None),
        ] {
            assert_eq!(split_host_port(text), expected, "{text}");
        }
    }

    /// Guarantee: an address that every host has is none.
    #[test]
    fn only_discernible_hosts_are_addresses() {
        let address = |instance| {
            let attributes = resource_attributes("job", instance, "http");
            let found = attributes.into_iter().find(|(name, _)| name == "server.address");
            found.map(|(_, value)| value)
        };
        assert_eq!(address("example.com:80").as_deref(), Some("example.com"));
        assert_eq!(address("10.0.0.1:80").as_deref(), Some("10.0.0.1"));
        for instance in ["localhost:80", "127.0.0.1:80", "0.0.0.0:80", "[::1]:80", "localhost"] {
            assert_eq!(address(instance), None, "{instance}");
        }
    }

    #[test]
    fn a_resource_has_the_attributes_of_the_collector() {
        let attributes = resource_attributes("node", "example.com:9100", "https");
        let attributes: Vec<(&str, &str)> =
            attributes.iter().map(|(name, value)| (&**name, &**value)).collect();
        let expected = [
            ("service.name", "node"),
            ("server.address", "example.com"),
            ("service.instance.id", "example.com:9100"),
            ("server.port", "9100"),
            ("url.scheme", "https"),
        ];
        assert_eq!(attributes, expected);
    }
}
