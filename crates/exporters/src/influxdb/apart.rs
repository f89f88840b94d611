//! The step before the exporter: points of a request that InfluxDB would take for one.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use bytes::Bytes;
use sluice_influx::{Moved, NoRoom, Precision, set_apart};
use sluice_otlp::{Beyond, Malformed, Signal};

use crate::exporter::LastStep;

pub(super) struct Apart {
    pub(super) moved: Moved,
    pub(super) precision: Precision,
}

impl LastStep for Apart {
    fn change(
        &self,
        _: Signal,
        request: &Bytes,
        limit_bytes: usize,
    ) -> Result<Result<Option<Bytes>, Beyond>, Malformed> {
        let changed = set_apart(request, self.moved, self.precision, limit_bytes)?;
        Ok(changed.map(|changed| changed.map(Bytes::from)).map_err(|NoRoom| Beyond))
    }

    fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        let (is_all, unit) = (self.moved == Moved::All, self.precision as u8);
        ("influxdb set_apart", is_all, unit).hash(&mut hasher);
        hasher.finish()
    }
}
