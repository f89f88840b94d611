//! A chain of operators: records go in, and come out changed, combined, or not at all.

mod config;

use std::collections::HashMap;
use std::time::Duration;

use sluice_config::Fields;
use sluice_otlp::AnyValue;

pub use self::config::OnError;
use self::config::OperatorConfig;
pub(crate) use self::config::describe_common;
use crate::encode::Encoder;
use crate::expression::Expression;
use crate::label::{Label, Labels};
use crate::operator::{Stage, Transform, Work};
use crate::parsers::{Compiled, Syslog};
use crate::record::{Origin, Record};

/// Bytes of records that the operators of a chain may hold, beside one that is as long as its
/// operator allows.
const HELD_LIMIT: usize = 4 << 20;

/// A list of operators as configured, from which any number of chains can be made.
#[derive(Clone, Default)]
pub struct ChainConfig {
    operators: Vec<OperatorConfig>,
    /// Their places, each before those to which it leads.
    order: Vec<usize>,
}

impl ChainConfig {
    pub fn build(&self) -> Chain {
        let operator = |config: &OperatorConfig| Operator {
            id: config.id.clone(),
            condition: config.condition.clone(),
            on_error: config.on_error,
            work: config.work.clone(),
            ways: config.ways.clone(),
        };
        let operators: Vec<Operator> = self.operators.iter().map(operator).collect();
        let longest = stages(&operators).map(Stage::longest).max().unwrap_or(0);
        Chain {
            operators,
            compiled: self.compile(),
            held_limit: HELD_LIMIT.saturating_add(longest),
            order: self.order.clone(),
            queue: Vec::new(),
            left: Vec::new(),
            counts: Counts::default(),
            failure: None,
        }
    }

    /// The same operators, behind one that gives records these attributes, and is called
    /// `attributes`. A record on which it fails goes on without them.
    #[must_use]
    pub fn labelled(self, labels: Vec<Label>) -> ChainConfig {
        if labels.is_empty() {
            return self;
        }
        self.behind("attributes", OnError::default(), Box::new(Labels(labels)))
    }

    /// The same operators behind a parser of syslog, with which records begin.
    #[must_use]
    pub fn behind_syslog(self, syslog: &Syslog, on_error: OnError) -> ChainConfig {
        self.behind("syslog_parser", on_error, syslog.parser())
    }

    fn behind(mut self, id: &str, on_error: OnError, first: Box<dyn Transform>) -> ChainConfig {
        let targets = self.operators.iter_mut().flat_map(|it| it.ways.iter_mut().flatten());
        targets.chain(&mut self.order).for_each(|place| *place += 1);
        let work = Work::Transform(first);
        let (id, ways) = (id.to_owned(), vec![vec![1]]);
        self.operators.insert(0, OperatorConfig { id, condition: None, on_error, work, ways });
        self.order.insert(0, 0);
        self
    }

    /// Nothing if the chain is not one that can be compiled.
    fn compile(&self) -> Option<Compiled> {
        let mut steps = Vec::new();
        for (place, operator) in self.operators.iter().enumerate() {
            let step = match &operator.work {
                Work::Transform(transform) => transform.step(),
                Work::Stage(stage) => stage.step(),
            };
            let is_plain = operator.condition.is_none() && operator.ways == [[place + 1]];
            steps.push(step.filter(|_| is_plain)?);
        }
        Compiled::of(steps)
    }

    /// Without operators, records come out as they go in.
    pub fn is_empty(&self) -> bool {
        self.operators.is_empty()
    }
}

/// Records that met with something since the chain was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Times that an operator failed on a record.
    pub errors: u64,
    /// Records that `on_error` dropped.
    pub dropped: u64,
    /// Records that a `filter` dropped, or that no route of a `router` took.
    pub filtered: u64,
    /// Records that left incomplete, as too much was held.
    pub let_go: u64,
}

/// An operator's failure on a record, for a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The operator's `id`.
    pub operator: String,
    /// In a line.
    pub reason: String,
}

/// Operators at work. Each stream of a receiver may have a chain of its own, or all share one.
pub struct Chain {
    operators: Vec<Operator>,
    /// Does the same as the operators with most lines.
    compiled: Option<Compiled>,
    held_limit: usize,
    order: Vec<usize>,
    /// Records on their way, the next one last, each with its operator.
    queue: Vec<(usize, Record)>,
    /// Records that have just left a stage.
    left: Vec<(usize, Record)>,
    counts: Counts,
    failure: Option<Failure>,
}

struct Operator {
    id: String,
    condition: Option<Expression>,
    on_error: OnError,
    work: Work,
    ways: Vec<Vec<usize>>,
}

impl Chain {
    /// Reads the list of operators that is the option `key`. A wrong list has errors among the
    /// diagnostics, and makes an empty chain.
    pub fn read(fields: &mut Fields<'_>, key: &str, doc: &str) -> ChainConfig {
        config::read(fields, key, doc)
    }

    /// Lines come whose records have these attributes and this resource before they enter: see
    /// [`Chain::write`].
    pub fn begin(
        &mut self,
        attributes: &Vec<(String, AnyValue)>,
        resource: &Vec<(String, AnyValue)>,
    ) {
        if let Some(compiled) = &mut self.compiled {
            compiled.begin(attributes, resource);
        }
    }

    /// Writes the record that a line's record would become, which is the same and costs less. False
    /// if it is not so simple: a record is to be made and processed.
    pub fn write(&mut self, line: &str, stream: u64, observed_ns: i64, out: &mut Encoder) -> bool {
        let Some(compiled) = &mut self.compiled else { return false };
        let is_held = stages(&self.operators).any(|stage| stage.holds(stream));
        !is_held && compiled.write(line, observed_ns, out)
    }

    /// Takes a record. Those that leave the chain are put into `out`.
    pub fn process(&mut self, record: Record, out: &mut Vec<Record>) {
        self.queue.push((0, record));
        self.run(out);
        while self.held_bytes() > self.held_limit {
            self.let_go_oldest(out);
        }
    }

    /// Lets go what has been held for its time. `now` is a monotonic time since any moment. To be
    /// called about every 100 ms, and with [`Duration::MAX`] at the end, which lets all go.
    pub fn flush(&mut self, now: Duration, out: &mut Vec<Record>) {
        for index in 0..self.order.len() {
            let place = self.order[index];
            if let Work::Stage(stage) = &mut self.operators[place].work {
                stage.flush(now, &mut self.left);
                self.leave(place);
                self.run(out);
            }
        }
    }

    /// Bytes of the records that [`Chain::flush`] would let go at this time, roughly. The time for
    /// which they are held begins with the first call of either.
    pub fn due_bytes(&mut self, now: Duration) -> usize {
        let due = |operator: &mut Operator| match &mut operator.work {
            Work::Stage(stage) => stage.due_bytes(now),
            Work::Transform(_) => 0,
        };
        self.operators.iter_mut().map(due).sum()
    }

    /// The streams of which records are held, each with the lowest offset that a held record is
    /// made of: no checkpoint may pass it.
    pub fn held(&self) -> HashMap<u64, u64> {
        let mut origins: Vec<Origin> = Vec::new();
        stages(&self.operators).for_each(|stage| stage.held(&mut origins));
        let mut lowest = HashMap::new();
        for Origin { stream, range } in origins {
            let start = lowest.entry(stream).or_insert(range.start);
            *start = range.start.min(*start);
        }
        lowest
    }

    /// Drops the records that are held of this stream, as it will be read again from there.
    pub fn forget(&mut self, stream: u64) {
        for operator in &mut self.operators {
            if let Work::Stage(stage) = &mut operator.work {
                stage.forget(stream);
            }
        }
    }

    /// Bytes of the records that are held, roughly. Between two calls at most 4 MiB, and one record
    /// as long as the largest `max_log_size`.
    pub fn held_bytes(&self) -> usize {
        stages(&self.operators).map(|stage| stage.held_bytes()).sum()
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The last failure since the last call that `on_error` does not keep quiet.
    pub fn take_failure(&mut self) -> Option<Failure> {
        self.failure.take()
    }

    fn run(&mut self, out: &mut Vec<Record>) {
        while let Some((place, record)) = self.queue.pop() {
            if place < self.operators.len() {
                self.step(place, record);
            } else {
                out.push(record);
            }
        }
    }

    /// One operator takes one record.
    fn step(&mut self, place: usize, mut record: Record) {
        let operator = &mut self.operators[place];
        let holds = match &operator.condition {
            Some(condition) => condition.holds(&record),
            None => Ok(true),
        };
        let failed = match (holds, &mut operator.work) {
            (Ok(false), _) => {
                self.send(place, 0, record);
                return;
            }
            (Err(reason), _) => Err(Box::new((record, reason))),
            (Ok(true), Work::Transform(transform)) => match transform.apply(&mut record) {
                Ok(()) => {
                    self.send(place, 0, record);
                    return;
                }
                Err(reason) => Err(Box::new((record, reason))),
            },
            (Ok(true), Work::Stage(stage)) => {
                let taken = stage.take(record, &mut self.left);
                if taken.is_ok() && self.left.is_empty() && stage.held_bytes() == 0 {
                    self.counts.filtered += 1;
                }
                taken
            }
        };
        // Records that the operator let go before it failed come first, and are queued last.
        if let Err(refused) = failed {
            let (record, reason) = *refused;
            self.fail(place, record, reason);
        }
        self.leave(place);
    }

    fn fail(&mut self, place: usize, record: Record, reason: String) {
        let OnError { sends, is_quiet } = self.operators[place].on_error;
        self.counts.errors += 1;
        if !is_quiet {
            self.failure = Some(Failure { operator: self.operators[place].id.clone(), reason });
        }
        if sends {
            self.send(place, 0, record);
        } else {
            self.counts.dropped += 1;
        }
    }

    /// Queues the records that have just left a stage, the first one last.
    fn leave(&mut self, place: usize) {
        while let Some((way, record)) = self.left.pop() {
            self.send(place, way, record);
        }
    }

    fn send(&mut self, place: usize, way: usize, record: Record) {
        let Some((first, more)) = self.operators[place].ways[way].split_first() else { return };
        for target in more.iter().rev() {
            self.queue.push((*target, record.clone()));
        }
        self.queue.push((*first, record));
    }

    fn let_go_oldest(&mut self, out: &mut Vec<Record>) {
        let most =
            (0..self.operators.len()).max_by_key(|place| match &self.operators[*place].work {
                Work::Stage(stage) => stage.held_bytes(),
                Work::Transform(_) => 0,
            });
        let Some(place) = most else { return };
        if let Work::Stage(stage) = &mut self.operators[place].work {
            stage.let_go_oldest(&mut self.left);
            self.counts.let_go += self.left.len() as u64;
            self.leave(place);
            self.run(out);
        }
    }
}

fn stages(operators: &[Operator]) -> impl Iterator<Item = &dyn Stage> {
    operators.iter().filter_map(|operator| match &operator.work {
        Work::Stage(stage) => Some(&**stage),
        Work::Transform(_) => None,
    })
}

#[cfg(test)]
mod tests;
