//! The skeleton that build.rs generates from `bpf/sense.bpf.c`: loading it, and errors with their remedies.

use std::mem::MaybeUninit;
use std::sync::Mutex;

use libbpf_rs::PrintLevel;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use super::SenseError;

mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/sense.skel.rs"));
}

pub use skeleton::{SenseSkel, types};

/// The last warning that libbpf printed: its return values are bare errno.
static LAST_WARNING: Mutex<String> = Mutex::new(String::new());

/// Loads the object with one slot per possible CPU.
pub fn load() -> libbpf_rs::Result<(SenseSkel<'static>, usize)> {
    libbpf_rs::set_print(Some((PrintLevel::Warn, |_, text| {
        let text = text.trim_end();
        tracing::debug!(target: "tidegate::bpf", "{text}");
        if let Ok(mut last) = LAST_WARNING.lock() {
            last.clear();
            last.push_str(text);
        }
    })));
    let cpus = libbpf_rs::num_possible_cpus()?;
    // The skeleton borrows the memory of this pointer to the object for as long as it lives.
    let storage = Box::leak(Box::new(MaybeUninit::uninit()));
    let mut open = skeleton::SenseSkelBuilder::default().open(storage)?;
    // The kernel numbers CPUs below 8192.
    open.maps.slots.set_max_entries(cpus as u32)?;
    Ok((open.load()?, cpus))
}

/// libbpf's error with its last warning, and what is likely to mend it.
pub fn failed(step: &'static str, why: &libbpf_rs::Error) -> SenseError {
    let mend = match why.kind() {
        libbpf_rs::ErrorKind::PermissionDenied => "run as root, or with CAP_BPF and CAP_PERFMON",
        _ => "use a kernel from 5.11 with BTF and the cpu controller, or usage sensing",
    };
    let warning = LAST_WARNING
        .lock()
        .map(|last| last.clone())
        .unwrap_or_default();
    SenseError::Bpf {
        step,
        why: format!("{why:#} ({warning})"),
        mend,
    }
}
