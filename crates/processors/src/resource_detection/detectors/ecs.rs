//! The detector `ecs`: a task of Amazon ECS, from the endpoint that its variables name.

use serde_json::Value as Json;
use sluice_config::Fields;
use sluice_flow::BoxFuture;

use super::super::detector::{Builder, Detected, Detector, Enabled, Failure};
use super::super::surroundings::{Surroundings, text_in};

const ATTRIBUTES: [(&str, bool); 15] = [
    ("aws.ecs.cluster.arn", true),
    ("aws.ecs.launchtype", true),
    ("aws.ecs.task.arn", true),
    ("aws.ecs.task.family", true),
    ("aws.ecs.task.id", true),
    ("aws.ecs.task.revision", true),
    ("aws.log.group.arns", true),
    ("aws.log.group.names", true),
    ("aws.log.stream.arns", true),
    ("aws.log.stream.names", true),
    ("cloud.account.id", true),
    ("cloud.availability_zone", true),
    ("cloud.platform", true),
    ("cloud.provider", true),
    ("cloud.region", true),
];
const VARIABLES: [&str; 2] = ["ECS_CONTAINER_METADATA_URI_V4", "ECS_CONTAINER_METADATA_URI"];

#[derive(Debug)]
pub(super) struct Ecs(Enabled);

impl Ecs {
    pub(super) fn read(fields: &mut Fields<'_>) -> Ecs {
        Ecs(Enabled::read(fields, &ATTRIBUTES))
    }

    async fn find(&self, around: &Surroundings) -> Detected {
        let base = VARIABLES.iter().find_map(|name| around.given(name));
        let missing = || Failure::Missing(format!("{} is not set", VARIABLES.join(" or ")));
        let base = base.ok_or_else(missing)?;
        let base = base.trim().trim_end_matches('/');
        let task = around.json(&format!("{base}/task"), &[]).await.map_err(Failure::Broken)?;
        let text = |key| text_in(&task, &[key]).unwrap_or_default();
        let arn = text("TaskARN");
        // arn:aws:ecs:<region>:<account>:task/<cluster>/<id>, formerly without the cluster.
        let parts: Vec<&str> = arn.split(':').collect();
        let (region, account, id) = match parts[..] {
            [_, _, _, region, account, task, ..] => {
                (region, account, task.rsplit('/').next().unwrap_or_default())
            }
            _ => ("", "", ""),
        };
        let mut found = self.0.resource();
        found.text("cloud.provider", "aws");
        found.text("cloud.platform", "aws_ecs");
        found.text("aws.ecs.task.arn", arn);
        found.text("aws.ecs.task.family", text("Family"));
        found.text("aws.ecs.task.revision", text("Revision"));
        let launch_type = text("LaunchType").to_lowercase();
        let launch_type = Some(launch_type.as_str()).filter(|it| ["ec2", "fargate"].contains(it));
        found.found("aws.ecs.launchtype", launch_type);
        for (name, text) in [
            ("cloud.account.id", account),
            ("cloud.region", region),
            ("aws.ecs.task.id", id),
            ("cloud.availability_zone", text("AvailabilityZone")),
        ] {
            found.found(name, Some(text).filter(|text| !text.is_empty()));
        }
        let cluster = text("Cluster");
        let cluster = match cluster.contains(':') {
            true => cluster.to_owned(),
            false => format!("arn:aws:ecs:{region}:{account}:cluster/{cluster}"),
        };
        found.text("aws.ecs.cluster.arn", cluster);
        match around.json(base, &[]).await {
            Ok(own) => add_logs(&task, &own, account, &mut found),
            Err(reason) => found.lacks(reason),
        }
        found.done()
    }
}

fn id(container: &Json) -> Option<&str> {
    text_in(container, &["DockerId"])
}

fn is(container: &Json, key: &str, value: &str) -> bool {
    text_in(container, &[key]) == Some(value)
}

/// The logs of the task's other containers, if they go to CloudWatch.
fn add_logs(task: &Json, own: &Json, account: &str, found: &mut Builder<'_>) {
    let containers = task.get("Containers").and_then(Json::as_array).into_iter().flatten();
    let others = containers.filter(|it| {
        is(it, "Type", "NORMAL")
            && is(it, "KnownStatus", "RUNNING")
            && is(it, "LogDriver", "awslogs")
            && id(it) != id(own)
    });
    let mut logs: [Vec<String>; 4] = Default::default();
    for container in others {
        let [group, region, stream] = ["group", "region", "stream"].map(|key| {
            let path = ["LogOptions", &format!("awslogs-{key}")];
            text_in(container, &path).unwrap_or_default()
        });
        if [group, region, stream].iter().all(|text| text.is_empty()) {
            continue;
        }
        let arn = format!("arn:aws:logs:{region}:{account}:log-group:{group}");
        let texts = [
            group.to_owned(),
            arn.clone(),
            stream.to_owned(),
            format!("{arn}:log-stream:{stream}"),
        ];
        logs.iter_mut().zip(texts).for_each(|(list, text)| list.push(text));
    }
    if logs[0].is_empty() {
        return;
    }
    let names = ["group.names", "group.arns", "stream.names", "stream.arns"];
    for (name, list) in names.into_iter().zip(logs) {
        found.texts(&format!("aws.log.{name}"), list);
    }
}

impl Detector for Ecs {
    fn detect<'a>(&'a self, around: &'a Surroundings) -> BoxFuture<'a, Detected> {
        Box::pin(self.find(around))
    }
}
