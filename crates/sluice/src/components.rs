//! `sluice components`: what this build has.

use std::process::ExitCode;

use anyhow::Result;
use sluice_config::{Catalog, Class};
use sluice_engine::Components;

pub(crate) fn list() -> Result<ExitCode> {
    println!("sluice {}", env!("CARGO_PKG_VERSION"));
    for class in Class::ALL {
        println!("\n{}:", class.key());
        for kind in Components::default().kinds(class).iter().filter(|kind| kind.missing.is_none()) {
            let aliases =
                if kind.aliases.is_empty() { String::new() } else { format!(" (also {})", kind.aliases.join(", ")) };
            println!("  {}{aliases}\n      {}", kind.name, kind.summary);
        }
    }
    Ok(ExitCode::SUCCESS)
}
