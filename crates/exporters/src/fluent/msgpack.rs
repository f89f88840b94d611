//! Values as MessagePack.

use sluice_net::forward::msgpack::Write as _;
use sluice_otlp::AnyValue;

pub(crate) fn write_value(out: &mut Vec<u8>, value: &AnyValue) {
    match value {
        AnyValue::Empty => out.write_nil(),
        AnyValue::String(text) => out.write_str(text),
        AnyValue::Bool(value) => out.write_bool(*value),
        AnyValue::Int(value) => out.write_int(*value),
        AnyValue::Double(value) => out.write_float(*value),
        AnyValue::Bytes(bytes) => out.write_bin(bytes),
        AnyValue::Array(values) => {
            out.write_array(values.len());
            values.iter().for_each(|value| write_value(out, value));
        }
        AnyValue::Map(pairs) => {
            out.write_map(pairs.len());
            for (key, value) in pairs {
                out.write_str(key);
                write_value(out, value);
            }
        }
    }
}
