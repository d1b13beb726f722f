//! Loads the BPF object, fitted to the machine, and accesses its maps and programs.

use std::ffi::OsStr;
use std::mem::{MaybeUninit, transmute};

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{Enum64, Struct};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, ProgramInput, ProgramMut};
use plain::Plain;
use tidegate_law::HeadroomConfig;

use crate::accounts::accounts_for;
use crate::error::{SchedExtError, refused};
use crate::intf::{Config, HeadroomTuning, KINDS, MainSkel, MainSkelBuilder, OpenMainSkel, value};
use crate::log;

/// Loads the programs for a machine; nothing runs yet.
pub fn load(
    config: &Config,
    headroom: &HeadroomConfig,
) -> Result<MainSkel<'static>, SchedExtError> {
    log::capture();
    // The skeleton borrows the memory of this pointer to the object for as long as it lives.
    let storage = Box::leak(Box::new(MaybeUninit::uninit()));
    let mut open = MainSkelBuilder::default()
        .open(storage)
        .map_err(|why| refused("open the programs", &why))?;
    fit(&mut open, config, headroom)
        .map_err(|why| refused("fit the programs to the machine", &why))?;
    open.load()
        .map_err(|why| refused("load the programs", &why))
}

fn fit(
    open: &mut OpenMainSkel<'_>,
    config: &Config,
    headroom: &HeadroomConfig,
) -> libbpf_rs::Result<()> {
    let maps = &mut open.maps;
    if let Some(section) = &mut maps.rodata_config_data {
        section.config = *config;
    }
    if let Some(section) = &mut maps.rodata_headroom_data {
        // SAFETY: both types are generated from struct tg_headroom_config of law/headroom.h.
        section.headroom_tuning = unsafe { transmute::<HeadroomConfig, HeadroomTuning>(*headroom) };
    }
    maps.cpus.set_max_entries(config.cpus)?;
    maps.cpu_times.set_max_entries(config.cpus)?;
    maps.slice_timers.set_max_entries(config.cpus)?;
    maps.resched_timers.set_max_entries(config.cpus)?;
    maps.cap_timers.set_max_entries(config.llcs)?;
    maps.runqueues.set_max_entries(config.llcs * KINDS as u32)?;
    maps.nearest.set_max_entries(config.llcs * config.llcs)?;
    maps.limits.set_max_entries(config.limits)?;
    maps.silos.set_max_entries(config.limits * config.cpus)?;
    maps.accounts.set_max_entries(accounts_for(config.cpus))?;
    let ops = open.struct_ops.tidegate_mut();
    // libbpf refuses the whole scheduler because of a callback that this kernel does not have.
    if !kernel_has("sched_ext_ops", "cgroup_set_idle") {
        ops.cgroup_set_idle = std::ptr::null_mut();
    }
    if !kernel_tells_quotas() {
        ops.cgroup_set_bandwidth = std::ptr::null_mut();
    }
    if kernel_has_flag("SCX_OPS_ALLOW_QUEUED_WAKEUP") {
        ops.flags |= ALLOW_QUEUED_WAKEUP;
    }
    Ok(())
}

/// Whether a structure of this kernel's has a member of that name.
fn kernel_has(structure: &str, member: &str) -> bool {
    let Ok(btf) = Btf::from_vmlinux() else {
        return false;
    };
    let known = btf.type_by_name::<Struct<'_>>(structure);
    known.is_some_and(|known| known.iter().any(|one| one.name == Some(OsStr::new(member))))
}

/// Whether this kernel reports quotas to the scheduler (6.17); without that, quotas that others
/// write are not enforced.
pub fn kernel_tells_quotas() -> bool {
    kernel_has("sched_ext_ops", "cgroup_set_bandwidth")
}

/// SCX_OPS_ALLOW_QUEUED_WAKEUP, of 6.16 and later (6.15 has it in an enum of another width): a task
/// that is to run on another CPU is queued there, by an interrupt. Without it the waker does that,
/// and moves more cache lines.
const ALLOW_QUEUED_WAKEUP: u64 = 1 << 5;

/// Whether this kernel knows a flag of a scheduler.
fn kernel_has_flag(flag: &str) -> bool {
    let Ok(btf) = Btf::from_vmlinux() else {
        return false;
    };
    btf.type_by_name::<Enum64<'_>>("scx_ops_flags")
        .is_some_and(|flags| flags.iter().any(|one| one.name == Some(OsStr::new(flag))))
}

/// Runs a syscall program; returns its return value.
pub fn call(program: &ProgramMut<'_>, argument: &[u8]) -> Result<u32, SchedExtError> {
    let mut bytes = argument.to_vec();
    let input = ProgramInput {
        // The kernel refuses an argument without a length.
        context_in: (!bytes.is_empty()).then_some(&mut bytes),
        ..ProgramInput::default()
    };
    let output = program
        .test_run(input)
        .map_err(|why| refused("call a program", &why))?;
    Ok(output.return_value)
}

pub fn put(map: &impl MapCore, key: &[u8], value: &[u8]) -> Result<(), SchedExtError> {
    map.update(key, value, MapFlags::ANY)
        .map_err(|why| refused("write a map", &why))
}

/// Deletes one element, if it is there.
pub fn delete(map: &impl MapCore, key: &[u8]) -> Result<(), SchedExtError> {
    match map.delete(key) {
        Err(why) if why.kind() != libbpf_rs::ErrorKind::NotFound => {
            Err(refused("take an element out of a map", &why))
        }
        _ => Ok(()),
    }
}

pub fn get<T: Plain + Default>(map: &impl MapCore, key: &[u8]) -> Result<Option<T>, SchedExtError> {
    let found = map
        .lookup(key, MapFlags::ANY)
        .map_err(|why| refused("read a map", &why))?;
    Ok(found.and_then(|bytes| value(&bytes)))
}

/// A value as the kernel's bytes.
pub fn bytes<T: Plain>(value: &T) -> &[u8] {
    // SAFETY: the generated types name their padding as fields, so that all bytes are initialised.
    unsafe { plain::as_bytes(value) }
}
