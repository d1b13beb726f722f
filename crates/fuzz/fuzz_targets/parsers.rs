//! libFuzzer over the target that `TIDEGATE_FUZZ` names.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tidegate_fuzz::Fuzz;

static CHOSEN: LazyLock<Fuzz> = LazyLock::new(|| {
    let name = std::env::var("TIDEGATE_FUZZ").unwrap_or_default();
    tidegate_fuzz::target(&name).unwrap_or_else(|| {
        let names: Vec<&str> = tidegate_fuzz::TARGETS
            .iter()
            .map(|(name, _)| *name)
            .collect();
        panic!("TIDEGATE_FUZZ={name}: name one of {}", names.join(", "))
    })
});

fuzz_target!(|data: &[u8]| CHOSEN(data));
