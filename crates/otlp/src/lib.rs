//! OTLP on its wire form: encoded requests are read and changed without decoding them to objects.

mod civil;
mod edit;
mod encoding;
pub mod json;
mod repair;
mod scan;
mod schema;
mod signal;
mod split;
pub mod text;
mod value;
pub mod wire;

pub use civil::{civil_date, civil_time};
pub use edit::{
    Attributes, Beyond, ItemEditor, MetricView, NewValue, Point, PointEditor, PointKind, View,
    edit_items, edit_items_within, edit_points_within, edit_resources, edit_resources_and_schemas,
    edit_resources_within,
};
pub use encoding::Encoding;
pub use repair::repair_strings;
pub use scan::{NESTING_LIMIT, scan};
pub use signal::Signal;
pub use split::{Detached, Halving, Part, PartRef, Parts, Sizes, SplitLimits, count, parts, split};
pub use value::{AnyValue, Value};
pub use wire::Malformed;
