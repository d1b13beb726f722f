#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzz::ledger(data));
