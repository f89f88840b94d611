//! Reports: the record of a run, and what is made of one or several of them.

mod record;

pub use record::{
    BenchCost, FORMAT, FaultWindow, Kpis, Machine, PipelineKpis, RECORD_FILE, RecordError, RunRecord, Sample, Scenario,
    SubjectLimits, SubjectRecord, Target, Turn, Verdict, Warning,
};
