//! Several limited groups beside each other.

use super::*;
use crate::control::ApplyError;

struct Files {
    refused: &'static str,
}

impl Files {
    fn write(&self, group: &GroupPath) -> Result<(), String> {
        match group.as_str() == self.refused {
            true => Err(format!("{group}: refused")),
            false => Ok(()),
        }
    }
}

impl Apply for Files {
    fn set_quota(
        &mut self,
        group: &GroupPath,
        _: Option<Bandwidth>,
        _: Bandwidth,
    ) -> Result<(), ApplyError> {
        Ok(self.write(group)?)
    }

    fn set_yielding(&mut self, group: &GroupPath, _: bool) -> Result<(), ApplyError> {
        Ok(self.write(group)?)
    }

    fn set_background(&mut self, group: &GroupPath, _: bool) -> Result<(), ApplyError> {
        Ok(self.write(group)?)
    }
}

fn target(group: &str) -> QuotaTarget {
    QuotaTarget {
        group: GroupPath::parse(group).unwrap(),
        weight: 100,
        first_weight: 100,
        unequal: false,
        cap_ucpu: u64::MAX,
        own: None,
    }
}

#[test]
fn a_refused_write_is_told_though_another_group_is_written_after_it() {
    let mut quotas = Quotas::default();
    quotas.set(vec![target("/a"), target("/b")], 4_000_000);
    let decision = HeadroomDecision {
        allowance_ucpu: 1_000_000,
        floor_ucpu: 20_000,
        capacity_ucpu: 2_000_000,
        asked_ucpu: 400_000,
        ..HeadroomDecision::default()
    };
    let mut files = Files { refused: "/a" };
    quotas.step(1, &decision, true, &Use::default(), 2, &mut files);
    assert_eq!(quotas.write_errors().collect::<Vec<_>>(), ["/a: refused"]);
    assert!(quotas.targets[1].standing().is_some(), "/b was written");
    files.refused = "";
    quotas.step(
        1_000_000_000,
        &decision,
        true,
        &Use::default(),
        2,
        &mut files,
    );
    assert_eq!(quotas.write_errors().count(), 0);
    files.refused = "/b";
    quotas.invalidate(&GroupPath::parse("/b").unwrap());
    quotas.step(
        2_000_000_000,
        &decision,
        true,
        &Use::default(),
        2,
        &mut files,
    );
    assert_eq!(quotas.write_errors().count(), 1);
    quotas.drop(&GroupPath::parse("/b").unwrap());
    assert_eq!(quotas.write_errors().count(), 0, "it ends with its group");
}

#[test]
fn cuts_that_this_process_cannot_make_are_counted_and_refused_values_are_not() {
    struct Refuses(bool);
    impl Apply for Refuses {
        fn set_quota(
            &mut self,
            _: &GroupPath,
            _: Option<Bandwidth>,
            _: Bandwidth,
        ) -> Result<(), ApplyError> {
            Err(ApplyError {
                is_incapable: self.0,
                message: "refused".to_owned(),
            })
        }
        fn set_yielding(&mut self, _: &GroupPath, _: bool) -> Result<(), ApplyError> {
            Ok(())
        }
        fn set_background(&mut self, _: &GroupPath, _: bool) -> Result<(), ApplyError> {
            Ok(())
        }
    }
    let decision = HeadroomDecision {
        allowance_ucpu: 1_000_000,
        floor_ucpu: 20_000,
        capacity_ucpu: 2_000_000,
        asked_ucpu: 400_000,
        ..HeadroomDecision::default()
    };
    for (is_incapable, counted) in [(true, 5), (false, 0)] {
        let mut quotas = Quotas::default();
        quotas.set(vec![target("/a")], 4_000_000);
        for step in 1..=5 {
            let now_ns = step * 1_000_000_000;
            let mut refuses = Refuses(is_incapable);
            quotas.step(now_ns, &decision, true, &Use::default(), 2, &mut refuses);
        }
        assert_eq!(quotas.failed_cuts(), counted, "{is_incapable}");
        let mut files = Files { refused: "" };
        quotas.step(
            9_000_000_000,
            &decision,
            true,
            &Use::default(),
            2,
            &mut files,
        );
        assert_eq!(quotas.failed_cuts(), 0);
    }
}

/// Keeps the class and the quota of one group, and every moment at which it was out of the idle
/// class with more than its tolerance.
#[derive(Default)]
struct OneGroup {
    out: bool,
    rate_ucpu: u64,
    left_idle: u32,
    wrong: Vec<u64>,
}

impl OneGroup {
    fn look(&mut self) {
        if self.out && self.rate_ucpu > 20_020 {
            self.wrong.push(self.rate_ucpu);
        }
    }
}

impl Apply for OneGroup {
    fn set_quota(
        &mut self,
        _: &GroupPath,
        _: Option<Bandwidth>,
        to: Bandwidth,
    ) -> Result<(), ApplyError> {
        self.rate_ucpu = to.rate_ucpu().unwrap_or(u64::MAX);
        self.look();
        Ok(())
    }

    fn set_yielding(&mut self, _: &GroupPath, yielding: bool) -> Result<(), ApplyError> {
        self.left_idle += u32::from(!yielding);
        self.out = !yielding;
        self.look();
        Ok(())
    }

    fn set_background(&mut self, _: &GroupPath, _: bool) -> Result<(), ApplyError> {
        Ok(())
    }
}

#[test]
fn out_of_the_idle_class_side_work_has_no_more_than_its_tolerance() {
    let mut quotas = Quotas::default();
    quotas.set(vec![target("/a")], 4_000_000);
    let mut group = OneGroup::default();
    let step_ns = 50_000_000;
    let starving = Use {
        wall_ns: step_ns,
        ..Use::default()
    };
    let at = |allowance_ucpu| HeadroomDecision {
        allowance_ucpu,
        floor_ucpu: 20_000,
        capacity_ucpu: 2_000_000,
        asked_ucpu: 400_000,
        ..HeadroomDecision::default()
    };
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
        quotas.step(
            (round + 1) * step_ns,
            &decision,
            true,
            &starving,
            2,
            &mut group,
        );
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
    let mut quotas = Quotas::default();
    quotas.set(vec![target("/a")], 4_000_000);
    let mut group = OneGroup::default();
    // The capacity is not known yet, so no idle is asked for in the decision.
    let first = HeadroomDecision {
        allowance_ucpu: 20_000,
        floor_ucpu: 20_000,
        ..HeadroomDecision::default()
    };
    quotas.step(1, &first, true, &Use::default(), 2, &mut group);
    assert!(group.rate_ucpu <= 20_020, "{}", group.rate_ucpu);
}

#[test]
fn what_sleeps_does_not_starve() {
    let mut quotas = Quotas::default();
    quotas.set(vec![target("/a")], 4_000_000);
    let mut group = OneGroup::default();
    let at_floor = HeadroomDecision {
        allowance_ucpu: 20_000,
        floor_ucpu: 20_000,
        capacity_ucpu: 2_000_000,
        ..HeadroomDecision::default()
    };
    let unused = Use {
        wall_ns: 100_000_000,
        ..Use::default()
    };
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
    let mut quotas = Quotas::default();
    quotas.set(vec![target("/a")], 4_000_000);
    let mut group = OneGroup::default();
    let step_ns = 100_000_000;
    let free_ucpu = u64::MAX;
    // The first decisions know nothing of main; then main fills the machine; then it rests.
    let at = |allowance_ucpu| HeadroomDecision {
        allowance_ucpu,
        floor_ucpu: 20_000,
        capacity_ucpu: 2_000_000,
        ..HeadroomDecision::default()
    };
    let mut now_ns = 0;
    let mut steps = |group: &mut OneGroup, allowance_ucpu: u64, side_ns: u64, steps: u32| {
        let used = Use {
            wall_ns: step_ns,
            side_ns,
            ..Use::default()
        };
        for _ in 0..steps {
            now_ns += step_ns;
            quotas.step(now_ns, &at(allowance_ucpu), false, &used, 2, group);
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
