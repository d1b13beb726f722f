//! `tidegate-lab --on vm` end to end: a stock kernel boots, the experiment runs in it, and the
//! report comes back under the guest's name with every arm measured. Skipped, with its reason,
//! where the emulator or a kernel is missing.

use std::path::Path;

use serde_json::Value;

use crate::support::lab;

/// `Refused`: this machine lacks something.
const LACKS: i32 = 4;

/// Runs `tidegate-lab` in the VM; nothing where that cannot be had, with the reason printed.
fn in_the_vm(words: &str, folder: &Path) -> Option<Value> {
    let how = format!("--on vm --quick --quiet --json --out {}", folder.display());
    let ran = lab(Path::new("."), &format!("{words} {how}"));
    if ran.code == Some(LACKS) {
        println!("skipped: {}", ran.err);
        return None;
    }
    let report = ran.json();
    assert_eq!(
        (&report["on"], &report["machine"]["cpus"]),
        (&"vm".into(), &1.into())
    );
    Some(report)
}

/// The rows in which `field` is this.
fn rows<'a>(report: &'a Value, field: &str, value: &str) -> Vec<&'a Value> {
    let all = report["rows"].as_array().expect("rows");
    all.iter().filter(|r| r[field] == value).collect()
}

/// The kernel's own scheduler, the cgroup engine and the sched_ext engine in one boot.
#[test]
fn an_experiment_in_the_vm_comes_back_whole() {
    let dir = tempfile::tempdir().expect("a folder");
    let Some(report) = in_the_vm("burst --engine sched_ext", dir.path()) else {
        return;
    };
    assert_eq!(report["engine"], "sched_ext");
    for arm in [
        "no_limit",
        "quota",
        "burst_fixed",
        "tidegate_max",
        "sched_ext_no_limit",
        "sched_ext_quota",
        "sched_ext_burst_fixed",
    ] {
        assert_eq!(rows(&report, "arm", arm).len(), 1, "{arm} in {report:#}");
    }
    // Virtual time: a load of 71.4 % of its quota uses that, whatever this machine does.
    for arm in ["quota", "sched_ext_quota"] {
        let row = rows(&report, "arm", arm)[0];
        let used = row["used_of_quota_ratio"].as_f64().expect("a number");
        assert!((0.55..0.9).contains(&used), "{row}");
        // Four seconds of periods of 100 ms.
        let periods = row["periods"].as_f64().expect("a number");
        assert!((25.0..=55.0).contains(&periods), "{row}");
    }
    let page =
        std::fs::read_to_string(dir.path().join("burst-sched-ext-vm-6.18.html")).expect("a page");
    assert!(
        page.contains("<svg") && page.contains("virtual time") && page.contains("sched_ext engine")
    );
}

#[test]
fn an_engine_that_cannot_be_had_is_refused_with_its_reason() {
    let refused = |words: &str| {
        let ran = lab(
            &std::env::temp_dir(),
            &format!("{words} --engine sched_ext --quiet"),
        );
        (ran.code, ran.err)
    };
    let (code, why) = refused("law --on sim");
    assert_eq!(code, Some(2), "{why}");
    assert!(why.contains("law does not run there"), "{why}");
    if !Path::new("/sys/kernel/sched_ext").exists() {
        let (code, why) = refused("law --on host");
        assert_eq!(code, Some(LACKS), "{why}");
        assert!(
            why.contains("no sched_ext") && why.contains("--on vm"),
            "{why}"
        );
    }
}
