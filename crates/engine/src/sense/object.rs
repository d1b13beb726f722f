//! The compiled BPF object: loading it, finding its parts, and saying what went wrong.

use std::sync::Mutex;

use libbpf_rs::{Object, ObjectBuilder, PrintLevel};

use super::SenseError;

/// The compiled program; libelf reads its headers in place, so it must be aligned.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);
static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/sense.bpf.o")));

/// The last warning that libbpf printed: its return values are bare errno.
static LAST_WARNING: Mutex<String> = Mutex::new(String::new());

/// Loads the object with one slot per possible CPU.
pub fn load() -> libbpf_rs::Result<(Object, usize)> {
    libbpf_rs::set_print(Some((PrintLevel::Warn, |_, text| {
        let text = text.trim_end();
        tracing::debug!(target: "tidegate::bpf", "{text}");
        if let Ok(mut last) = LAST_WARNING.lock() {
            last.clear();
            last.push_str(text);
        }
    })));
    let cpus = libbpf_rs::num_possible_cpus()?;
    let mut open = ObjectBuilder::default()
        .name("tidegate_sense")?
        .open_memory(&OBJECT.0)?;
    for mut map in open.maps_mut().filter(|map| map.name() == "slots") {
        // The kernel numbers CPUs below 8192.
        map.set_max_entries(cpus as u32)?;
    }
    Ok((open.load()?, cpus))
}

pub fn object_program<'o>(
    object: &'o Object,
    name: &'static str,
) -> Result<libbpf_rs::ProgramMut<'o>, SenseError> {
    object
        .progs_mut()
        .find(|program| program.name() == name)
        .ok_or_else(|| missing(name))
}

pub fn missing(name: &'static str) -> SenseError {
    let why = format!("the object has no {name}");
    SenseError::Bpf {
        step: "load",
        why,
        mend: "build Tidegate again",
    }
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
