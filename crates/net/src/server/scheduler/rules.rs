//! The rules of the read scheduler. Each can be switched off to measure its benefit.

use std::str::FromStr;

/// One rule. The head of the scheduler's module describes each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    Queue,
    CpuLimit,
    MemoryLimit,
    WaitingRequests,
    WeightByBytes,
    LittleRequests,
    Forecast,
    WholeRequests,
    HeldAnswers,
}

impl Rule {
    pub const ALL: [Rule; 9] = [
        Rule::Queue,
        Rule::CpuLimit,
        Rule::MemoryLimit,
        Rule::WaitingRequests,
        Rule::WeightByBytes,
        Rule::LittleRequests,
        Rule::Forecast,
        Rule::WholeRequests,
        Rule::HeldAnswers,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Rule::Queue => "queue",
            Rule::CpuLimit => "cpu-limit",
            Rule::MemoryLimit => "memory-limit",
            Rule::WaitingRequests => "waiting-requests",
            Rule::WeightByBytes => "weight-by-bytes",
            Rule::LittleRequests => "little-requests",
            Rule::Forecast => "forecast",
            Rule::WholeRequests => "whole-requests",
            Rule::HeldAnswers => "held-answers",
        }
    }
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let names = || Rule::ALL.map(Rule::name).join(", ");
        let found = Rule::ALL.into_iter().find(|rule| rule.name() == name);
        found.ok_or_else(|| format!("there is no rule `{name}`; there are {}", names()))
    }
}

/// The rules that are in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Rules {
    disabled: u16,
}

impl Rules {
    pub(super) fn without(rules: &[Rule]) -> Self {
        Rules { disabled: rules.iter().fold(0, |bits, rule| bits | 1 << *rule as u16) }
    }

    pub(super) const fn and_without(self, rule: Rule) -> Self {
        Rules { disabled: self.disabled | 1 << rule as u16 }
    }

    pub(super) const fn has(self, rule: Rule) -> bool {
        self.disabled & 1 << rule as u16 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_can_be_switched_off_by_its_name() {
        for rule in Rule::ALL {
            assert_eq!(rule.name().parse(), Ok(rule));
            let rules = Rules::without(&[rule]);
            assert!(Rule::ALL.into_iter().all(|other| rules.has(other) == (other != rule)));
        }
        assert!("turns".parse::<Rule>().unwrap_err().to_string().contains("held-answers"));
    }
}
