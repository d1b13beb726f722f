//! `tidegate-lab --on vm` end to end: a stock kernel boots, the experiment runs in it, and the
//! report comes back under the guest's name with every arm measured. Skipped, with its reason,
//! where the emulator or a kernel is missing.

use serde_json::Value;

use crate::support::lab;

/// `Refused`: this machine lacks something.
const LACKS: i32 = 4;

#[test]
#[ignore = "minutes of emulation: make soak"]
fn an_experiment_in_the_vm_comes_back_whole() {
    let dir = tempfile::tempdir().expect("a folder");
    let words = "caps --on vm --quick --quiet --json --out .";
    let ran = lab(dir.path(), words);
    if ran.code == Some(LACKS) {
        return println!("skipped: {}", ran.err);
    }
    let report = ran.json();
    assert_eq!(
        (&report["on"], &report["machine"]["cpus"]),
        (&"vm".into(), &1.into())
    );
    let rows = report["rows"].as_array().expect("rows");
    let of = |arm: &str| -> Vec<&Value> { rows.iter().filter(|row| row["arm"] == arm).collect() };
    for arm in ["tidegate", "cpu_max", "cpu_idle"] {
        assert!(!of(arm).is_empty(), "{arm} in {report:#}");
    }
    // Virtual time: a hog under a cap uses that, whatever this machine does.
    let is_capped_hog = |row: &&&Value| row["load"] == "hog" && row["cap_cpus"] == 0.5;
    let ours = of("tidegate");
    let hog = ours.iter().find(is_capped_hog).expect("a hog");
    let used = hog["used_cpus"].as_f64().expect("a number");
    assert!((0.49..0.51).contains(&used), "{hog}");
    let page = std::fs::read_to_string(dir.path().join("caps-vm-6.18.html")).expect("a page");
    assert!(page.contains("<svg") && page.contains("virtual time"));
}
