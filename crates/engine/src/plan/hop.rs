//! Where data goes from one Sluice to another effectively once, and why not.
//! `docs/decisions/042-effectively-once-hop.md` has the reasons.

use sluice_config::document::Acknowledge;

use super::{DeliveryPlan, Plan, ReceiverPlan};

impl Plan {
    /// The fate at another Sluice of data that a delivery repeats. None for exporters that do not
    /// say that they send to one.
    pub(super) fn sends_once(&self, delivery: &DeliveryPlan) -> Option<String> {
        let exporter = &self.exporters.get(&delivery.id.exporter)?.config;
        if !exporter.client()?.is_idempotent {
            return None;
        }
        if delivery.senders_wait {
            return Some(
                "Another Sluice may store data twice: what our senders repeat has a new name there."
                    .to_owned(),
            );
        }
        let crash = match &self.disk {
            Some(_) => "also after kill -9 of this process",
            None if delivery.is_read_again => {
                "also after kill -9 of this process, but for records that operators held"
            }
            None => "though kill -9 of this process loses data (memory only)",
        };
        let instance = match exporter.spreads_requests() {
            true => {
                "if its name has one address (`balancer_name: round_robin` sends retries to others)"
            }
            false => "if all requests reach the same instance",
        };
        Some(format!("Another Sluice stores its data once, {crash}, {instance}."))
    }

    /// How far a receiver knows what it has had of another Sluice. None for other receivers.
    pub(super) fn stores_once(&self, receiver: &ReceiverPlan) -> Option<String> {
        if !receiver.config.knows_ranges() {
            return None;
        }
        let paths = self.paths.iter().filter(|path| path.receiver == receiver.id);
        let is_waited_for = paths.flat_map(|path| {
            self.deliveries.iter().filter(|delivery| delivery.id == path.delivery)
        });
        let waits = is_waited_for.clone().any(|delivery| delivery.senders_wait);
        let until = match (&self.disk, self.ack) {
            (None, _) => "until this process ends (memory only)",
            _ if waits => "until this process ends (senders wait for a delivery)",
            (_, Acknowledge::Memory) => "also after kill -9, but for what that loses",
            _ => "also after kill -9",
        };
        let what = "data that another Sluice sends twice is stored once";
        Some(format!("{}: {what}, {until}", receiver.id))
    }
}

#[cfg(test)]
mod tests {
    use sluice_config::SystemEnvironment;

    fn described(buffer: &str, exporter: &str) -> String {
        let text = format!(
            "receivers: {{otlp: {{protocols: {{grpc: }}}}}}\n\
             exporters: {{otlp: {{endpoint: 'x:1'{exporter}}}, debug: }}\n\
             buffer: {{{buffer}}}\n\
             service: {{pipelines: {{traces: {{receivers: [otlp], exporters: [otlp, debug]}}}}}}\n"
        );
        let (plan, diagnostics) = crate::plan::load(&[format!("yaml:{text}")], &SystemEnvironment);
        plan.unwrap_or_else(|| panic!("{}", diagnostics.render(false))).describe()
    }

    /// Scenario: an agent reads files, with a checkpoint on disk and no directory. Guarantee: the
    /// plan does not say that a crash loses data.
    #[test]
    fn lines_that_are_read_again_are_not_lost() {
        let text = "receivers: {filelog: {include: [/x], storage: file_storage}}\n\
             exporters: {otlp: {endpoint: 'x:1', idempotent: true}}\n\
             extensions: {file_storage: {directory: /nonexistent, create_directory: true}}\n\
             service: {extensions: [file_storage], \
             pipelines: {logs: {receivers: [filelog], exporters: [otlp]}}}\n";
        let (plan, said) = crate::plan::load(&[format!("yaml:{text}")], &SystemEnvironment);
        let plan = plan.unwrap_or_else(|| panic!("{}", said.render(false))).describe();
        let expected = "stores its data once, also after kill -9 of this process, but for records";
        assert!(plan.contains(expected), "{plan}");
    }

    #[test]
    fn a_plan_does_not_speak_of_another_sluice_unless_a_configuration_does() {
        let plan = described("", "");
        assert!(!plan.contains("Another Sluice"), "{plan}");
    }

    /// Guarantee: each delivery to another Sluice and each of its receivers is told for what it
    /// holds, and only those.
    #[test]
    fn a_plan_says_where_data_is_stored_once_and_why_not() {
        let directory = "directory: /nonexistent/sluice";
        for (buffer, exporter, sends, stores) in [
            ("", "", "loses data (memory only), if its name", "process ends (memory only)"),
            (
                directory,
                "",
                "also after kill -9 of this process, if its name",
                "also after kill -9\n",
            ),
            (
                "directory: /nonexistent/sluice, ack: memory",
                ", balancer_name: pick_first",
                "of this process, if all requests reach the same instance.",
                "also after kill -9, but for what that loses",
            ),
            (
                directory,
                ", sending_queue: {enabled: false}",
                "may store data twice: what our senders repeat",
                "process ends (senders wait for a delivery)",
            ),
        ] {
            let plan = described(buffer, &format!(", idempotent: true{exporter}"));
            let lines =
                |start: &str| plan.lines().filter(|it| it.trim().starts_with(start)).count();
            let ours = lines("otlp: data that another Sluice sends twice is stored once, ");
            assert_eq!((lines("Another Sluice "), ours), (1, 1), "{plan}");
            assert!(plan.contains(sends) && plan.contains(stores), "{buffer} {exporter}\n{plan}");
        }
    }
}
