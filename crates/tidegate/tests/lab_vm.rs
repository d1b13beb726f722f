//! `tidegate lab --on vm` end to end: a stock kernel boots, the experiment runs in it, and the report comes back under the
//! guest's name with every arm measured. Skipped, with its reason, where the emulator or a kernel is missing.

use std::process::Command;

use serde_json::Value;

/// `Refused`: this machine lacks something.
const LACKS: i32 = 4;

#[test]
fn an_experiment_in_the_bed_comes_back_whole() {
    let dir = tempfile::tempdir().expect("a folder");
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args([
            "lab", "burst", "--on", "vm", "--quick", "--quiet", "--json", "--out",
        ])
        .arg(dir.path())
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(LACKS) {
        println!("skipped: {said}");
        return;
    }
    assert!(output.status.success(), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        (&report["on"], &report["machine"]["cpus"]),
        (&"vm".into(), &1.into())
    );
    let arms: Vec<&str> = report["rows"]
        .as_array()
        .expect("rows")
        .iter()
        .filter_map(|r| r["arm"].as_str())
        .collect();
    for arm in [
        "no_limit",
        "quota",
        "burst_fixed",
        "koordlet",
        "tidegate_auto",
    ] {
        assert!(
            arms.contains(&arm),
            "{arm} is missing from {arms:?}: {said}"
        );
    }
    // Virtual time: a load of 71.4 % of its quota uses that, whatever this machine does.
    let row = &report["rows"][arms.iter().position(|a| *a == "quota").expect("as above")];
    let used = row["used_pct_of_quota"].as_f64().expect("a number");
    assert!((55.0..90.0).contains(&used), "{row}");
    let page = std::fs::read_to_string(dir.path().join("burst-vm-6.18.html")).expect("a page");
    assert!(page.contains("<svg") && page.contains("virtual time"));
}
