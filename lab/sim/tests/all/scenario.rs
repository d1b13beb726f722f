//! Scenario files: those that are shipped are right, mistakes are told with their line and their
//! remedy, and no text panics.

use std::fmt::Write;
use std::path::Path;

use proptest::prelude::*;
use tidegate_sim::plan::Plan;
use tidegate_sim::scenario::{BUILTIN, Override, Scenario, Text};

use super::support::{scenario, text};

#[test]
fn shipped_scenarios_are_right_and_say_what_they_show() {
    for builtin in BUILTIN {
        let text = Text::load(builtin.name).unwrap();
        let scenario = scenario(&text, &[]);
        assert!(!scenario.about.is_empty(), "{}", builtin.name);
        assert_eq!(scenario.name, builtin.name);
    }
}

#[test]
fn every_file_in_scenarios_is_shipped() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if let Some(stem) = name.strip_suffix(".toml") {
            assert!(BUILTIN.iter().any(|builtin| builtin.name == stem), "{name}");
        }
    }
}

/// The golden file has a scenario a line, in statements between `; `, and what is said of it below.
/// One without a workload gets a hog.
#[test]
fn mistakes_are_reported_with_their_remedies() {
    let golden = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/golden/scenario-mistakes.golden"
    );
    let expected = std::fs::read_to_string(golden).unwrap();
    let mut said = String::new();
    for case in expected.split("\n\n") {
        let case = case.lines().next().unwrap_or_default();
        let (flags, mut toml): (Vec<&str>, Vec<&str>) = case
            .split("; ")
            .partition(|statement| statement.starts_with("--set "));
        if !toml
            .iter()
            .any(|statement| statement.starts_with("workload"))
        {
            toml.push("workload.a.kind = \"hog\"");
        }
        let flags = flags.iter().map(|flag| &flag["--set ".len()..]);
        let flags = flags.map(|flag| Override::from_assignment(flag).unwrap());
        let text = text(&toml.join("\n"));
        let read = Scenario::resolve(&text, &flags.collect::<Vec<_>>());
        let error = read.map(drop).expect_err(case);
        writeln!(said, "{case}\n{error}\n").unwrap();
    }
    said.truncate(said.trim_end().len() + 1);
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        std::fs::write(golden, &said).unwrap();
    }
    assert!(
        said == expected,
        "what is said has changed: TIDEGATE_BLESS=1 rewrites the file"
    );
}

#[test]
fn flags_lie_over_the_file() {
    let text = Text::load("web-server-and-encoder").unwrap();
    let sets = [
        ("machine.cpus", "4"),
        ("seed", "9"),
        ("group.web.weight", "300"),
        ("seed", "10"),
    ];
    let scenario = scenario(&text, &sets);
    assert_eq!(scenario.machine.topology.cpus(), 4);
    assert_eq!(scenario.machine.seed, 10);
    assert_eq!(scenario.groups[0].spec.weight, 300);
}

/// `tidegate run --side --headroom 30%` asks for the machine's headroom, and so does a side group
/// of a scenario.
#[test]
fn headroom_counts_whichever_group_says_it() {
    let terms = |web: &str, encode: &str, engine: &str| {
        let text = text(&format!(
            "[engine]\nname = \"cgroup\"\n{engine}\n[group.web]\nclass = \"main\"\n{web}\n\
             [group.encode]\nclass = \"side\"\n{encode}\n[workload.a]\nkind = \"hog\"\n"
        ));
        let demand = Plan::new(&scenario(&text, &[])).compiled.demand;
        (demand.headroom_ppm, demand.tolerance_ppm)
    };
    assert_eq!(terms("", "", ""), (0, 10_000));
    assert_eq!(terms("", "headroom = \"30%\"", ""), (300_000, 10_000));
    let (ten, thirty) = ("headroom = \"10%\"", "headroom = \"30%\"");
    assert_eq!(terms(ten, thirty, ""), (300_000, 10_000));
    assert_eq!(terms(thirty, ten, ""), (300_000, 10_000));
    assert_eq!(terms(thirty, thirty, ten), (100_000, 10_000));
    assert_eq!(terms("headroom = \"0%\"", "", ""), (0, 10_000));
    assert_eq!(terms("", "tolerance = \"3%\"", ""), (0, 30_000));
    assert_eq!(terms("", "tolerance = \"none\"", ""), (0, 0));
    assert_eq!(
        terms("tolerance = \"2%\"", "tolerance = \"3%\"", ""),
        (0, 20_000)
    );
}

/// Pieces of scenarios, so that random texts get past the TOML parser.
fn piece() -> impl Strategy<Value = String> {
    let names = "machine|engine|group|workload|group\\.a|workload\\.w|group\\.b|x";
    let keys = "cpus|kind|group|parent|weight|quota|period|burst|rate|load|work|arrivals|points|busy|tasks|\
                repeat|interval|cap_hard|seed|duration|warmup|window|contention|class|low|high";
    let values = "0|1|-1|16|99999999999|\"idle\"|\"1ms\"|\"0s\"|\"24h\"|\"500/s\"|\"0\\.001/s\"|\"9999999/ms\"|\"20%\"|\"100%\"|\
                  \"cpus\"|\"2\\*cpus\"|\"cpus/0\"|\"auto\"|true|\\[\\]|\\[\\[\"0s\",\"0%\"\\]\\]|\\[1\\]|\"a\"|\"b\"|\"poisson\"|\
                  \"curve\"|\"open-loop\"|\"hog\"|\"frames\"|\
                  \"cyclictest\"|\"closed-loop\"|\"0-3\"|\"4294967295\"|1e300";
    prop_oneof![
        2 => names.prop_map(|name| format!("[{name}]\n")),
        6 => (keys, values).prop_map(|(key, value)| format!("{key} = {value}\n")),
        1 => any::<String>(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn no_text_panics(pieces in prop::collection::vec(piece(), 0..24), sets in prop::collection::vec("[a-z.]{0,20}=[a-z0-9%*/]{0,8}", 0..3)) {
        let overrides: Vec<Override> = sets.iter().filter_map(|set| Override::from_assignment(set).ok()).collect();
        if let Err(error) = Scenario::resolve(&text(&pieces.concat()), &overrides) {
            prop_assert!(!error.why.is_empty());
        }
    }
}

/// A soft cap alone once came with a hard one of 1024 CPUs, and under the engine on kernel files
/// with a quota of as much.
#[test]
fn a_cap_that_is_not_said_is_none() {
    let text = text(
        "[engine]\nname = \"cgroup\"\n[group.a]\ncap_soft = \"200m\"\n[workload.w]\nkind = \"hog\"\n",
    );
    let scenario = scenario(&text, &[]);
    let plan = Plan::new(&scenario);
    assert!(plan.specs.iter().all(|spec| spec.bandwidth.is_none()));
}
