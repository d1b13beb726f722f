//! The compiled BPF object: opening it, fitting it to the machine, loading it.

use std::ffi::OsStr;

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{Enum64, Struct};
use libbpf_rs::{
    MapCore, MapFlags, MapHandle, Object, ObjectBuilder, OpenMapMut, OpenObject, ProgramInput,
};
use tidegate_law::HeadroomConfig;

use crate::accounts::accounts_for;
use crate::error::{ExtError, refused};
use crate::intf::{Config, KINDS, Plain};
use crate::log;
use crate::support::NAME;

/// The compiled programs; libelf reads its headers in place, so they must be aligned.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);
static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/main.bpf.o")));

/// Callbacks that a kernel may lack, in the order in which they begin `struct sched_ext_ops` of `bpf/core/kernel.h`.
const OPTIONAL: [&str; 2] = ["cgroup_set_idle", "cgroup_set_bandwidth"];

/// Maps with an element for each possible CPU.
const PER_CPU: [&str; 4] = ["cpus", "slice_timers", "resched_timers", "cpu_times"];

fn lacking(name: &str) -> ExtError {
    ExtError::Refused {
        step: "look into the object",
        why: format!("it has no {name}"),
        log: String::new(),
    }
}

/// Loads the programs for a machine; nothing runs yet.
pub fn load(config: &Config, headroom: &HeadroomConfig, partial: bool) -> Result<Object, ExtError> {
    log::capture();
    let mut open = ObjectBuilder::default()
        .name("tidegate_sched_ext")
        .and_then(|builder| builder.open_memory(&OBJECT.0))
        .map_err(|why| refused("open the programs", &why))?;
    fit(&mut open, config, headroom, partial)
        .map_err(|why| refused("fit the programs to the machine", &why))?;
    open.load()
        .map_err(|why| refused("load the programs", &why))
}

fn fit(
    open: &mut OpenObject,
    config: &Config,
    headroom: &HeadroomConfig,
    partial: bool,
) -> libbpf_rs::Result<()> {
    for mut map in open.maps_mut() {
        let name = map.name().to_owned();
        if name == OsStr::new(".rodata.config") {
            map.set_initial_value(config.bytes())?;
        } else if name == OsStr::new(".rodata.headroom") {
            map.set_initial_value(headroom.bytes())?;
        } else if PER_CPU.iter().any(|map| name == OsStr::new(map)) {
            map.set_max_entries(config.cpus)?;
        } else if name == OsStr::new("cap_timers") {
            map.set_max_entries(config.llcs)?;
        } else if name == OsStr::new("runqueues") {
            map.set_max_entries(config.llcs * KINDS as u32)?;
        } else if name == OsStr::new("nearest") {
            map.set_max_entries(config.llcs * config.llcs)?;
        } else if name == OsStr::new("limits") {
            map.set_max_entries(config.limits)?;
        } else if name == OsStr::new("accounts") {
            map.set_max_entries(accounts_for(config.cpus))?;
        } else if name == OsStr::new("silos") {
            map.set_max_entries(config.limits * config.cpus)?;
        } else if name == OsStr::new(NAME) {
            leave_out(&mut map)?;
            if partial {
                set_flag(&mut map, SWITCH_PARTIAL)?;
            }
            if kernel_has_flag("SCX_OPS_ALLOW_QUEUED_WAKEUP") {
                set_flag(&mut map, ALLOW_QUEUED_WAKEUP)?;
            }
        }
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

/// Whether this kernel tells of quotas (6.17): where it does not, those that others write are not enforced.
pub fn kernel_tells_quotas() -> bool {
    kernel_has("sched_ext_ops", "cgroup_set_bandwidth")
}

/// Takes out the callbacks that this kernel does not know; libbpf would refuse the whole.
fn leave_out(ops: &mut OpenMapMut<'_>) -> libbpf_rs::Result<()> {
    let btf = Btf::from_vmlinux()?;
    let known = btf.type_by_name::<Struct<'_>>("sched_ext_ops");
    let Some(pointers) = ops.initial_value_mut() else {
        return Ok(());
    };
    for (name, pointer) in OPTIONAL.iter().zip(pointers.chunks_exact_mut(8)) {
        let has =
            |member: libbpf_rs::btf::types::StructMember<'_>| member.name == Some(OsStr::new(name));
        if !known.as_ref().is_some_and(|known| known.iter().any(has)) {
            pointer.fill(0);
        }
    }
    Ok(())
}

/// SCX_OPS_SWITCH_PARTIAL, since 6.12.
const SWITCH_PARTIAL: u8 = 1 << 3;

/// SCX_OPS_ALLOW_QUEUED_WAKEUP, of 6.16 and later (6.15 has it in an enum of another width): a task that is to run on another
/// CPU is queued there, by an interrupt. Without it the waker does that, and moves more cache lines.
const ALLOW_QUEUED_WAKEUP: u8 = 1 << 5;

/// Whether this kernel knows a flag of a scheduler.
fn kernel_has_flag(flag: &str) -> bool {
    let Ok(btf) = Btf::from_vmlinux() else {
        return false;
    };
    btf.type_by_name::<Enum64<'_>>("scx_ops_flags")
        .is_some_and(|flags| flags.iter().any(|one| one.name == Some(OsStr::new(flag))))
}

/// `flags` stands after the optional callbacks.
fn set_flag(ops: &mut OpenMapMut<'_>, flag: u8) -> libbpf_rs::Result<()> {
    let flags = ops
        .initial_value_mut()
        .and_then(|value| value.get_mut(8 * OPTIONAL.len()));
    match flags {
        Some(flags) => *flags |= flag,
        None => return Err(std::io::Error::other("the scheduler has no flags").into()),
    }
    Ok(())
}

/// A map of the object, by a handle of its own.
pub fn map(object: &Object, name: &str) -> Result<MapHandle, ExtError> {
    let map = object
        .maps()
        .find(|map| map.name() == OsStr::new(name))
        .ok_or_else(|| lacking(name))?;
    MapHandle::try_from(&map).map_err(|why| refused("open a map", &why))
}

/// Runs a program that is there to be called; what it returned.
pub fn call(object: &mut Object, name: &'static str, argument: &[u8]) -> Result<u32, ExtError> {
    let mut bytes = argument.to_vec();
    let program = object
        .progs_mut()
        .find(|program| program.name() == name)
        .ok_or_else(|| lacking(name))?;
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

/// Writes one element.
pub fn put(map: &MapHandle, key: &[u8], value: &[u8]) -> Result<(), ExtError> {
    map.update(key, value, MapFlags::ANY)
        .map_err(|why| refused("write a map", &why))
}

/// Takes one element away; one that is not there is none, too.
pub fn delete(map: &MapHandle, key: &[u8]) -> Result<(), ExtError> {
    match map.delete(key) {
        Err(why) if why.kind() != libbpf_rs::ErrorKind::NotFound => {
            Err(refused("take an element out of a map", &why))
        }
        _ => Ok(()),
    }
}

/// Reads one element.
pub fn get<T: Plain>(map: &MapHandle, key: &[u8]) -> Result<Option<T>, ExtError> {
    let found = map
        .lookup(key, MapFlags::ANY)
        .map_err(|why| refused("read a map", &why))?;
    Ok(found.and_then(|bytes| T::from_bytes(&bytes)))
}
