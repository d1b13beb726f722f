//! The ledger on fake machines: what is put back and what is left alone, and an owner that dies after each single step.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidegate_knobs::bandwidth::Bandwidth;
use tidegate_knobs::discover::discover;
use tidegate_knobs::group::{GroupPath, Groups};
use tidegate_knobs::kfs::{FakeFs, FakeProcess, Fault, FaultFs, KernelFs, Op, Rule};
use tidegate_knobs::ledger::{
    Change, Entry, FILE, Fallback, Ledger, LedgerError, Moving, NewEntry, OpenReport, Outcome,
    fall_back, own_groups, restore, standing_differs,
};
use tidegate_knobs::target::ProcessRef;

const ERRNOS: [i32; 9] = [
    libc::ENOENT,
    libc::ENODEV,
    libc::EINVAL,
    libc::EBUSY,
    libc::EPERM,
    libc::EACCES,
    libc::EROFS,
    libc::ENOSPC,
    libc::EIO,
];
const RUN: &str = "/run/tidegate";

struct Bed {
    fs: Arc<FaultFs<FakeFs>>,
    groups: Groups,
    moving_dir: tempfile::TempDir,
}

impl Bed {
    fn new(fake: FakeFs) -> Self {
        let fs = Arc::new(FaultFs::new(fake));
        let machine = discover(&fs, None).unwrap();
        let groups = Groups::new(fs.clone(), &machine);
        Self {
            fs,
            groups,
            moving_dir: tempfile::tempdir().unwrap(),
        }
    }

    fn moving(&self) -> Moving {
        Moving::open(&self.moving_path()).unwrap()
    }

    fn moving_path(&self) -> PathBuf {
        self.moving_dir.path().join("ledger.moving")
    }

    fn open(&self) -> (Ledger, OpenReport) {
        Ledger::open(self.fs.clone(), Path::new(RUN), self.moving(), &self.groups).unwrap()
    }

    fn entry(&self, group: &GroupPath, change: Change, fallback: Fallback) -> NewEntry {
        let group_id = self.groups.id(group).unwrap();
        NewEntry {
            gate: "gate".into(),
            group: group.clone(),
            group_id,
            change,
            fallback,
        }
    }

    /// A foreign group with idle, a moving limit and values of its own.
    fn foreign(&self) -> GroupPath {
        let group = path("/app");
        self.groups.create(&group).unwrap();
        self.groups.set_weight(&group, 250).unwrap();
        self.groups.set_bandwidth(&group, None, THEIRS).unwrap();
        group
    }
}

const THEIRS: Bandwidth = Bandwidth {
    quota_us: Some(150_000),
    period_us: 100_000,
    burst_us: 20_000,
};
const OURS: Bandwidth = Bandwidth {
    quota_us: Some(3_000),
    period_us: 20_000,
    burst_us: 0,
};

fn path(text: &str) -> GroupPath {
    GroupPath::parse(text).unwrap()
}

fn limit(bed: &Bed, ledger: &mut Ledger, group: &GroupPath, fallback: Fallback) -> u64 {
    let was = bed.groups.bandwidth(group).unwrap();
    let id = ledger
        .record_moving(
            bed.entry(group, Change::Bandwidth { was, ours: was }, fallback),
            &was,
        )
        .unwrap();
    assert!(ledger.note_moving(id, &was, &OURS));
    bed.groups.set_bandwidth(group, Some(was), OURS).unwrap();
    id
}

#[test]
fn a_limit_is_put_back_only_while_it_is_ours() {
    for make in [FakeFs::mixed, FakeFs::v2] {
        let bed = Bed::new(make());
        let group = bed.foreign();
        let (mut ledger, _) = bed.open();
        let id = limit(&bed, &mut ledger, &group, Fallback::Restore);
        let entry = ledger.get(id).unwrap().clone();
        assert_eq!(
            standing_differs(&bed.groups, ledger.moving(), &entry).unwrap(),
            None
        );

        let outside = Bandwidth::limit(7_000, 20_000);
        bed.groups.set_bandwidth(&group, None, outside).unwrap();
        let found = standing_differs(&bed.groups, ledger.moving(), &entry)
            .unwrap()
            .unwrap();
        assert_eq!(found, "7000 us per 20000 us");
        assert_eq!(
            restore(&bed.groups, ledger.moving(), &entry),
            Outcome::NotOurs { found }
        );
        assert_eq!(bed.groups.bandwidth(&group).unwrap(), outside, "left alone");

        bed.groups.set_bandwidth(&group, None, OURS).unwrap();
        assert_eq!(ledger.restore_all(&bed.groups).len(), 1);
        assert_eq!(bed.groups.bandwidth(&group).unwrap(), THEIRS);
        assert!(ledger.entries().is_empty());
        ledger.close().unwrap();
        assert!(!bed.fs.exists(&Path::new(RUN).join(FILE)));
    }
}

#[test]
fn putting_back_what_stands_writes_nothing() {
    let bed = Bed::new(FakeFs::mixed());
    let group = bed.foreign();
    let (mut ledger, _) = bed.open();
    limit(&bed, &mut ledger, &group, Fallback::Restore);
    bed.groups.set_bandwidth(&group, None, THEIRS).unwrap();
    let before = bed.fs.writes().len();
    let outcomes = ledger.restore_all(&bed.groups);
    assert_eq!(outcomes[0].1, Outcome::Restored);
    assert_eq!(bed.fs.writes().len(), before, "a write would be a refill");
}

#[test]
fn idle_comes_back_with_its_weight_also_after_half_a_restore() {
    for make in [FakeFs::mixed, FakeFs::v2] {
        for half in [false, true] {
            let bed = Bed::new(make());
            let group = bed.foreign();
            let was = bed.groups.class(&group).unwrap();
            let (mut ledger, _) = bed.open();
            ledger
                .record(bed.entry(&group, Change::Idle { was, ours: true }, Fallback::Restore))
                .unwrap();
            bed.groups.set_idle(&group, true).unwrap();
            if half {
                bed.groups.set_idle(&group, false).unwrap();
            }
            let outcomes = ledger.restore_all(&bed.groups);
            assert_eq!(outcomes[0].1, Outcome::Restored);
            assert_eq!(bed.groups.class(&group).unwrap(), was);
        }
    }
}

#[test]
fn a_weight_that_somebody_else_set_stays() {
    let bed = Bed::new(FakeFs::mixed());
    let group = bed.foreign();
    let was = bed.groups.class(&group).unwrap().weight_raw;
    let (mut ledger, _) = bed.open();
    ledger
        .record(bed.entry(&group, Change::Weight { was, ours: 10 }, Fallback::Restore))
        .unwrap();
    bed.groups.set_weight_raw(&group, 77).unwrap();
    let outcomes = ledger.restore_all(&bed.groups);
    assert_eq!(
        outcomes[0].1,
        Outcome::NotOurs {
            found: "weight 77".into()
        }
    );
}

#[test]
fn fallbacks_do_what_they_say_and_again_nothing() {
    let floor = Bandwidth::limit(2_000, 100_000);
    for (fallback, dead_seconds, stands) in [
        (Fallback::Floor { bandwidth: floor }, 0, floor),
        (Fallback::Restore, 0, THEIRS),
        (Fallback::Hold { seconds: 30 }, 29, OURS),
        (Fallback::Hold { seconds: 30 }, 30, THEIRS),
        (Fallback::Stay, 1_000, OURS),
    ] {
        let bed = Bed::new(FakeFs::mixed());
        let group = bed.foreign();
        let (mut ledger, _) = bed.open();
        limit(&bed, &mut ledger, &group, fallback);
        drop(ledger);
        // The guardian, beside a ledger it did not write.
        let (ledger, _) = bed.open();
        for _ in 0..2 {
            for entry in ledger.entries() {
                fall_back(&bed.groups, ledger.moving(), entry, dead_seconds);
            }
            assert_eq!(
                bed.groups.bandwidth(&group).unwrap(),
                stands,
                "{fallback:?}"
            );
        }
        // The next owner can still put back what stood before.
        let (mut ledger, _) = bed.open();
        ledger.restore_all(&bed.groups);
        assert_eq!(
            bed.groups.bandwidth(&group).unwrap(),
            THEIRS,
            "{fallback:?}"
        );
    }
}

#[test]
fn the_guardian_reading_beside_a_recording_owner_frees_no_slot() {
    let bed = Bed::new(FakeFs::mixed());
    let group = bed.foreign();
    let (mut ledger, _) = bed.open();
    limit(&bed, &mut ledger, &group, Fallback::Restore);
    let next = ledger.entries()[0].id + 1;
    // The owner has taken the slot, and not yet stored the entry.
    ledger.moving().take(next, &THEIRS).unwrap();
    let _guardian = bed.open();
    assert!(ledger.moving().get(next).is_some());
    assert!(ledger.moving().get(next - 1).is_some());
}

#[test]
fn a_member_goes_home_and_a_stranger_with_its_number_does_not() {
    let bed = Bed::new(FakeFs::mixed());
    bed.foreign();
    bed.fs.inner().add_process(FakeProcess::new(7));
    bed.groups.place(&path("/app"), 7).unwrap();
    let member = |ledger: &mut Ledger| {
        let start_ticks = ProcessRef::look_up(&*bed.fs, 7).unwrap().start_ticks;
        let placement = bed
            .groups
            .plan_in_place(7, "x", &path("/tidegate-side/job"))
            .unwrap();
        let group = placement.group.clone();
        let change = Change::Membership {
            start_ticks,
            placement,
        };
        // Recorded before its group is there.
        let new = NewEntry {
            gate: "gate".into(),
            group,
            group_id: 0,
            change,
            fallback: Fallback::Stay,
        };
        ledger.record(new).unwrap();
        bed.groups
            .place_in_place(7, "x", &path("/tidegate-side/job"))
            .unwrap();
    };
    let (mut ledger, _) = bed.open();
    member(&mut ledger);
    drop(ledger);
    let (mut ledger, report) = bed.open();
    assert_eq!(report.adopted, 1);
    assert_eq!(ledger.restore_all(&bed.groups)[0].1, Outcome::Restored);
    assert_eq!(bed.groups.group_of(7).unwrap(), Some(path("/app")));

    member(&mut ledger);
    bed.fs.inner().end_process(7);
    bed.fs.inner().add_process(FakeProcess {
        start_ticks: 999_999,
        ..FakeProcess::new(7)
    });
    assert_eq!(ledger.restore_all(&bed.groups)[0].1, Outcome::Gone);
    assert_eq!(
        bed.groups.group_of(7).unwrap(),
        Some(GroupPath::root()),
        "the stranger is left alone"
    );
}

#[test]
fn entries_of_another_boot_or_another_group_mean_nothing() {
    let bed = Bed::new(FakeFs::mixed());
    let group = bed.foreign();
    let other = path("/other");
    bed.groups.create(&other).unwrap();
    let (mut ledger, _) = bed.open();
    limit(&bed, &mut ledger, &group, Fallback::Restore);
    limit(&bed, &mut ledger, &other, Fallback::Restore);
    drop(ledger);
    bed.groups.remove(&group).unwrap();
    bed.groups.create(&group).unwrap();
    bed.groups.remove(&other).unwrap();
    let (ledger, report) = bed.open();
    assert_eq!(
        (report.adopted, report.replaced.len(), report.gone.len()),
        (0, 1, 1)
    );
    assert!(ledger.entries().is_empty());
    assert!((1..=2).all(|id| ledger.moving().get(id).is_none()));

    let bed = Bed::new(FakeFs::mixed());
    let group = bed.foreign();
    let (mut ledger, _) = bed.open();
    limit(&bed, &mut ledger, &group, Fallback::Restore);
    bed.fs
        .inner()
        .set_file("/proc/sys/kernel/random/boot_id", "another\n");
    let (ledger, report) = bed.open();
    assert_eq!((report.adopted, report.other_boot), (0, 1));
    assert!(ledger.moving().get(1).is_none());
}

#[test]
fn a_damaged_ledger_is_set_aside_and_groups_are_found_by_name() {
    let bed = Bed::new(FakeFs::mixed());
    let group = bed.foreign();
    let (mut ledger, _) = bed.open();
    limit(&bed, &mut ledger, &group, Fallback::Restore);
    let whole = bed.fs.read(&Path::new(RUN).join(FILE)).unwrap();
    let file = format!("{RUN}/{FILE}");
    let cuts = (0..whole.len())
        .step_by(7)
        .filter(|at| whole.is_char_boundary(*at));
    let mut texts: Vec<String> = cuts.map(|at| whole[..at].to_owned()).collect();
    texts.extend([
        "null".into(),
        "[]".into(),
        "\u{0}".into(),
        whole.replace("\"format\": 1", "\"format\": 2"),
    ]);
    texts.push(whole.replace("/app", "/../app"));
    for text in texts {
        bed.fs.inner().set_file(&file, &text);
        let (ledger, report) = bed.open();
        assert!(ledger.entries().is_empty());
        assert_eq!(report.alerts.len(), 1, "{text}");
        let aside = report.set_aside.unwrap();
        assert!(
            aside
                .to_str()
                .unwrap()
                .starts_with("/run/tidegate/ledger.bad-"),
            "{aside:?}"
        );
        assert_eq!(
            bed.fs.read(&aside).unwrap(),
            text,
            "kept for a person to look at"
        );
    }

    bed.groups.create(&path("/tidegate-side/a")).unwrap();
    bed.groups.create(&path("/tidegate-main/b")).unwrap();
    bed.groups.create(&path("/tidegatex")).unwrap();
    let own = own_groups(&bed.groups, "tidegate").unwrap();
    let own: Vec<&str> = own.iter().map(GroupPath::as_str).collect();
    assert_eq!(
        own,
        [
            "/tidegate-main",
            "/tidegate-main/b",
            "/tidegate-side",
            "/tidegate-side/a"
        ]
    );
}

#[test]
fn own_groups_in_place_are_found_on_v2() {
    let bed = Bed::new(FakeFs::v2());
    bed.foreign();
    bed.fs.inner().add_process(FakeProcess::new(7));
    bed.groups.place(&path("/app"), 7).unwrap();
    bed.groups
        .place_in_place(7, "tidegate-job", &path("/unused"))
        .unwrap();
    assert_eq!(
        own_groups(&bed.groups, "tidegate").unwrap(),
        [path("/app/tidegate-job")]
    );
}

#[test]
fn a_full_run_directory_is_named_and_nothing_is_half_recorded() {
    let bed = Bed::new(FakeFs::mixed());
    let group = bed.foreign();
    let (mut ledger, _) = bed.open();
    let id = limit(&bed, &mut ledger, &group, Fallback::Restore);
    bed.fs
        .add(Rule::on(Op::Replace, FILE, Fault::Errno(libc::ENOSPC)));
    let new = || bed.entry(&group, Change::Group, Fallback::Stay);
    let error = ledger.record(new()).unwrap_err();
    assert!(matches!(error, LedgerError::NoSpace { .. }));
    assert!(error.to_string().contains("make room in /run"), "{error}");
    assert!(ledger.record_moving(new(), &THEIRS).is_err());
    assert!(ledger.moving().get(id + 1).is_none());
    assert!(ledger.update(id, |entry| entry.gate = "x".into()).is_err());
    assert_eq!(
        (
            ledger.entries().len(),
            ledger.get(id).unwrap().gate.as_str()
        ),
        (1, "gate")
    );
    // The moving limit goes on: its slot is there already.
    assert!(ledger.note_moving(id, &OURS, &Bandwidth::limit(1_000, 20_000)));
    bed.fs.clear();
    assert!(ledger.record(new()).unwrap() > id);
    assert!(matches!(
        ledger.update(999, |_| {}),
        Err(LedgerError::NoEntry { id: 999 })
    ));
}

/// What an owner does in its life, stopping at the first refusal as a dying one would.
fn life(bed: &Bed, group: &GroupPath) -> Option<()> {
    let moving = bed.moving();
    let (mut ledger, _) = Ledger::open(bed.fs.clone(), Path::new(RUN), moving, &bed.groups).ok()?;
    let entry = |group: &GroupPath, change| {
        let group_id = bed.groups.id(group).ok()?;
        Some(NewEntry {
            gate: "g".into(),
            group: group.clone(),
            group_id,
            change,
            fallback: Fallback::Restore,
        })
    };
    let side = path("/tidegate-side");
    bed.groups.create(&side).ok()?;
    ledger.record(entry(&side, Change::Group)?).ok()?;
    bed.groups.set_idle(&side, true).ok()?;

    let was = bed.groups.class(group).ok()?;
    ledger
        .record(entry(group, Change::Idle { was, ours: true })?)
        .ok()?;
    bed.groups.set_idle(group, true).ok()?;
    let was = bed.groups.bandwidth(group).ok()?;
    let id = ledger
        .record_moving(entry(group, Change::Bandwidth { was, ours: was })?, &was)
        .ok()?;
    let mut standing = was;
    for quota_us in [3_000, 9_000, 2_000] {
        let intended = Bandwidth {
            period_us: 10_000 + quota_us,
            burst_us: quota_us / 2,
            quota_us: Some(quota_us),
        };
        ledger.note_moving(id, &standing, &intended).then_some(())?;
        bed.groups
            .set_bandwidth(group, Some(standing), intended)
            .ok()?;
        standing = intended;
    }
    let start_ticks = ProcessRef::look_up(&*bed.fs, 7).ok()?.start_ticks;
    let placement = bed
        .groups
        .plan_in_place(7, "tidegate-job", &path("/tidegate-side/job"))
        .ok()?;
    let change = Change::Membership {
        start_ticks,
        placement,
    };
    ledger.record(entry(group, change)?).ok()?;
    bed.groups
        .place_in_place(7, "tidegate-job", &path("/tidegate-side/job"))
        .ok()?;
    let unsettled = ledger
        .restore_all(&bed.groups)
        .into_iter()
        .any(|(_, outcome)| !outcome.is_settled());
    (!unsettled).then_some(())?;
    bed.groups.remove(&side).ok()?;
    Some(())
}

fn with_process(make: fn() -> FakeFs) -> (Bed, GroupPath) {
    let bed = Bed::new(make());
    let group = bed.foreign();
    bed.fs.inner().add_process(FakeProcess::new(7));
    bed.groups.place(&group, 7).unwrap();
    (bed, group)
}

/// What the next start does, and what must then stand.
fn repaired(bed: &Bed, group: &GroupPath, when: &str) {
    let (mut ledger, report) = bed.open();
    assert!(
        report.set_aside.is_none(),
        "{when}: a reader sees the old or the new file whole"
    );
    for (entry, outcome) in ledger.restore_all(&bed.groups) {
        assert!(outcome.is_settled(), "{when}: {entry:?}: {outcome:?}");
        assert!(
            !matches!(outcome, Outcome::NotOurs { .. }),
            "{when}: {entry:?}: {outcome:?}"
        );
    }
    for own in own_groups(&bed.groups, "tidegate").unwrap().iter().rev() {
        bed.groups.remove(own).unwrap();
    }
    assert_eq!(bed.groups.bandwidth(group).unwrap(), THEIRS, "{when}");
    assert_eq!(bed.groups.weight(group).unwrap(), 250, "{when}");
    assert_eq!(bed.groups.idle(group).unwrap(), Some(false), "{when}");
    assert_eq!(
        bed.groups.group_of(7).unwrap().as_ref(),
        Some(group),
        "{when}"
    );
    assert!(
        own_groups(&bed.groups, "tidegate").unwrap().is_empty(),
        "{when}"
    );
    let (mut ledger, _) = bed.open();
    assert!(
        ledger.restore_all(&bed.groups).is_empty(),
        "{when}: idempotent"
    );
}

#[test]
fn an_owner_that_dies_after_any_step_leaves_what_the_next_can_put_back() {
    for make in [FakeFs::mixed, FakeFs::v1, FakeFs::v2] {
        let (bed, group) = with_process(make);
        let start = bed.fs.count();
        life(&bed, &group).unwrap();
        let operations = bed.fs.count() - start;
        assert!(operations > 50, "{operations}");
        repaired(&bed, &group, "a whole life");
        for nth in 1..=operations {
            let (bed, group) = with_process(make);
            bed.fs.add(Rule {
                nth: Some(bed.fs.count() + nth),
                ..halt()
            });
            assert!(life(&bed, &group).is_none());
            bed.fs.clear();
            repaired(&bed, &group, &format!("died at operation {nth}"));
        }
    }
}

fn halt() -> Rule {
    Rule {
        nth: None,
        op: None,
        path_suffix: None,
        fault: Fault::Halt,
        times: 1,
    }
}

/// "Not there" as the answer to "are you there?" is believed: then the group or the process is gone, not refused.
fn says_gone(op: Op, path: &Path, errno: i32) -> bool {
    let asks = op == Op::Stat || op == Op::List || path.starts_with("/proc");
    asks && matches!(errno, libc::ENOENT | libc::ENODEV)
}

#[test]
fn a_life_with_one_refusal_anywhere_can_be_put_back() {
    for make in [FakeFs::mixed, FakeFs::v2] {
        let (bed, group) = with_process(make);
        let start = bed.fs.count() as usize;
        life(&bed, &group).unwrap();
        let operations = bed.fs.log()[start..].to_vec();
        for (nth, (op, file)) in operations.iter().enumerate() {
            for errno in ERRNOS
                .into_iter()
                .filter(|errno| !says_gone(*op, file, *errno))
            {
                let (bed, group) = with_process(make);
                bed.fs
                    .add(Rule::nth(bed.fs.count() + 1 + nth as u64, errno));
                let _ = life(&bed, &group);
                bed.fs.clear();
                repaired(
                    &bed,
                    &group,
                    &format!("errno {errno} at {op} {}", file.display()),
                );
            }
        }
    }
}

#[test]
fn a_restore_that_is_refused_stays_in_the_books() {
    let bed = Bed::new(FakeFs::mixed());
    let group = bed.foreign();
    let (mut ledger, _) = bed.open();
    limit(&bed, &mut ledger, &group, Fallback::Restore);
    bed.fs.inner().set_read_only(true);
    let outcomes: Vec<(Entry, Outcome)> = ledger.restore_all(&bed.groups);
    assert!(
        matches!(&outcomes[0].1, Outcome::Failed { why } if why.contains("read-write")),
        "{outcomes:?}"
    );
    assert_eq!(ledger.entries().len(), 1);
    bed.fs.inner().set_read_only(false);
    assert_eq!(ledger.restore_all(&bed.groups)[0].1, Outcome::Restored);
    assert_eq!(bed.groups.bandwidth(&group).unwrap(), THEIRS);
}
