//! What is shared with the BPF programs: `bpf/core/intf.h` in Rust. Sizes are asserted on both sides.

use crate::terms::GateTerms;

/// `EXT_KINDS`.
pub const KINDS: usize = 3;
/// `EXT_GROUPS_MAX`.
pub const GROUPS_MAX: usize = 16_384;
/// `EXT_BUCKETS_MAX`.
pub const BUCKETS_MAX: u32 = 16_384;
/// `EXT_LIMITS_MAX`.
pub const LIMITS_MAX: u32 = 4_096;
/// `EXT_ACCOUNTS_LEAST`.
pub const ACCOUNTS_LEAST: u32 = 64;
/// `EXT_DELAYS`.
pub const DELAYS: usize = 28;
/// `EXT_LLCS_MAX`.
pub const LLCS_MAX: u32 = 64;
/// `EXT_HINTS`.
pub const HINTS: usize = 40;
/// The kernel numbers CPUs below this.
pub const CPUS_MAX: u32 = 8_192;

/// `struct ext_config`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Config {
    pub slice_ns: u64,
    pub period_ns: u64,
    pub cpus: u32,
    pub llcs: u32,
    pub smt: u32,
    pub limits: u32,
    pub hint_slice_ns: [u32; HINTS],
    pub hint_from_ns: [u32; HINTS],
}
const _: () = assert!(size_of::<Config>() == 352);

/// `struct ext_gate`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Gate {
    pub has: u32,
    pub hint: i32,
    pub kind: u32,
    pub account: u32,
}
const _: () = assert!(size_of::<Gate>() == 16);

impl Gate {
    /// The terms as the programs take them; with no account of its own, its tasks count for the next gate above.
    pub fn new(terms: &GateTerms, account: Option<u32>) -> Gate {
        let has = [
            terms.hint.is_some(),
            terms.kind.is_some(),
            account.is_some(),
            terms.idle_is_mirror,
        ];
        Gate {
            has: (0_u32..)
                .zip(has)
                .map(|(bit, has)| u32::from(has) << bit)
                .sum(),
            hint: terms.hint.unwrap_or_default(),
            kind: terms.kind.unwrap_or_default() as u32,
            account: account.unwrap_or_default(),
        }
    }
}

/// `struct ext_account`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Account {
    pub ran_ns: [u64; KINDS],
    pub delay_ns: u64,
    pub longest_ns: u64,
    pub delays: [u64; DELAYS],
}
const _: () = assert!(size_of::<Account>() == 264);

/// `struct ext_near`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Near {
    pub llc: u32,
    pub first_cpu: u32,
}
const _: () = assert!(size_of::<Near>() == 8);

/// `struct ext_terms_ask`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct TermsAsk {
    pub side_gates: u32,
    pub headroom_ppm: u32,
    pub tolerance_ppm: u32,
}
const _: () = assert!(size_of::<TermsAsk>() == 12);

/// `struct ext_control`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Control {
    pub gates_generation: u64,
    pub limits_used: u32,
    pub limits_refused: u32,
    pub side_gates: u32,
    pub headroom_ppm: u32,
    pub tolerance_ppm: u32,
    pub unused: u32,
}
const _: () = assert!(size_of::<Control>() == 32);

/// `struct ext_headroom`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct HeadroomReport {
    pub steps: u64,
    pub at_ns: u64,
    pub idle_ns: u64,
    pub side_ns: u64,
    pub capacity_ns: u64,
    pub floor_ns: u64,
    pub longest_ns: u64,
    pub forced: u64,
    pub allowance_ucpu: u64,
    pub floor_ucpu: u64,
    pub capacity_ucpu: u64,
    pub asked_ucpu: u64,
    pub main_ucpu: u64,
    pub side_ucpu: u64,
    pub idle_ucpu: u64,
    pub trim_ucpu: i64,
    pub reason: u32,
    pub alarms: u32,
    pub cpus: u32,
    pub running: u32,
    pub waiting: u32,
    pub unused: u32,
}
const _: () = assert!(size_of::<HeadroomReport>() == 152);

/// `struct ext_counts`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Counts {
    pub ran_ns: [u64; KINDS],
    pub runs: u64,
    pub direct: u64,
    pub queued: u64,
    pub preempted: u64,
    pub kept: u64,
    pub stolen: u64,
    pub no_context: u64,
    pub min_runs: u64,
    pub min_run_ns: u64,
}
const _: () = assert!(size_of::<Counts>() == 96);

/// `struct ext_cpu`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub struct Cpu {
    pub llc: u32,
    pub next_in_llc: u32,
    pub next_in_core: u32,
    pub need_resched: u32,
    pub state: u32,
    pub kind: u32,
    pub hint: i32,
    pub limit: u32,
    pub deadline: u64,
    pub vruntime: u64,
    pub hweight: u64,
    pub slice_ns: u64,
    pub since_ns: u64,
    pub began_ns: u64,
    pub switch_ns: u64,
    pub switch_pid: u32,
    pub served: u16,
    pub asked: u16,
    pub group: u32,
    pub weight: u32,
    pub reweigh_ns: u64,
    pub clock_ns: u64,
    pub hidden_dsq: u64,
    pub counts: Counts,
}
const _: () = assert!(size_of::<Cpu>() == 256);

/// `struct limit` of `bpf/limits/pool.h`, with the pool of `law/bandwidth_types.h` in it.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Limit {
    pub lock: u32,
    pub above: u32,
    pub quota_ns: u64,
    pub period_ns: u64,
    pub burst_ns: u64,
    pub slice_ns: u64,
    pub runtime_ns: u64,
    pub turnover_ns: u64,
    pub granted_ns: u64,
    pub snap_ns: u64,
    pub epoch: u64,
    pub nr_periods: u64,
    pub nr_throttled: u64,
    pub throttled_ns: u64,
    pub nr_bursts: u64,
    pub burst_used_ns: u64,
    pub expired_ns: u64,
    pub flags: u32,
    pub throttled: u32,
    pub idle: u32,
    pub keep_ns: u32,
    pub timer: [u64; 2],
    pub group_id: u64,
    pub group: u32,
    pub depth: u32,
    pub armed_ns: u64,
    pub throttles: u64,
    pub min_runs: u64,
    pub min_run_ns: u64,
    pub in_kernel_at_ns: u64,
    pub seen: u32,
    pub used: u32,
}
const _: () = assert!(size_of::<Limit>() == 224);

/// `EXT_CAPS_EACH`: caps of groups that lie in each other, of which a task is held to so many.
pub const CAPS_NESTED_MAX: usize = 4;

/// `struct ext_cap_ask`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct CapAsk {
    pub cgroup_id: u64,
    pub pid: u32,
    pub hard_ppt: u32,
    pub soft_ppt: u32,
    pub scope: u32,
    pub bucket: u32,
    pub unused: u32,
}
const _: () = assert!(size_of::<CapAsk>() == 32);

/// `struct bucket` of `bpf/limits/buckets.h`, with the buckets of `law/cap.h` in it.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Bucket {
    pub lock: u32,
    pub family: u32,
    pub users: u32,
    pub is_gate: u32,
    pub owner: u64,
    pub above: u32,
    pub version: u32,
    pub cap: [u64; 11],
    pub debts: [u64; 2],
    pub hard_ppt: u32,
    pub soft_ppt: u32,
    pub scope: u32,
    pub pad: u32,
    pub granularity_ns: u64,
    pub reserved_ns: u64,
    pub used_ns: u64,
    pub background_ns: u64,
    pub throttles: u64,
    pub throttled_ns: u64,
    pub min_runs: u64,
    pub spared_ns: u64,
    pub in_kernel_at_ns: u64,
    pub recall_ns: u64,
}
const _: () = assert!(size_of::<Bucket>() == 232);

const REASON_MAX: usize = 128;
const MESSAGE_MAX: usize = 1024;
const DUMP_MAX: usize = 32_768;

/// `struct ext_exit`.
#[repr(C)]
pub struct Exit {
    pub kind: u32,
    pub unused: u32,
    pub code: i64,
    pub reason: [u8; REASON_MAX],
    pub message: [u8; MESSAGE_MAX],
    pub dump: [u8; DUMP_MAX],
}
const _: () = assert!(size_of::<Exit>() == 16 + REASON_MAX + MESSAGE_MAX + DUMP_MAX);

/// Types that are nothing but numbers, so that any bytes are a value and every byte is one.
///
/// # Safety
/// `repr(C)`, no padding, no pointers, no values that are not allowed.
pub unsafe trait Plain: Sized {
    /// The value as the bytes that the kernel keeps.
    fn bytes(&self) -> &[u8] {
        // SAFETY: a plain value has no padding, so all of its bytes are initialised.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), size_of::<Self>()) }
    }

    /// The value out of the kernel's bytes; None where there are too few.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < size_of::<Self>() {
            return None;
        }
        // SAFETY: there are enough bytes, and any bytes are a value.
        Some(unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) })
    }
}

// SAFETY: numbers and arrays of numbers in C's layout; the sizes asserted above leave no room for padding.
unsafe impl Plain for Config {}
// SAFETY: as above.
unsafe impl Plain for Gate {}
// SAFETY: as above.
unsafe impl Plain for Near {}
// SAFETY: as above.
unsafe impl Plain for Account {}
// SAFETY: as above.
unsafe impl Plain for TermsAsk {}
// SAFETY: as above.
unsafe impl Plain for Control {}
// SAFETY: as above.
unsafe impl Plain for HeadroomReport {}
// SAFETY: as above; the law's native side asserts the layout.
unsafe impl Plain for tidegate_law::HeadroomConfig {}
// SAFETY: as above.
unsafe impl Plain for Cpu {}
// SAFETY: as above.
unsafe impl Plain for Limit {}
// SAFETY: as above.
unsafe impl Plain for CapAsk {}
// SAFETY: as above.
unsafe impl Plain for Bucket {}
// SAFETY: as above.
unsafe impl Plain for Exit {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terms::Kind;

    #[test]
    fn a_gate_says_what_it_has() {
        let silent = Gate::new(&GateTerms::default(), None);
        assert_eq!((silent.has, silent.account), (0, 0));
        let terms = GateTerms {
            hint: Some(-20),
            kind: Some(Kind::Side),
            ..GateTerms::default()
        };
        let all = Gate::new(&terms, Some(9));
        assert_eq!((all.has, all.hint, all.kind, all.account), (7, -20, 1, 9));
    }

    #[test]
    fn bytes_and_back() {
        let gate = Gate {
            has: 1,
            hint: -5,
            kind: 0,
            account: 0,
        };
        assert_eq!(
            Gate::from_bytes(gate.bytes()).map(|back| back.hint),
            Some(-5)
        );
        assert!(Gate::from_bytes(&gate.bytes()[1..]).is_none());
    }
}
