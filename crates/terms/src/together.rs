//! What terms mean only together: checked once all layers are laid over each other.

use crate::error::TermError;
use crate::limits::{Burst, CapScope, Quota};
use crate::source::{RawTerm, Resolved, Source};
use crate::table::{PERIOD_DEFAULT, Term, Terms};
use crate::units::TimeSpan;
use crate::values::{Class, Weight};

const QUOTA_MIN_US: u64 = 1_000;
/// One CPU: the most that one task can use.
const ONE_CPU_PPT: u32 = 1_000;

impl Terms {
    /// The defaults of a gate of this class.
    pub fn of_class(class: Class) -> Terms {
        let raw = RawTerm {
            text: class.name().to_owned(),
            source: Source::Set,
        };
        let named = |term| match term {
            Term::Class => vec![&raw],
            _ => Vec::new(),
        };
        Terms::from_candidates(named).expect("a class is called by its own name")
    }

    pub fn cpu_weight(&self) -> u32 {
        match self.weight.value {
            Weight::Idle => 1,
            Weight::Of(weight) => weight,
        }
    }

    /// The hard cap in parts per thousand of one CPU, where it counts for all of the gate.
    pub fn hard_for_all_ppt(&self) -> Option<u32> {
        let hard = self.cap_hard.value.ppt();
        hard.filter(|_| self.cap_scope.value == CapScope::Group)
    }

    /// The soft cap in parts per thousand of one CPU, where it forbids anything: none from the hard
    /// one up, which comes first.
    pub fn soft_ppt(&self) -> Option<u32> {
        let soft = self.cap_soft.value.ppt()?;
        let hard = self.cap_hard.value.ppt().unwrap_or(u32::MAX);
        (soft < hard).then_some(soft)
    }

    /// The soft cap, where it is one for all of the gate: 0 is the background for each and so for
    /// all.
    pub fn soft_for_all_ppt(&self) -> Option<u32> {
        let for_all = self.cap_scope.value == CapScope::Group;
        self.soft_ppt().filter(|ppt| for_all || *ppt == 0)
    }

    /// Whether something bounds the gate by its own terms, whatever its class: a quota or a cap.
    pub fn is_bounded(&self) -> bool {
        self.quota.value != Quota::None
            || self.cap_hard.value.ppt().is_some()
            || self.cap_soft.value.ppt().is_some()
    }

    /// Whether they can give work more CPU, or sooner, than it would have without them.
    pub fn take_from_others(&self) -> bool {
        let is_heavy = matches!(self.weight.value, Weight::Of(weight) if weight > 100);
        self.class.value == Class::Main || self.latency.value.hint() < 0 || is_heavy
    }

    /// The quota in each period in microseconds; `None` for no limit.
    pub fn quota_us(&self) -> Option<u64> {
        self.quota.value.us(self.period.value)
    }

    pub(crate) fn check_together(&self) -> Result<(), TermError> {
        self.check_quota()?;
        self.check_burst()?;
        self.check_caps()
    }

    fn check_quota(&self) -> Result<(), TermError> {
        match self.quota_us() {
            Some(us) if us < QUOTA_MIN_US => {
                let why = format!("is {us} us in each {}", self.period.value);
                let remedy = "the kernel's least is 1ms a period: give more, or a longer period";
                Err(together(Term::Quota, &self.quota, why, remedy))
            }
            // `quota=none` takes back a quota that had the period.
            None if self.quota.is_default() && self.period.value != PERIOD_DEFAULT => {
                let remedy = "give a quota with it, as in quota=20ms period=100ms";
                Err(together(
                    Term::Period,
                    &self.period,
                    "needs a quota",
                    remedy,
                ))
            }
            _ => Ok(()),
        }
    }

    fn check_burst(&self) -> Result<(), TermError> {
        // A burst alone is for limits of other programs: these are Tidegate's.
        if self.hard_for_all_ppt().is_some() || self.class.value == Class::Side {
            self.check_burst_has_quota()?;
        }
        match (&self.burst.value, self.quota_us()) {
            (Burst::Of(burst), Some(quota_us)) if burst.us() > quota_us => {
                let quota = TimeSpan::from_nanos(quota_us.saturating_mul(1_000));
                let why = format!("is above the quota of {quota} a period");
                let remedy = "the kernel takes at most the quota: give that, or max";
                Err(together(Term::Burst, &self.burst, why, remedy))
            }
            _ => Ok(()),
        }
    }

    /// Whether a burst has a quota, which it needs unless its group has a limit of another program.
    pub fn check_burst_has_quota(&self) -> Result<(), TermError> {
        if self.burst.value == Burst::NONE || !self.quota.is_default() {
            return Ok(());
        }
        let remedy = "give a quota with it, as in quota=20ms burst=max";
        Err(together(Term::Burst, &self.burst, "needs a quota", remedy))
    }

    fn check_caps(&self) -> Result<(), TermError> {
        let (hard, soft) = (self.cap_hard.value.ppt(), self.cap_soft.value.ppt());
        if let (Some(hard), Some(soft)) = (hard, soft)
            && soft > hard
        {
            let hard = &self.cap_hard.value;
            let why = format!("is above cap_hard ({hard}), which holds at all times");
            let remedy = "give a lower one, or leave it out";
            return Err(together(Term::CapSoft, &self.cap_soft, why, remedy));
        }
        if hard.is_none() && soft.is_none() && self.cap_scope.value != CapScope::default() {
            let remedy = "give cap_hard or cap_soft with it";
            return Err(together(
                Term::CapScope,
                &self.cap_scope,
                "needs a cap",
                remedy,
            ));
        }
        if self.cap_scope.value == CapScope::Task
            && let Some(term) = [
                (Term::CapHard, &self.cap_hard, hard),
                (Term::CapSoft, &self.cap_soft, soft),
            ]
            .into_iter()
            .find_map(|(term, at, ppt)| {
                ppt.filter(|ppt| *ppt > ONE_CPU_PPT).map(|_| {
                    let why = "is more than a task can use, which is one CPU";
                    together(
                        term,
                        at,
                        why,
                        "give at most 1cpu, or cap_scope process or group",
                    )
                })
            })
        {
            return Err(term);
        }
        Ok(())
    }
}

fn together<T: std::fmt::Display>(
    term: Term,
    at: &Resolved<T>,
    why: impl Into<String>,
    remedy: &'static str,
) -> TermError {
    TermError::Together {
        name: term.name(),
        source_place: at.source.clone(),
        input: at.value.to_string(),
        why: why.into(),
        remedy,
    }
}
