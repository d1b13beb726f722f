//! Files, layers and refusals, from outside.

use std::collections::BTreeMap;
use std::path::Path;

use proptest::prelude::*;
use tidegate_terms::{
    Class, Config, Fallback, Headroom, RawTerm, RawTerms, Roots, Sense, Setting, Source, Term,
    TimeSpan, Tolerance, Weight,
};

fn write(root: &Path, name: &str, text: &str) {
    let path = root.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn asked(words: &[&str]) -> RawTerms {
    RawTerms::from_assignments(words, &Source::RunFlag).unwrap()
}

#[test]
fn nothing_said_means_defaults() {
    let root = tempfile::tempdir().unwrap();
    let config = Config::load(&Roots::under(root.path())).unwrap();
    let settings = config.settings();
    assert_eq!(settings.default_headroom.value.ppm(), None);
    let on_whole_cores = settings.clone().on_whole_cores().default_headroom;
    assert_eq!(on_whole_cores.value.ppm(), Some(200_000));
    assert_eq!(on_whole_cores.source.to_string(), "default on whole cores");
    assert_eq!(settings.lease.value, TimeSpan::from_secs(2));
    assert_eq!(settings.sense.value, Sense::Auto);
    let terms = config.resolve(&[]).unwrap();
    assert_eq!(terms.class.value, Class::Neutral);
    assert!(terms.tolerance.is_default());
    assert_eq!(terms.tolerance.value, Tolerance::ONE_PERCENT);
    assert_eq!(terms.fallback.value, Fallback::Floor);
}

#[test]
fn the_packages_example_has_the_defaults() {
    let text = include_str!("../../../../packaging/examples/tidegate.toml");
    let example = Config::from_text(Path::new("example"), text).unwrap();
    let values = |config: &Config| {
        let terms = config.resolve(&[&asked(&["class=side"])]).unwrap();
        let views = [config.settings().views(), terms.views()].concat();
        let value = |view: tidegate_terms::View| (view.name, view.value);
        views.into_iter().map(value).collect::<Vec<_>>()
    };
    assert_eq!(values(&example), values(&Config::default()));
}

#[test]
fn a_term_under_both_of_its_names_is_refused() {
    let root = tempfile::tempdir().unwrap();
    for text in [
        "[side]\ncap = '20%'\ncap_hard = '10%'\n",
        "[[rule]]\nname = 'r'\nmatch = { exe = '/x' }\nterms = { cap = '1cpu', cap_hard = '2cpu' }\n",
    ] {
        write(root.path(), "etc/tidegate/tidegate.toml", text);
        let errors = Config::load(&Roots::under(root.path())).unwrap_err();
        let said = errors.to_string();
        assert!(said.contains("cap_hard: set twice"), "{said}");
    }
}

#[test]
fn stronger_layers_override_and_say_what() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    write(
        root,
        "usr/lib/tidegate/tidegate.toml",
        "lease = '1s'\n[side]\ntolerance = '2%'\n",
    );
    write(
        root,
        "etc/tidegate/tidegate.toml",
        "# comment\n\n[side]\n  tolerance = 0.03\n",
    );
    write(
        root,
        "etc/tidegate/tidegate.toml.d/20-b.toml",
        "[side]\nweight = 50\n",
    );
    write(
        root,
        "etc/tidegate/tidegate.toml.d/10-a.toml",
        "[side]\nweight = 40\n",
    );
    write(
        root,
        "etc/tidegate/tidegate.toml.d/notes.txt",
        "not toml at all [",
    );
    write(root, "run/tidegate/tidegate.toml", "lease = '3s'\n");
    let config = Config::load(&Roots::under(root)).unwrap();
    assert_eq!(config.settings().lease.value, TimeSpan::from_secs(3));
    let terms = config
        .resolve(&[&asked(&["class=side", "tolerance=5%"])])
        .unwrap();
    assert_eq!(terms.tolerance.value.ppm(), 50_000);
    assert_eq!(terms.tolerance.source, Source::RunFlag);
    let overrode: Vec<String> = terms
        .tolerance
        .overrode
        .iter()
        .map(ToString::to_string)
        .collect();
    let root = root.display();
    assert_eq!(
        overrode,
        [
            "1% (default)".to_owned(),
            format!("2% ({root}/usr/lib/tidegate/tidegate.toml:3:13)"),
            format!("3% ({root}/etc/tidegate/tidegate.toml:4:15)"),
        ]
    );
    // By name: 20-b comes after 10-a.
    assert_eq!(terms.weight.value, Weight::Of(50));
    // Another class does not see them.
    let main = config.resolve(&[&asked(&["class=main"])]).unwrap();
    assert_eq!(main.weight.value, Weight::Of(100));
}

#[test]
fn set_lies_over_run_flags() {
    let config = Config::default();
    let mut set = RawTerms::default();
    set.insert("headroom", "40%", Source::Set);
    let terms = config
        .resolve(&[&asked(&["class=side", "headroom=30%"]), &set])
        .unwrap();
    assert_eq!(terms.headroom.value.ppm(), Some(400_000));
    assert_eq!(terms.headroom.source, Source::Set);
    assert_eq!(terms.headroom.overrode.len(), 2);
    let view = terms
        .views()
        .into_iter()
        .find(|view| view.name == "headroom")
        .unwrap();
    assert_eq!((view.value.as_str(), view.source), ("40%", Source::Set));
}

#[test]
fn every_mistake_of_every_file_is_told_with_its_place() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    write(
        root,
        "etc/tidegate/tidegate.toml",
        "default_headroom = '20%'\nlease = '1h'\nheadroom = '3%'\nsense = true\nmain = 3\n\
         [side]\ntolerence = '2%'\nclass = 'side'\ndefault_headrom = '2%'\n[neutral]\nheadroom = '10%'\nweight = 0x10\n",
    );
    write(root, "run/tidegate/tidegate.toml", "lease = \n");
    let errors = Config::load(&Roots::under(root)).unwrap_err();
    let text = errors
        .to_string()
        .replace(&format!("{}", root.display()), "");
    for expected in [
        "default_headroom: /etc/tidegate/tidegate.toml:1:1: no such setting; put default_headroom under [side]",
        "default_headrom: /etc/tidegate/tidegate.toml:9:1: no such term; did you mean default_headroom?",
        "lease: /etc/tidegate/tidegate.toml:2:9: \"1h\" is above 1min; write a time from 1s to 1min, as in 2s",
        "headroom: /etc/tidegate/tidegate.toml:3:1: no such setting; headroom is a term of gates: put it under",
        "sense: /etc/tidegate/tidegate.toml:4:9: true (boolean) is not a value; write text in quotes, as in sense = \"auto\"",
        "main: /etc/tidegate/tidegate.toml:5:8: 3 (integer) is not a value; write text in quotes, as in [main]",
        "tolerence: /etc/tidegate/tidegate.toml:7:1: no such term; did you mean tolerance?",
        "class: /etc/tidegate/tidegate.toml:8:1: no such term; known are headroom, ",
        "headroom: /etc/tidegate/tidegate.toml:11:1: a neutral gate does not take it; make it main or side",
        "weight: /etc/tidegate/tidegate.toml:12:10: 0x10 (integer) is not a value",
        "/run/tidegate/tidegate.toml:1:9: not valid TOML: ",
    ] {
        assert!(text.contains(expected), "{expected}\nnot in:\n{text}");
    }
    assert_eq!(errors.0.len(), 11, "{text}");
}

#[test]
fn what_contradicts_itself_in_the_files_is_told_when_they_are_loaded() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    write(
        root,
        "etc/tidegate/tidegate.toml",
        "[side]\nquota = '10ms'\n",
    );
    write(
        root,
        "run/tidegate/tidegate.toml",
        "[side]\nburst = '20ms'\n",
    );
    let text = Config::load(&Roots::under(root)).unwrap_err().to_string();
    assert!(
        text.contains("run/tidegate/tidegate.toml:2:9: \"20ms\" is above the quota"),
        "{text}"
    );
}

#[test]
fn unreadable_files_and_folders_are_named() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    // A folder where a file is expected, and the other way round: refused also for root, unlike
    // mode bits.
    std::fs::create_dir_all(root.join("etc/tidegate/tidegate.toml")).unwrap();
    let text = Config::load(&Roots::under(root)).unwrap_err().to_string();
    assert!(
        text.contains("etc/tidegate/tidegate.toml: cannot be read"),
        "{text}"
    );
    std::fs::remove_dir(root.join("etc/tidegate/tidegate.toml")).unwrap();
    write(root, "etc/tidegate/tidegate.toml.d", "");
    let text = Config::load(&Roots::under(root)).unwrap_err().to_string();
    assert!(text.contains("tidegate.toml.d: cannot be read"), "{text}");
}

#[test]
fn refusals_name_input_place_and_remedy() {
    let config = Config::default();
    let refuse = |words: &[&str]| config.resolve(&[&asked(words)]).unwrap_err().to_string();
    assert_eq!(
        refuse(&["class=side", "headroom=130%"]),
        "headroom: run flag: \"130%\" is above 100%; write 0% to 100% of the machine, as in 30% or 0.3, or none"
    );
    assert!(refuse(&["class=side", "tolerance=0%"]).contains("would let side work starve; write"));
    assert!(
        config
            .resolve(&[&asked(&["class=side", "tolerance=none"])])
            .is_ok()
    );
    assert!(
        refuse(&["class=sidr"]).contains("\"sidr\" is not a class; write main, side or neutral")
    );
    assert!(refuse(&["headroom=30%"]).contains("a neutral gate does not take it"));
    assert!(refuse(&["class=side", "weight=0"]).contains("is below 1"));
    assert!(refuse(&["class=side", "fallback=hold:2h"]).contains("is above 1h"));
    for (words, message) in [
        (
            &["class=side", "burst=max"] as &[&str],
            "burst: run flag: \"max\" needs a quota; give a quota with it",
        ),
        (
            &["cap_hard=1cpu", "burst=20ms"],
            "burst: run flag: \"20ms\" needs a quota; give a quota with it",
        ),
        (
            &["quota=10ms", "burst=20ms"],
            "\"20ms\" is above the quota of 10ms a period",
        ),
        (
            &["quota=0.05cpu", "period=10ms"],
            "\"0.05cpu\" is 500 us in each 10ms; the kernel's least is 1ms",
        ),
        (&["period=50ms"], "period: run flag: \"50ms\" needs a quota"),
        (
            &["cap=100‰", "cap_soft=200‰"],
            "\"0.2cpu\" is above cap_hard (0.1cpu)",
        ),
        (
            &["cap=2000‰", "cap_scope=task"],
            "is more than a task can use",
        ),
        (&["quota=0.5"], "has no unit (did you mean 0.5cpu?)"),
        (&["quota=30"], "has no unit (did you mean 30ms?)"),
        (&["quota=20000"], "has no unit (did you mean 20000us?)"),
        (&["period=5"], "has no unit (did you mean 5ms?)"),
        (
            &["period=50000"],
            "\"50000\" has no unit; write a time from 1ms to 1s",
        ),
        (&["cap_scope=task"], "needs a cap"),
        (&["cap=0‰"], "would stop the work for good"),
        (&["latency=-21"], "is below -20; write a whole number"),
    ] {
        let text = refuse(words);
        assert!(text.contains(message), "{text}");
    }
    for taken_back in ["quota=none", "quota=max", "quota=-1"] {
        let terms = config
            .resolve(&[
                &asked(&["quota=20ms", "period=50ms", "burst=10ms"]),
                &asked(&[taken_back]),
            ])
            .unwrap();
        assert_eq!(terms.quota_us(), None, "{taken_back}");
    }
    let no_sign = RawTerms::from_assignments(&["headroom"], &Source::Set).unwrap_err();
    assert!(
        no_sign
            .to_string()
            .contains("\"headroom\": set: not of the form term=value")
    );
    let twice = RawTerms::from_assignments(&["cap=0.3cpu", "cap_hard=0.1cpu"], &Source::Set);
    assert_eq!(
        twice.unwrap_err().to_string(),
        "cap_hard: set: it is given twice; give it once"
    );
    let unknown = RawTerms::from_assignments(&["weigth=3"], &Source::Set).unwrap_err();
    assert_eq!(
        unknown.to_string(),
        "weigth: set: no such term; did you mean weight?"
    );
}

proptest! {
    #[test]
    fn no_value_panics_and_each_refusal_shows_its_input(index in any::<prop::sample::Index>(), text in "[^\\p{C}]{0,40}") {
        let raw = RawTerm { text: text.clone(), source: Source::RunFlag };
        let names = Term::ALL.iter().map(|t| t.check(&raw)).chain(Setting::ALL.iter().map(|s| s.check(&raw)));
        let results: Vec<_> = names.collect();
        if let Err(error) = &results[index.index(results.len())] {
            let shown = error.to_string();
            prop_assert!(shown.contains(&text), "{}", shown);
            prop_assert!(shown.contains("run flag") && shown.contains("; write "), "{}", shown);
        }
    }

    #[test]
    fn no_text_panics(text in any::<String>()) {
        let raw = RawTerm { text, source: Source::RunFlag };
        Term::ALL.iter().for_each(|term| drop(term.check(&raw)));
        Setting::ALL.iter().for_each(|setting| drop(setting.check(&raw)));
    }

    #[test]
    fn resolved_terms_survive_their_own_text(ppm in 1_u32..=1_000_000, weight in 1_u32..=10_000, seconds in 1_u32..=3600) {
        let share = tidegate_terms::Share::from_ppm(ppm).unwrap();
        let config = Config::default();
        let words = [
            "class=side".to_owned(), format!("headroom={share}"), format!("tolerance={share}"),
            format!("weight={weight}"), format!("fallback=hold:{seconds}s"),
        ];
        let terms = config.resolve(&[&RawTerms::from_assignments(&words, &Source::Set).unwrap()]).unwrap();
        let again: BTreeMap<String, String> =
            terms.views().into_iter().map(|view| (view.name.to_owned(), view.value)).collect();
        let reread = config.resolve(&[&RawTerms::from_map(&again, &Source::Set)]).unwrap();
        let values = |terms: &tidegate_terms::Terms| -> Vec<String> {
            terms.views().into_iter().map(|view| view.value).collect()
        };
        prop_assert_eq!(values(&terms), values(&reread));
        prop_assert_eq!(terms.headroom.value, Headroom::Of(share));
    }

    #[test]
    fn no_file_panics(text in "([a-z_]{1,16} ?= ?['\"]?[0-9a-z%.]{0,6}['\"]?\n|\\[[a-z]{1,8}\\]\n|\\PC{0,12}\n){0,6}") {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "run/tidegate/tidegate.toml", &text);
        if let Ok(config) = Config::load(&Roots::under(root.path())) {
            let _ = config.settings();
            let _ = config.resolve(&[&asked(&["class=side"])]);
        }
    }
}

/// The files that are shipped: each is read without a mistake, and the schema is what the table
/// says.
#[test]
fn what_is_shipped_agrees_with_what_is_read() {
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    let example = std::fs::read_to_string(packaging.join("examples/policy.toml")).unwrap();
    let config = Config::from_text(Path::new("policy.toml"), &example).unwrap();
    assert_eq!(config.rules().len(), 4);
    let shipped = std::fs::read_to_string(packaging.join("tidegate.schema.json")).unwrap();
    let made = serde_json::to_string_pretty(&tidegate_terms::schema::of_files()).unwrap() + "\n";
    assert_eq!(
        shipped, made,
        "run: tidegate policy check --schema > packaging/tidegate.schema.json"
    );
}

const RULE: &str = r#"
[[rule]]
name = "backups"
match = { unit = "backup-*" }
mode = "observe"
terms = { class = "side", weight = 50 }
"#;

#[test]
fn a_later_file_changes_single_terms_of_a_rule_and_a_name_or_a_link_masks() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    write(root, "usr/lib/tidegate/tidegate.toml.d/10-a.toml", RULE);
    let later = "[[rule]]\nname = 'backups'\nmode = 'enforce'\nterms = { weight = 70 }\n";
    write(root, "etc/tidegate/tidegate.toml.d/20-b.toml", later);
    let load = || Config::load(&Roots::under(root)).unwrap();
    let config = load();
    let rule = &config.rules()[0];
    assert_eq!(rule.mode.name(), "enforce");
    assert!(rule.matches.allows_group("/system.slice/backup-7.service"));
    for other in [
        "/system.slice/backup-7",
        "/user.slice/user@1.service/backup-7.service",
        "/docker/backup-7.service",
    ] {
        assert!(!rule.matches.allows_group(other), "{other}");
    }
    let layers: Vec<&RawTerms> = rule.terms.iter().collect();
    let terms = config.resolve(&layers).unwrap();
    assert_eq!(terms.weight.value, Weight::Of(70));
    let overrode = &terms.weight.overrode;
    assert!(overrode[1].source.to_string().ends_with("10-a.toml:6:36"));
    // The same name in a stronger root.
    write(root, "run/tidegate/tidegate.toml.d/20-b.toml", "");
    assert_eq!(load().rules()[0].mode.name(), "observe");
    let link = root.join("etc/tidegate/tidegate.toml.d/10-a.toml");
    std::os::unix::fs::symlink("/dev/null", link).unwrap();
    assert_eq!(load().rules().len(), 0);
}

#[test]
fn every_mistake_in_rules_is_told_with_its_place() {
    let text = r#"version = 2
[[rule]]
name = "a b"
match = { unit = "x", pid = 3 }
[[rule]]
name = "c"
match = { cgroup = "batch", exe = [], user = "" }
mode = "watch"
terms = { class = "side", objective = "p99<5ms", wieght = 3 }
[[rule]]
name = "d"
match = { unit = "[" }
terms = { class = "main", weight = 50 }
"#;
    let errors = Config::from_text(Path::new("p.toml"), text).unwrap_err();
    let said = errors.to_string();
    for part in [
        "version: p.toml:1:11: this program reads files of version 1, not 2",
        "name: p.toml:3:8: \"a b\" is no name",
        "pid: p.toml:4:23: no such key of match",
        "cgroup: p.toml:7:20: \"batch\" matches no path",
        "exe: p.toml:7:35: [] matches nothing",
        "user: p.toml:7:46: \"\" matches nothing",
        "mode: p.toml:8:8: \"watch\" is no mode",
        "wieght: p.toml:9:50: no such term; did you mean weight?",
        "unit: p.toml:12:18: \"[\"",
    ] {
        assert!(said.contains(part), "{part}\n{said}");
    }
    for (text, part) in [
        (
            "exe = '*/claude'",
            "exe: p.toml:3:17: \"*/claude\" matches no path; begin it with a slash or **/",
        ),
        (
            "exe = '/x', user = '*'",
            "user: p.toml:3:30: \"*\" is a pattern, and a user is a name or a number",
        ),
    ] {
        let text = format!("[[rule]]\nname = 'r'\nmatch = {{ {text} }}\n");
        let said = Config::from_text(Path::new("p.toml"), &text)
            .unwrap_err()
            .to_string();
        assert!(said.contains(part), "{part}\n{said}");
    }
    let alone = |rule: &str| {
        let text = format!("[[rule]]\nname = 'r'\n{rule}\n");
        Config::from_text(Path::new("p.toml"), &text)
            .unwrap_err()
            .to_string()
    };
    assert!(alone("terms = { weight = 50 }").contains("r: p.toml:1:1: it matches nothing"));
    assert!(alone("match = { unit = 'x' }").contains("it has no terms"));
    let wrong = alone("match = { unit = 'x' }\nterms = { objective = 'p99<5ms' }");
    assert!(wrong.contains("a neutral gate does not take it"), "{wrong}");
    let anyone = alone("match = { exe = '/usr/bin/x' }\nterms = { class = 'main' }");
    assert!(anyone.contains("every user may run that file"), "{anyone}");
    let all = alone("mode = 'watch'\nmatch = {}\nterms = { weight = 'x' }\n[[rule]]\nname = 'r'");
    for part in [
        "watch",
        "weight",
        "r: p.toml:1:1: it matches nothing",
        "p.toml:6:1: this file has a rule of this name already",
    ] {
        assert!(all.contains(part), "{part}\n{all}");
    }
    let anyone = alone("match = { exe = '/x' }\nterms = { class = 'main', weight = 'x' }");
    assert!(anyone.contains("every user may run that file"), "{anyone}");
    let unread = alone("match = { exe = 'x' }\nterms = { class = 'x' }");
    assert_eq!(unread.lines().count(), 2, "{unread}");
    let named = "[[rule]]\nname='r'\nmatch={exe='/x', user='postgres'}\nterms={class='main'}\n";
    let config = Config::from_text(Path::new("p.toml"), named).unwrap();
    assert_eq!(config.rules().len(), 1);
    let twice = "[[rule]]\nname='r'\nmatch={unit='x'}\nterms={weight=3}\n".repeat(2);
    let twice = Config::from_text(Path::new("p.toml"), &twice).unwrap_err();
    assert!(
        twice
            .to_string()
            .contains("p.toml:5:1: this file has a rule of this name already")
    );
}
