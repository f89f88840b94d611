//! Jobs and cron jobs.

use sluice_kubernetes::objects::observed::{CronJob, Job};

use super::super::recorder::Recorder;
use super::super::tables::{Attribute, Metric};
use super::workload::begin;

pub(super) fn job(it: &Job, out: &mut Recorder<'_>) {
    begin(&it.metadata, "k8s.job", Attribute::JobUid, Attribute::JobName, out);
    out.int(Metric::JobActivePods, it.status.active);
    out.int(Metric::JobFailedPods, it.status.failed);
    out.int(Metric::JobSuccessfulPods, it.status.succeeded);
    if let Some(completions) = it.spec.completions {
        out.int(Metric::JobDesiredSuccessfulPods, completions);
    }
    if let Some(parallelism) = it.spec.parallelism {
        out.int(Metric::JobMaxParallelPods, parallelism);
    }
    out.finish();
}

pub(super) fn cron_job(it: &CronJob, out: &mut Recorder<'_>) {
    begin(&it.metadata, "k8s.cronjob", Attribute::CronJobUid, Attribute::CronJobName, out);
    out.int(Metric::CronJobActiveJobs, it.status.active.len() as i64);
    out.finish();
}
