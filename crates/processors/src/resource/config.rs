use sluice_config::Fields;

use crate::actions::{self, Actions};

#[derive(Clone, Debug, Default)]
pub struct Config {
    pub attributes: Actions,
}

pub fn read(fields: &mut Fields<'_>) -> Config {
    let doc = "Actions on the attributes of every resource, in this order.";
    Config { attributes: actions::read(fields, "attributes", doc) }
}
