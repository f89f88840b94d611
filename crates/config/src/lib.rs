//! The Collector's YAML dialect, read into a validated [`Document`].
//!
//! This crate knows the language (nodes with positions, `${env:…}`, merging, pipelines) but no
//! particular component. A [`Catalog`] lists the kinds of components. The code of a component reads
//! its options through [`Fields`], which validates and documents them in the same step.
//!
//! All errors are collected in [`Diagnostics`], with file, line, column and a hint.

pub mod catalog;
pub mod component_id;
pub mod component_kinds;
pub mod diagnostics;
pub mod document;
pub mod duration;
pub mod expand;
pub mod fields;
pub mod go_regexp;
pub mod load;
pub mod merge;
pub mod secret;
pub mod size;
pub mod source;
pub mod yaml;

mod known_components;
mod masking;
mod nearest;
mod render;

pub use catalog::{Catalog, Class, Kind};
pub use component_id::ComponentId;
pub use component_kinds::{ComponentKind, ComponentKinds};
pub use diagnostics::{Diagnostic, Diagnostics, Severity};
pub use document::{Component, Document, Pipeline};
pub use expand::{Environment, SystemEnvironment};
pub use fields::{Effect, Fields, OptionDoc};
pub use go_regexp::Pattern;
pub use load::{load, read_text};
pub use masking::shown_url;
pub use nearest::nearest;
pub use secret::Secret;
pub use source::{FileId, Sources, Span};
pub use yaml::{Entry, Node, Scalar, ScalarValue, Value};
