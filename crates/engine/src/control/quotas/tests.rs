//! Several limited groups beside each other, and one that starves.

use super::*;
use crate::control::ApplyError;

/// Takes every write but those to the one group that is refused. Keeps the class and the quota that
/// came last, and every moment out of the idle class with more than the tolerance.
#[derive(Default)]
pub(in crate::control) struct Files {
    refused: &'static str,
    is_incapable: bool,
    out: bool,
    rate_ucpu: u64,
    left_idle: u32,
    wrong: Vec<u64>,
}

impl Files {
    fn write(&mut self, group: &GroupPath) -> Result<(), ApplyError> {
        if self.out && self.rate_ucpu > 20_020 {
            self.wrong.push(self.rate_ucpu);
        }
        match group.as_str() == self.refused {
            true => Err(ApplyError {
                is_incapable: self.is_incapable,
                message: format!("{group}: refused"),
            }),
            false => Ok(()),
        }
    }
}

impl Apply for Files {
    fn set_quota(
        &mut self,
        group: &GroupPath,
        _: Option<Bandwidth>,
        to: Bandwidth,
    ) -> Result<(), ApplyError> {
        self.rate_ucpu = to.rate_ucpu().unwrap_or(u64::MAX);
        self.write(group)
    }

    fn set_yielding(&mut self, group: &GroupPath, yielding: bool) -> Result<(), ApplyError> {
        self.left_idle += u32::from(!yielding);
        self.out = !yielding;
        self.write(group)
    }

    fn set_background(&mut self, _: &GroupPath, _: bool) -> Result<(), ApplyError> {
        Ok(())
    }
}

fn path(group: &str) -> GroupPath {
    GroupPath::parse(group).unwrap()
}

pub(in crate::control) fn quotas_of(groups: &[&str]) -> Quotas {
    let target = |group: &&str| QuotaTarget {
        group: path(group),
        weight: 100,
        first_weight: 100,
        unequal: false,
        cap_ucpu: u64::MAX,
        own: None,
    };
    let mut quotas = Quotas::default();
    quotas.set(groups.iter().map(target).collect(), 4_000_000);
    quotas
}

/// On two CPUs with a tolerance of 1 %.
fn at(allowance_ucpu: u64) -> HeadroomDecision {
    HeadroomDecision {
        allowance_ucpu,
        floor_ucpu: 20_000,
        capacity_ucpu: 2_000_000,
        asked_ucpu: 400_000,
        ..HeadroomDecision::default()
    }
}

fn unused(wall_ns: u64) -> Use {
    Use {
        wall_ns,
        ..Use::default()
    }
}

const SECOND: u64 = 1_000_000_000;

#[test]
fn a_refused_write_is_told_though_another_group_is_written_after_it() {
    let mut quotas = quotas_of(&["/a", "/b"]);
    let mut files = Files {
        refused: "/a",
        ..Files::default()
    };
    let (decision, none) = (at(1_000_000), Use::default());
    quotas.step(1, &decision, true, &none, 2, &mut files);
    assert_eq!(quotas.write_errors().collect::<Vec<_>>(), ["/a: refused"]);
    assert!(quotas.targets[1].standing().is_some(), "/b was written");
    files.refused = "";
    quotas.step(SECOND, &decision, true, &none, 2, &mut files);
    assert_eq!(quotas.write_errors().count(), 0);
    files.refused = "/b";
    quotas.invalidate(&path("/b"));
    quotas.step(2 * SECOND, &decision, true, &none, 2, &mut files);
    assert_eq!(quotas.write_errors().count(), 1);
    quotas.drop(&path("/b"));
    assert_eq!(quotas.write_errors().count(), 0, "it ends with its group");
}

#[test]
fn cuts_that_this_process_cannot_make_are_counted_and_refused_values_are_not() {
    for (is_incapable, counted) in [(true, 5), (false, 0)] {
        let mut quotas = quotas_of(&["/a"]);
        let mut files = Files {
            refused: "/a",
            is_incapable,
            ..Files::default()
        };
        let (decision, none) = (at(1_000_000), Use::default());
        for step in 1..=5 {
            quotas.step(step * SECOND, &decision, true, &none, 2, &mut files);
        }
        assert_eq!(quotas.failed_cuts(), counted, "{is_incapable}");
        files.refused = "";
        quotas.step(9 * SECOND, &decision, true, &none, 2, &mut files);
        assert_eq!(quotas.failed_cuts(), 0);
    }
}

#[test]
fn out_of_the_idle_class_side_work_has_no_more_than_its_tolerance() {
    let mut quotas = quotas_of(&["/a"]);
    let mut group = Files::default();
    let starving = unused(50_000_000);
    // It hovers a little above the tolerance, as on a full machine, then is clear of it, and all
    // that again.
    let hovering = [at(55_922), at(20_000), at(41_000), at(58_000)];
    for round in 0..400_u64 {
        let clear = round % 100 >= 80;
        let decision = if clear {
            at(900_000)
        } else {
            hovering[(round / 7 % 4) as usize]
        };
        let now_ns = (round + 1) * starving.wall_ns;
        quotas.step(now_ns, &decision, true, &starving, 2, &mut group);
    }
    assert_eq!(group.wrong, [] as [u64; 0]);
    assert_eq!(group.left_idle, 4, "once in each span at the tolerance");
    assert!(
        !group.out && group.rate_ucpu > 800_000,
        "{}",
        group.rate_ucpu
    );
}

#[test]
fn a_headroom_is_kept_from_the_first_step_on() {
    let mut quotas = quotas_of(&["/a"]);
    let mut group = Files::default();
    // The capacity is not known yet, so no idle is asked for in the decision.
    let first = HeadroomDecision {
        capacity_ucpu: 0,
        asked_ucpu: 0,
        ..at(20_000)
    };
    quotas.step(1, &first, true, &Use::default(), 2, &mut group);
    assert!(group.rate_ucpu <= 20_020, "{}", group.rate_ucpu);
}

#[test]
fn what_sleeps_does_not_starve() {
    let mut quotas = quotas_of(&["/a"]);
    let mut group = Files::default();
    let at_floor = HeadroomDecision {
        asked_ucpu: 0,
        ..at(20_000)
    };
    let unused = unused(100_000_000);
    let mut now_ns = 0;
    let mut is_out_after_3_s = |is_awake: bool| {
        for target in quotas.targets() {
            target.is_awake = is_awake;
        }
        for _ in 0..30 {
            now_ns += unused.wall_ns;
            quotas.step(now_ns, &at_floor, false, &unused, 2, &mut group);
        }
        group.out
    };
    assert!(!is_out_after_3_s(false));
    assert!(is_out_after_3_s(true));
}

#[test]
fn without_headroom_a_group_has_no_quota_until_it_starves() {
    let mut quotas = quotas_of(&["/a"]);
    let mut group = Files::default();
    let free_ucpu = u64::MAX;
    let mut now_ns = 0;
    // The first decisions know nothing of main; then main fills the machine; then it rests.
    let mut steps = |group: &mut Files, allowance_ucpu: u64, side_ns: u64, steps: u32| {
        let used = Use {
            side_ns,
            ..unused(100_000_000)
        };
        let decision = HeadroomDecision {
            asked_ucpu: 0,
            ..at(allowance_ucpu)
        };
        for _ in 0..steps {
            now_ns += used.wall_ns;
            quotas.step(now_ns, &decision, false, &used, 2, group);
        }
        (group.out, group.rate_ucpu)
    };
    let enough_ns = 2_000_000;
    assert_eq!(steps(&mut group, 20_000, enough_ns, 1), (false, free_ucpu));
    assert_eq!(
        steps(&mut group, 1_500_000, enough_ns, 5),
        (false, free_ucpu)
    );
    assert_eq!(steps(&mut group, 20_000, enough_ns, 50), (false, free_ucpu));
    let (out, rate_ucpu) = steps(&mut group, 20_000, 0, 20);
    assert!(out && rate_ucpu <= 20_020, "{rate_ucpu}");
    assert_eq!(steps(&mut group, 1_500_000, 0, 10), (false, free_ucpu));
    assert_eq!(group.wrong, [] as [u64; 0]);
}
