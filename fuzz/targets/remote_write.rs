#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sluice_fuzz::prometheus::check_remote_write(data));
