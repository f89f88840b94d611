//! The detector `heroku`: variables that Heroku sets where metadata of dynos is enabled.

use sluice_config::Fields;
use sluice_flow::BoxFuture;

use super::super::detector::{Detected, Detector, Enabled};
use super::super::surroundings::Surroundings;

const ATTRIBUTES: [(&str, bool); 8] = [
    ("cloud.provider", true),
    ("heroku.app.id", true),
    // In the Collector it is on, and never added.
    ("heroku.dyno.id", false),
    ("heroku.release.commit", true),
    ("heroku.release.creation_timestamp", true),
    ("service.instance.id", true),
    ("service.name", true),
    ("service.version", true),
];

#[derive(Debug)]
pub(super) struct Heroku(Enabled);

impl Heroku {
    pub(super) fn read(fields: &mut Fields<'_>) -> Heroku {
        Heroku(Enabled::read(fields, &ATTRIBUTES))
    }

    fn find(&self, around: &Surroundings) -> Detected {
        let (dyno, app) = (around.variable("HEROKU_DYNO_ID"), around.variable("HEROKU_APP_ID"));
        let mut found = self.0.resource();
        if dyno.is_none() && app.is_none() {
            let reason = "HEROKU_DYNO_ID and HEROKU_APP_ID are not set";
            // The variables below may be there all the same.
            found.lacks(reason.to_owned());
        }
        if app.is_some() {
            found.text("cloud.provider", "heroku");
        }
        for (name, value) in [
            ("heroku.dyno.id", dyno.clone()),
            ("service.instance.id", dyno),
            ("heroku.app.id", app),
            ("service.name", around.variable("HEROKU_APP_NAME")),
            ("heroku.release.creation_timestamp", around.variable("HEROKU_RELEASE_CREATED_AT")),
            ("service.version", around.variable("HEROKU_RELEASE_VERSION")),
            ("heroku.release.commit", around.variable("HEROKU_SLUG_COMMIT")),
        ] {
            found.found(name, value);
        }
        found.done()
    }
}

impl Detector for Heroku {
    fn detect<'a>(&'a self, around: &'a Surroundings) -> BoxFuture<'a, Detected> {
        Box::pin(std::future::ready(self.find(around)))
    }
}
