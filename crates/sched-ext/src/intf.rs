//! The BPF object and what it shares with its loader: the skeleton and the types that build.rs
//! generates from `bpf/main.bpf.c`.

use plain::Plain;

use crate::terms::GateTerms;

mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/main.skel.rs"));
}

pub use skeleton::types::{
    bucket as Bucket, ext_account as Account, ext_cap_ask as CapAsk, ext_config as Config,
    ext_control as Control, ext_cpu as Cpu, ext_exit as Exit, ext_gate as Gate,
    ext_headroom as HeadroomReport, ext_mirror_ask as MirrorAsk, ext_near as Near,
    ext_terms_ask as TermsAsk, limit as Limit, tg_cap_bucket as TokenBucket,
};
pub use skeleton::{MainSkel, MainSkelBuilder, OpenMainSkel};

/// `EXT_KINDS` of `bpf/core/intf.h`, as are the others here.
pub const KINDS: usize = 3;
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
/// `EXT_CPUS_MAX`.
pub const CPUS_MAX: u32 = 8_192;
/// `EXT_CAPS_EACH`: a task is held to at most so many caps of nested groups.
pub const CAPS_NESTED_MAX: usize = 4;

macro_rules! plain {
    ($($type:ident)*) => {$(
        // SAFETY: a C struct of integers and arrays of them, for which all bytes are values.
        unsafe impl Plain for $type {}
    )*};
}
plain!(Account Bucket CapAsk Control Cpu Exit Gate HeadroomReport Limit MirrorAsk Near TermsAsk);

impl Gate {
    /// The terms as the programs take them; tasks of a gate without an account count for the next gate above.
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
}
