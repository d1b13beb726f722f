//! The ledger on fake machines: what is put back and what is left alone.

use std::path::Path;

use tidegate_cgroup::KernelFs;
use tidegate_cgroup::group::GroupPath;
use tidegate_cgroup::testkit::{FakeFs, FakeProcess};
use tidegate_engine::ledger::{Change, FILE, Fallback, Outcome, own_groups, standing_differs};

use crate::support::{Bed, OURS, RUN, THEIRS, path};

#[test]
fn a_service_manager_that_resets_the_limit_is_noticed() {
    let bed = Bed::new(FakeFs::v2());
    let group = bed.foreign();
    let (mut ledger, _) = bed.open();
    let id = bed.limit(&mut ledger, &group, Fallback::Floor { bandwidth: OURS });
    // `systemctl daemon-reload` writes the unit's own value, which is the one that stood before us.
    bed.groups.set_bandwidth(&group, None, THEIRS).unwrap();
    let entry = ledger.get(id).unwrap().clone();
    let found = standing_differs(&bed.groups, ledger.moving(), &entry).unwrap();
    assert_eq!(found, Some(THEIRS.to_string()));

    // A write of ours that fails is told from that by noting what stands.
    assert!(ledger.note_moving(id, &THEIRS, &THEIRS));
    assert_eq!(
        standing_differs(&bed.groups, ledger.moving(), &entry).unwrap(),
        None
    );
}

#[test]
fn putting_back_what_stands_writes_nothing() {
    let bed = Bed::new(FakeFs::mixed());
    let group = bed.foreign();
    let (mut ledger, _) = bed.open();
    bed.limit(&mut ledger, &group, Fallback::Restore);
    bed.groups.set_bandwidth(&group, None, THEIRS).unwrap();
    let before = bed.fs.writes().len();
    let outcomes = ledger.restore(&bed.groups, &ledger.ids_where(|_| true));
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
            let outcomes = ledger.restore(&bed.groups, &ledger.ids_where(|_| true));
            assert_eq!(outcomes[0].1, Outcome::Restored);
            assert_eq!(bed.groups.class(&group).unwrap(), was);
        }
    }
}

#[test]
fn a_weight_that_another_program_set_stays() {
    let bed = Bed::new(FakeFs::mixed());
    let group = bed.foreign();
    let was = bed.groups.class(&group).unwrap().weight_raw;
    let (mut ledger, _) = bed.open();
    ledger
        .record(bed.entry(&group, Change::Weight { was, ours: 10 }, Fallback::Restore))
        .unwrap();
    bed.groups.set_weight_raw(&group, 77).unwrap();
    let outcomes = ledger.restore(&bed.groups, &ledger.ids_where(|_| true));
    assert_eq!(
        outcomes[0].1,
        Outcome::NotOurs {
            found: "weight 77".into()
        }
    );
}

#[test]
fn the_guardian_reading_beside_a_recording_agent_frees_no_slot() {
    let bed = Bed::new(FakeFs::mixed());
    let group = bed.foreign();
    let (mut ledger, _) = bed.open();
    bed.limit(&mut ledger, &group, Fallback::Restore);
    let next = ledger.entries().next().unwrap().id + 1;
    // The agent has taken the slot, and not yet stored the entry.
    ledger.moving().take(next, &THEIRS).unwrap();
    let _guardian = bed.open();
    assert!(ledger.moving().get(next).is_some());
    assert!(ledger.moving().get(next - 1).is_some());
}

#[test]
fn entries_of_another_boot_or_another_group_mean_nothing() {
    let bed = Bed::new(FakeFs::mixed());
    let group = bed.foreign();
    let other = path("/other");
    bed.groups.create(&other).unwrap();
    let (mut ledger, _) = bed.open();
    bed.limit(&mut ledger, &group, Fallback::Restore);
    bed.limit(&mut ledger, &other, Fallback::Restore);
    drop(ledger);
    bed.groups.remove(&group).unwrap();
    bed.groups.create(&group).unwrap();
    bed.groups.remove(&other).unwrap();
    let (ledger, _) = bed.open();
    assert!(ledger.entries().len() == 0);
    assert!((1..=2).all(|id| ledger.moving().get(id).is_none()));

    let bed = Bed::new(FakeFs::mixed());
    let group = bed.foreign();
    let (mut ledger, _) = bed.open();
    bed.limit(&mut ledger, &group, Fallback::Restore);
    bed.fs
        .inner()
        .set_file("/proc/sys/kernel/random/boot_id", "another\n");
    let (ledger, _) = bed.open();
    assert!(ledger.entries().len() == 0);
    assert!(ledger.moving().get(1).is_none());
}

#[test]
fn a_damaged_ledger_is_set_aside_and_groups_are_found_by_name() {
    let bed = Bed::new(FakeFs::mixed());
    let group = bed.foreign();
    let (mut ledger, _) = bed.open();
    bed.limit(&mut ledger, &group, Fallback::Restore);
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
        whole.replace("\"format\":1", "\"format\":2"),
    ]);
    for text in texts {
        bed.fs.inner().set_file(&file, &text);
        let (ledger, report) = bed.open();
        assert!(ledger.entries().len() == 0);
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
    bed.groups.create(&path("/tidegate-web")).unwrap();
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

/// Another version's entries are for that version: read past, told of, and in the file for as long
/// as their groups are there.
#[test]
fn entries_of_another_version_cost_no_other_entry_and_are_kept() {
    let bed = Bed::new(FakeFs::mixed());
    let group = bed.foreign();
    let (mut ledger, _) = bed.open();
    let limit = bed.limit(&mut ledger, &group, Fallback::Restore);
    let group_id = bed.groups.id(&group).unwrap();
    let file = Path::new(RUN).join(FILE);
    let whole = bed.fs.read(&file).unwrap();
    let later = [
        format!(
            r#"{{"id":7,"gate":"web","group":"/app","group_id":{group_id},"change":{{"knob":"turbo","on":true}}}}"#
        ),
        r#"{"id":8,"gate":"gone","group":"/gone","group_id":1,"change":{"knob":"turbo"}}"#
            .to_owned(),
        r#"{"id":9,"gate":"web","group":"/../app","group_id":1}"#.to_owned(),
        "null".to_owned(),
    ];
    bed.fs.inner().set_file(
        &format!("{RUN}/{FILE}"),
        &whole.replace(
            "\"entries\":[",
            &format!("\"entries\":[{},", later.join(",")),
        ),
    );

    let (mut ledger, report) = bed.open();
    let counts = (ledger.entries().len(), ledger.unread());
    assert_eq!((counts, &report.set_aside), ((1, 3), &None));
    assert!(
        report.alerts[0].contains("entry 7 (gate web, group /app)"),
        "{:?}",
        report.alerts
    );
    assert_eq!(ledger.get(limit).map(|entry| entry.id), Some(limit));
    let entry = bed.entry(&group, Change::Group, Fallback::Stay);
    assert_eq!(ledger.record(entry), Ok(10), "numbers stay unique");

    assert_eq!(ledger.restore(&bed.groups, &[limit]).len(), 1);
    assert_eq!(bed.groups.bandwidth(&group).unwrap(), THEIRS);
    ledger.close().unwrap();
    let kept = bed.fs.read(&file).unwrap();
    assert!(kept.contains(r#""knob":"turbo","on":true"#), "{kept}");
    assert!(!kept.contains("/gone"), "{kept}");
    assert_eq!(bed.open().0.unread(), 3);
}

#[test]
fn own_groups_in_place_are_found_on_v2() {
    let bed = Bed::new(FakeFs::v2());
    bed.foreign();
    bed.fs.inner().add_process(FakeProcess::new(7));
    bed.groups.place(&path("/app"), 7).unwrap();
    bed.place_in_place(7, "tidegate-job=", &path("/unused"))
        .unwrap();
    assert_eq!(
        own_groups(&bed.groups, "tidegate").unwrap(),
        [path("/app/tidegate-job=")]
    );
}
