//! A batch of the ledger: entries line by line in a second file.

use std::path::Path;

use tidegate_cgroup::testkit::{FakeFs, Fault, Rule};
use tidegate_cgroup::{KernelFs, Op};
use tidegate_engine::ledger::{Change, FILE, Fallback, Ledger};

use crate::support::{Bed, RUN, path};

const BATCH: &str = "/run/tidegate/ledger.batch";

fn record(bed: &Bed, ledger: &mut Ledger, name: &str) -> u64 {
    let group = path(name);
    bed.groups.create(&group).unwrap();
    let entry = bed.entry(&group, Change::Group, Fallback::Stay);
    ledger.record(entry).unwrap()
}

fn gates(ledger: &Ledger) -> Vec<(u64, &str)> {
    let gates = ledger.entries();
    gates.map(|entry| (entry.id, entry.gate.as_str())).collect()
}

/// How often each file was written since the log had this many lines.
fn written(bed: &Bed, since: usize) -> [usize; 2] {
    let log = bed.fs.log();
    [Op::Replace, Op::Append].map(|op| log[since..].iter().filter(|(done, _)| *done == op).count())
}

#[test]
fn each_entry_is_a_line_and_the_last_form_counts_whenever_the_agent_dies() {
    let bed = Bed::new(FakeFs::mixed());
    let (mut ledger, _) = bed.open();
    let before = record(&bed, &mut ledger, "/before");
    ledger.begin_batch().unwrap();
    let since = bed.fs.log().len();
    let first = record(&bed, &mut ledger, "/first");
    for id in [before, first] {
        ledger
            .update(id, |entry| entry.gate = "new".into())
            .unwrap();
    }
    let gone = record(&bed, &mut ledger, "/gone");
    ledger.forget(&[gone]).unwrap();
    assert_eq!(written(&bed, since), [0, 4]);

    // It dies here: what was forgotten is still in the file, which is harmless.
    let (next, _) = bed.open();
    let expected = [(before, "new"), (first, "new"), (gone, "gate")];
    assert_eq!(gates(&next), expected);
    drop(next);

    // It goes on, and its end is a whole.
    ledger.end_batch().unwrap();
    assert!(!bed.is_there(BATCH));
    let (mut next, _) = bed.open();
    assert_eq!(gates(&next), [(before, "new"), (first, "new")]);
    assert!(record(&bed, &mut next, "/later") > gone);
}

#[test]
fn a_batch_that_is_over_does_not_count() {
    let bed = Bed::new(FakeFs::mixed());
    let (mut ledger, _) = bed.open();
    ledger.begin_batch().unwrap();
    let id = record(&bed, &mut ledger, "/app");
    bed.fs
        .add(Rule::on(Op::Unlink, BATCH, Fault::Errno(libc::EIO)));
    ledger.end_batch().unwrap();
    bed.fs.clear();
    assert!(bed.is_there(BATCH));
    ledger
        .update(id, |entry| entry.gate = "new".into())
        .unwrap();
    assert_eq!(gates(&bed.open().0), [(id, "new")], "not its earlier form");
    ledger.forget(&[id]).unwrap();
    assert_eq!(gates(&bed.open().0), []);
    ledger.close().unwrap();
    assert!(!bed.is_there(BATCH));

    // Nor does one of another boot.
    let (mut ledger, _) = bed.open();
    ledger.begin_batch().unwrap();
    record(&bed, &mut ledger, "/app");
    let text = bed.fs.inner().text(BATCH);
    let text = text.replacen("\"boot_id\":\"", "\"boot_id\":\"another-", 1);
    bed.fs.inner().set_file(BATCH, &text);
    assert_eq!(gates(&bed.open().0), []);
}

/// A guardian stores what it has read while the agent is frozen; the agent goes on and dies.
#[test]
fn entries_after_anothers_store_count() {
    let bed = Bed::new(FakeFs::mixed());
    let (mut ledger, _) = bed.open();
    ledger.begin_batch().unwrap();
    let first = record(&bed, &mut ledger, "/first");
    let (mut guardian, _) = bed.open();
    guardian.update(first, |_| {}).unwrap();
    let second = record(&bed, &mut ledger, "/second");
    assert_eq!(gates(&bed.open().0), [(first, "gate"), (second, "gate")]);
}

#[test]
fn a_line_that_found_no_room_spoils_no_other() {
    let bed = Bed::new(FakeFs::mixed());
    let (mut ledger, _) = bed.open();
    ledger.begin_batch().unwrap();
    let text = bed.fs.inner().text(BATCH);
    bed.fs
        .inner()
        .set_file(BATCH, &format!("{text}\n{{\"id\":2,\"gate\":\"ga"));
    let id = record(&bed, &mut ledger, "/app");
    assert_eq!(gates(&bed.open().0), [(id, "gate")]);

    let full = Rule::on(Op::Append, BATCH, Fault::Errno(libc::ENOSPC));
    bed.fs.add(full);
    let group = path("/other");
    bed.groups.create(&group).unwrap();
    let entry = bed.entry(&group, Change::Group, Fallback::Stay);
    let error = ledger.record(entry).unwrap_err();
    assert!(error.to_string().contains("make room in /run"), "{error}");
    assert_eq!(gates(&ledger), [(id, "gate")]);
}

#[test]
fn without_room_for_a_batch_each_entry_is_stored_with_all_others() {
    let bed = Bed::new(FakeFs::mixed());
    let (mut ledger, _) = bed.open();
    bed.fs
        .add(Rule::on(Op::Replace, BATCH, Fault::Errno(libc::ENOSPC)));
    assert!(ledger.begin_batch().is_err());
    let since = bed.fs.log().len();
    let id = record(&bed, &mut ledger, "/app");
    assert_eq!(written(&bed, since), [1, 0]);
    let text = bed.fs.read(&Path::new(RUN).join(FILE)).unwrap();
    assert!(text.contains("/app"), "{text}");
    ledger.end_batch().unwrap();
    assert_eq!(gates(&bed.open().0), [(id, "gate")]);
}
