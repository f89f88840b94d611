//! One sample of a page: a number, or a histogram as a whole.

use sluice_prometheus::native::Native;

use crate::custom::Custom;
use crate::metadata::Role;
use crate::target::Target;

/// One sample of a page.
pub(crate) struct Found<'s> {
    /// The bytes that stand for the series.
    pub(crate) raw: &'s [u8],
    pub(crate) known: Option<u32>,
    pub(crate) value: Value,
    pub(crate) time_ms: Option<i64>,
}

pub(crate) enum Value {
    Number(f64),
    Native(Native),
    Custom(Custom),
}

impl Value {
    /// The role of what is a histogram as a whole.
    pub(crate) fn role(&self) -> Option<Role> {
        match self {
            Value::Number(_) => None,
            Value::Native(_) => Some(Role::Native),
            Value::Custom(_) => Some(Role::Custom),
        }
    }

    /// Lowers the resolution of a histogram to what the target may have; false if it cannot be low
    /// enough.
    pub(crate) fn limit(&mut self, target: &Target) -> bool {
        let buckets = target.limits.native_buckets;
        match self {
            Value::Number(_) => true,
            Value::Native(native) => {
                if let Some(schema) = target.native_schema {
                    native.limit_schema(schema);
                }
                buckets == 0 || native.limit_buckets(buckets)
            }
            Value::Custom(custom) => buckets == 0 || custom.used_buckets() <= buckets,
        }
    }
}
