//! The detector `lambda`: variables that AWS Lambda sets.

use sluice_config::Fields;
use sluice_flow::BoxFuture;

use super::super::detector::{Detected, Detector, Enabled, Failure};
use super::super::surroundings::Surroundings;

const ATTRIBUTES: [(&str, bool); 9] = [
    ("aws.log.group.names", true),
    ("aws.log.stream.names", true),
    ("cloud.platform", true),
    ("cloud.provider", true),
    ("cloud.region", true),
    ("faas.instance", true),
    ("faas.max_memory", true),
    ("faas.name", true),
    ("faas.version", true),
];
const NAME: &str = "AWS_LAMBDA_FUNCTION_NAME";

#[derive(Debug)]
pub(super) struct Lambda(Enabled);

impl Lambda {
    pub(super) fn read(fields: &mut Fields<'_>) -> Lambda {
        Lambda(Enabled::read(fields, &ATTRIBUTES))
    }

    fn find(&self, around: &Surroundings) -> Detected {
        let name = around.given(NAME);
        let name = name.ok_or_else(|| Failure::Missing(format!("{NAME} is not set")))?;
        let mut found = self.0.resource();
        found.text("cloud.provider", "aws");
        found.text("cloud.platform", "aws_lambda");
        found.text("faas.name", name);
        for (attribute, variable) in [
            ("cloud.region", "AWS_REGION"),
            ("faas.version", "AWS_LAMBDA_FUNCTION_VERSION"),
            ("faas.instance", "AWS_LAMBDA_LOG_STREAM_NAME"),
            ("faas.max_memory", "AWS_LAMBDA_FUNCTION_MEMORY_SIZE"),
        ] {
            found.found(attribute, around.variable(variable));
        }
        for (attribute, variable) in [
            ("aws.log.group.names", "AWS_LAMBDA_LOG_GROUP_NAME"),
            ("aws.log.stream.names", "AWS_LAMBDA_LOG_STREAM_NAME"),
        ] {
            if let Some(value) = around.variable(variable) {
                found.texts(attribute, [value]);
            }
        }
        found.done()
    }
}

impl Detector for Lambda {
    fn detect<'a>(&'a self, around: &'a Surroundings) -> BoxFuture<'a, Detected> {
        Box::pin(std::future::ready(self.find(around)))
    }
}
