//! `sluice components`: what this build has.

use std::fmt::Write as _;

use sluice_config::{Catalog, Class};
use sluice_engine::Components;

pub(crate) fn list() -> String {
    let mut list = format!("sluice {}\n", env!("CARGO_PKG_VERSION"));
    for class in Class::ALL {
        let _ = writeln!(list, "\n{}:", class.key());
        let components = Components::default();
        for kind in components.kinds(class).iter().filter(|kind| kind.missing.is_none()) {
            let aliases = match kind.aliases {
                [] => String::new(),
                aliases => format!(" (also {})", aliases.join(", ")),
            };
            let _ = writeln!(list, "  {}{aliases}\n      {}", kind.name, kind.summary);
        }
    }
    list
}
