//! Checks of addresses: listeners that share a port, exporters that send to their own process, and
//! limits on requests that memory does not let in.

use std::net::{IpAddr, Ipv4Addr};

use sluice_config::document::Document;
use sluice_config::{Component, Diagnostic, Diagnostics, Node, Span};
use sluice_net::client::Target;
use sluice_net::server::{Address, Family, Listening};

use super::read::{Read, component};
use super::{MIB, MemoryPlan};

/// An address that the process listens on.
struct Listener {
    /// The option, or the receiver and its protocol.
    what: String,
    address: Address,
    span: Option<Span>,
    is_receiver: bool,
}

pub(super) fn check(
    document: &Document,
    read: &Read,
    memory: &MemoryPlan,
    diagnostics: &mut Diagnostics,
) {
    let listeners = listeners(document, read);
    check_apart(&listeners, diagnostics);
    warn_of_circles(document, read, &listeners, diagnostics);
    for (component, listening) in listening(document, read) {
        warn_of_limit(component, &listening, memory, diagnostics);
    }
}

/// The addresses of receivers and exporters that are in a pipeline.
pub(super) fn listening<'a>(
    document: &'a Document,
    read: &'a Read,
) -> impl Iterator<Item = (&'a Component, Listening<'a>)> {
    of_receivers(document, read).chain(of_exporters(document, read))
}

fn of_receivers<'a>(
    document: &'a Document,
    read: &'a Read,
) -> impl Iterator<Item = (&'a Component, Listening<'a>)> {
    read.receivers.iter().flat_map(|planned| {
        let component = component(&document.receivers, &planned.id);
        let listening = planned.config.listening().into_iter();
        listening.filter_map(move |listening| Some((component?, listening)))
    })
}

fn of_exporters<'a>(
    document: &'a Document,
    read: &'a Read,
) -> impl Iterator<Item = (&'a Component, Listening<'a>)> {
    read.exporters.iter().filter_map(|(id, planned)| {
        let listening = planned.config.listening()?;
        Some((component(&document.exporters, id)?, listening))
    })
}

fn listeners(document: &Document, read: &Read) -> Vec<Listener> {
    let of = |is_receiver| {
        move |(component, listening): (&Component, Listening<'_>)| Listener {
            what: format!("{}.{}", component.path, listening.path.join(".")),
            address: listening.address.clone(),
            span: Some(span_at(component, listening.path)),
            is_receiver,
        }
    };
    let receivers = of_receivers(document, read).map(of(true));
    let exporters = of_exporters(document, read).map(of(false));
    let admin = |what: String, endpoint: &str, span| {
        let address = Address::Tcp(endpoint.to_owned(), Family::Any);
        Listener { what, address, span, is_receiver: false }
    };
    let metrics = super::metrics(document, &[])
        .map(|metrics| admin("service.telemetry.metrics".to_owned(), &metrics.endpoint, None));
    let health = document.extensions.iter().filter_map(|component| {
        let check = read.extensions.get(&component.id.to_string())?.health_check.as_ref()?;
        let span = Some(span_at(component, &["endpoint"]));
        Some(admin(format!("{}.endpoint", component.path), &check.endpoint, span))
    });
    // Those with a place come last: an error is shown there.
    metrics.into_iter().chain(receivers).chain(exporters).chain(health).collect()
}

fn check_apart(listeners: &[Listener], diagnostics: &mut Diagnostics) {
    for (index, later) in listeners.iter().enumerate() {
        let Some(first) = listeners[..index].iter().find(|first| first.clashes_with(later)) else {
            continue;
        };
        let message = format!(
            "`{}` is {}, where `{}` listens already ({})",
            later.what, later.address, first.what, first.address
        );
        let error = Diagnostic::error(later.span, message).with_hint("give each a port of its own");
        diagnostics.push(match first.span {
            Some(span) => error.with_related(span, "first here"),
            None => error,
        });
    }
}

/// Warns of exporters that send to a receiver of the process.
fn warn_of_circles(
    document: &Document,
    read: &Read,
    listeners: &[Listener],
    diagnostics: &mut Diagnostics,
) {
    for (id, planned) in &read.exporters {
        let component = component(&document.exporters, id);
        for destination in planned.config.destinations() {
            let (Some(component), Some(target)) = (component, &destination.target) else {
                continue;
            };
            let own = listeners.iter().find(|it| it.is_receiver && it.takes(target));
            let Some(own) = own else { continue };
            let (path, option) = (&component.path, destination.option);
            let message = format!(
                "`{path}.{option}` is this process's own receiver (`{}`): what is sent there \
                 comes in again",
                own.what
            );
            let hint = "name the backend; the connector `forward` connects two pipelines";
            let span = span_at(component, &[option]);
            diagnostics.push(Diagnostic::warning(span, message).with_hint(hint));
        }
    }
}

/// Warns of a limit in the configuration that is larger than the memory for receiving.
fn warn_of_limit(
    component: &Component,
    listening: &Listening<'_>,
    memory: &MemoryPlan,
    diagnostics: &mut Diagnostics,
) {
    let (option, limit_bytes) = listening.request_limit;
    let option = listening.beside_address(option);
    let Some(span) = find(&component.node, &option) else { return };
    let most_bytes = memory.receiving_bytes;
    if limit_bytes as u64 <= most_bytes {
        return;
    }
    let message = format!(
        "`{}.{}` allows requests of {} MiB, but the memory limit of {} MiB has room for {} MiB: \
         larger ones are refused for good",
        component.path,
        option.join("."),
        limit_bytes as u64 / MIB,
        memory.limit_bytes / MIB,
        most_bytes / MIB
    );
    let hint = "raise `buffer.memory.limit_mib`, or lower this limit";
    diagnostics.push(Diagnostic::warning(span, message).with_hint(hint));
}

/// The place of an option, or of its component.
pub(super) fn span_at(component: &Component, path: &[&str]) -> Span {
    find(&component.node, path).unwrap_or(component.span)
}

fn find(node: &Node, path: &[&str]) -> Option<Span> {
    let (first, rest) = path.split_first()?;
    let entry = node.as_mapping()?.iter().find(|entry| entry.key == *first)?;
    match rest {
        [] if entry.value.span.start < entry.value.span.end => Some(entry.value.span),
        [] => Some(entry.key_span),
        rest => find(&entry.value, rest),
    }
}

impl Listener {
    fn clashes_with(&self, other: &Listener) -> bool {
        match (&self.address, &other.address) {
            (Address::Unix(one), Address::Unix(other)) => one == other,
            (Address::Tcp(one, family), Address::Tcp(other, other_family)) => {
                clash((one, *family), (other, *other_family))
            }
            (Address::Udp(one), Address::Udp(other)) => {
                clash((one, Family::Any), (other, Family::Any))
            }
            _ => false,
        }
    }

    /// Whether a client of this machine that connects to the target comes here.
    fn takes(&self, target: &Target) -> bool {
        match (&self.address, target) {
            (Address::Unix(own), Target::Unix(path)) => own == path,
            (Address::Tcp(own, _), Target::Host { host, port }) => {
                host_port(own).is_some_and(|(own, own_port)| {
                    let is_here = is_any(host) || is_loopback(host);
                    let is_reached = is_any(own) || is_loopback(own);
                    own_port == *port && (is_here && is_reached || is_same(own, host))
                })
            }
            _ => false,
        }
    }
}

fn clash((one, family): (&str, Family), (other, other_family): (&str, Family)) -> bool {
    let Some((one, other)) = host_port(one).zip(host_port(other)) else { return false };
    let (own, of_other) = (families(one.0, family), families(other.0, other_family));
    let share = own.0 && of_other.0 || own.1 && of_other.1;
    let is_one = is_any(one.0) || is_any(other.0) || is_same(one.0, other.0);
    one.1 == other.1 && one.1 != 0 && share && is_one
}

fn host_port(address: &str) -> Option<(&str, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    Some((host, port.parse().ok()?))
}

fn ip(host: &str) -> Option<IpAddr> {
    match host.eq_ignore_ascii_case("localhost") {
        true => Some(Ipv4Addr::LOCALHOST.into()),
        false => host.parse().ok(),
    }
}

/// All interfaces.
fn is_any(host: &str) -> bool {
    host.is_empty() || ip(host).is_some_and(|ip| ip.is_unspecified())
}

fn is_loopback(host: &str) -> bool {
    ip(host).is_some_and(|ip| ip.is_loopback())
}

fn is_same(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other) || ip(one).is_some() && ip(one) == ip(other)
}

/// Whether it listens on IPv4, and on IPv6. All interfaces are those of both, as in Go.
fn families(host: &str, family: Family) -> (bool, bool) {
    match (family, ip(host)) {
        (Family::Any, Some(ip)) if ip.is_unspecified() => (true, true),
        (Family::V4, _) | (_, Some(IpAddr::V4(_))) => (true, false),
        (Family::V6, _) => (false, true),
        (_, Some(IpAddr::V6(_))) => (false, true),
        (Family::Any, None) => (true, true),
    }
}

#[cfg(test)]
mod tests {
    use sluice_config::{Diagnostic, SystemEnvironment};

    use crate::plan::load;

    /// Findings as `line: message (hint)`.
    fn findings(text: &str) -> Vec<String> {
        let (_, diagnostics) = load(&[format!("yaml:{text}")], &SystemEnvironment);
        let one = |it: &Diagnostic| {
            let line = it.span.map_or(0, |span| span.line);
            format!("{line}: {}", it.message)
        };
        diagnostics.items().iter().map(one).collect()
    }

    fn with_receivers(receivers: &str, rest: &str) -> Vec<String> {
        findings(&format!(
            "receivers:\n{receivers}\nexporters: {{otlp: {{endpoint: 'backend:4317'}}}}\n{rest}\
             service:\n  telemetry: {{metrics: {{address: 'localhost:8888'}}}}\n  \
             extensions: [health_check]\n  \
             pipelines: {{traces: {{receivers: [otlp, otlp/2], exporters: [otlp]}}}}\n\
             extensions:\n  health_check: {{endpoint: 'localhost:13133'}}\n"
        ))
    }

    fn otlp(name: &str, grpc: &str) -> String {
        format!("  {name}: {{protocols: {{grpc: {{endpoint: '{grpc}'}}}}}}")
    }

    #[test]
    fn two_listeners_on_one_port_are_an_error() {
        for (one, other, clash) in [
            ("0.0.0.0:4317", "localhost:4317", true),
            (":4317", "[::1]:4317", true),
            ("[::]:4317", "10.0.0.1:4317", true),
            ("localhost:4317", "127.0.0.1:4317", true),
            ("host:4317", "HOST:4317", true),
            ("127.0.0.1:4317", "127.0.0.2:4317", false),
            ("0.0.0.0:4317", "[::1]:4317", true),
            ("127.0.0.1:4317", "[::1]:4317", false),
            ("localhost:4317", "localhost:4318", false),
            ("localhost:0", "localhost:0", false),
            ("unix:/a", "unix:/a", true),
            ("unix:/a", "unix:/b", false),
        ] {
            let found =
                with_receivers(&format!("{}\n{}", otlp("otlp", one), otlp("otlp/2", other)), "");
            let found: Vec<_> = found.iter().filter(|it| it.contains("listens already")).collect();
            assert_eq!(found.len(), usize::from(clash), "{one} {other}: {found:?}");
            let at = "3: `receivers.otlp/2.protocols.grpc.endpoint` is ";
            assert!(found.iter().all(|it| it.starts_with(at)), "{found:?}");
        }
    }

    #[test]
    fn one_receivers_protocols_and_the_admin_ports_are_listeners_too() {
        let both = "  otlp: {protocols: {grpc: {endpoint: ':4317'}, http: {endpoint: ':4317'}}}";
        let found = with_receivers(&format!("{both}\n{}", otlp("otlp/2", "localhost:8888")), "");
        assert_eq!(
            found,
            [
                "2: `receivers.otlp.protocols.http.endpoint` is :4317, where \
                 `receivers.otlp.protocols.grpc.endpoint` listens already (:4317)",
                "3: `receivers.otlp/2.protocols.grpc.endpoint` is localhost:8888, where \
                 `service.telemetry.metrics` listens already (localhost:8888)",
            ]
        );
        let both = format!("{}\n{}", otlp("otlp", ":4317"), otlp("otlp/2", ":13133"));
        let found = with_receivers(&both, "");
        assert!(found[0].starts_with("10: `extensions.health_check.endpoint` is "), "{found:?}");
    }

    #[test]
    fn an_exporter_that_sends_to_its_own_process_is_a_warning() {
        for (receiver, exporter, is_circle) in [
            ("0.0.0.0:4317", "localhost:4317", true),
            (":4317", "http://127.0.0.1:4317", true),
            ("10.0.0.1:4317", "10.0.0.1:4317", true),
            ("0.0.0.0:4317", "backend:4317", false),
            ("10.0.0.1:4317", "localhost:4317", false),
            ("localhost:4317", "localhost:4319", false),
            ("unix:/a", "unix:/a", true),
        ] {
            let found = findings(&format!(
                "receivers:\n{}\nexporters:\n  otlp:\n    endpoint: {exporter}\n\
                 service: {{pipelines: {{traces: {{receivers: [otlp], exporters: [otlp]}}}}}}\n",
                otlp("otlp", receiver)
            ));
            let expected = "5: `exporters.otlp.endpoint` is this process's own receiver \
                            (`receivers.otlp.protocols.grpc.endpoint`): what is sent there comes \
                            in again";
            assert_eq!(found, [expected][..usize::from(is_circle)], "{receiver} {exporter}");
        }
    }

    #[test]
    fn a_limit_that_memory_does_not_allow_is_a_warning() {
        for (grpc, memory_mib, warns) in [
            ("endpoint: ':1'", 64, false),
            ("max_recv_msg_size_mib: 60", 256, true),
            ("max_recv_msg_size_mib: 60", 2048, false),
        ] {
            let found = findings(&format!(
                "receivers:\n  otlp: {{protocols: {{grpc: {{{grpc}}}}}}}\nexporters: {{nop: }}\n\
                 buffer: {{memory: {{limit_mib: {memory_mib}}}}}\n\
                 service: {{pipelines: {{traces: {{receivers: [otlp], exporters: [nop]}}}}}}\n"
            ));
            assert_eq!(found.len(), usize::from(warns), "{found:?}");
            let said = "2: `receivers.otlp.protocols.grpc.max_recv_msg_size_mib` allows requests \
                        of 60 MiB, but the memory limit of 256 MiB has room for ";
            assert!(found.iter().all(|it| it.starts_with(said)), "{found:?}");
        }
    }
}
