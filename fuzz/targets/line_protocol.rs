#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sluice_fuzz::influx::check_line_protocol(data));
