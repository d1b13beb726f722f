//! What parses text that others write: files of the kernel's, terms, units and targets; requests,
//! the configuration, and what an earlier agent left. Each target takes any bytes, must not panic,
//! and checks what can be said of every answer: what was read is written and read again to the
//! same.
//!
//! `fuzz_targets` and `corpus` have cargo-fuzz's layout, and an ordinary test replays the corpus.

mod agent;
mod ledger;

pub use agent::{config, gates, lease, requests};
pub use ledger::ledger;

use std::collections::BTreeMap;

use tidegate_cgroup::bandwidth::Bandwidth;
use tidegate_cgroup::cpus::parse_list;
use tidegate_cgroup::discover::{discover, parse_mountinfo, parse_proc_cgroup};
use tidegate_cgroup::group::GroupPath;
use tidegate_cgroup::target::{GateName, ProcessRef, Target, stat_field};
use tidegate_cgroup::testkit::FakeFs;
use tidegate_terms::{Config, CpuAmount, RawTerms, Share, Source, TimeSpan};

/// One thing to fuzz.
pub type Fuzz = fn(&[u8]);

/// Every target, by name.
pub const TARGETS: [(&str, Fuzz); 9] = [
    ("kernel_files", kernel_files),
    ("terms", terms),
    ("units", units),
    ("targets", targets),
    ("requests", requests),
    ("gates", gates),
    ("lease", lease),
    ("config", config),
    ("ledger", ledger),
];

/// Text as the agent reads a file: bytes that are no UTF-8 become U+FFFD.
fn text(data: &[u8]) -> String {
    String::from_utf8_lossy(data).into_owned()
}

/// The first byte chooses the file, the rest is what stands in it.
pub fn kernel_files(data: &[u8]) {
    let Some((choice, rest)) = data.split_first() else {
        return;
    };
    let text = text(rest);
    match choice % 8 {
        0 => {
            if let Ok(limit) = Bandwidth::parse_max(&text) {
                assert!(
                    limit.quota_us.is_none_or(|quota| quota > 0)
                        || limit.period_us == 0
                        || !text.is_empty()
                );
            }
        }
        1 => {
            let _ = Bandwidth::parse_v1_quota(&text);
            let _ = Bandwidth::parse_us(&text);
        }
        2 => {
            if let Ok(cpus) = parse_list(&text) {
                assert!(
                    cpus.windows(2).all(|pair| pair[0] < pair[1]),
                    "sorted, each once"
                );
            }
        }
        3 => drop(parse_mountinfo("mountinfo", &text)),
        4 => {
            for line in parse_proc_cgroup("cgroup", &text).into_iter().flatten() {
                let _ = format!("{line:?}");
            }
        }
        5 => {
            for field in 0..60 {
                let _ = stat_field(&text, field);
            }
        }
        6 => machine("/proc/self/mountinfo", &text),
        _ => machine("/proc/self/cgroup", &text),
    }
}

/// A whole machine on which one file is this.
fn machine(file: &str, text: &str) {
    let fs = FakeFs::v2();
    fs.set_file(file, text);
    fs.set_file("/proc/1/stat", text);
    fs.set_file("/proc/1/status", text);
    let _ = discover(&fs, None);
    let _ = ProcessRef::look_up(&fs, 1);
}

/// `name=value` lines, as `set`, files and annotations have them.
pub fn terms(data: &[u8]) {
    let text = text(data);
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    let map: BTreeMap<String, String> = pairs
        .map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()))
        .collect();
    let raw = RawTerms::from_map(&map, &Source::Set);
    if raw.check().is_err() {
        return;
    }
    let config = Config::default();
    let Ok(resolved) = config.resolve(&[&raw]) else {
        return;
    };
    // What is shown can be typed again, and means the same.
    let again = RawTerms::from_map(&raw.to_map(), &Source::Set);
    let twice = config.resolve(&[&again]);
    assert!(twice.is_ok_and(|twice| twice.views() == resolved.views()));
}

/// A share, a span of time, an amount of CPU: what is shown reads as the same again.
pub fn units(data: &[u8]) {
    let text = text(data);
    if let Ok(share) = Share::parse(&text) {
        assert_eq!(
            Share::parse(&share.to_string()).ok(),
            Some(share),
            "{text:?}"
        );
    }
    if let Ok(span) = TimeSpan::parse(&text) {
        assert_eq!(
            TimeSpan::parse(&span.to_string()).ok(),
            Some(span),
            "{text:?}"
        );
    }
    if let Ok(amount) = CpuAmount::parse(&text) {
        let shown = amount.to_string();
        assert_eq!(CpuAmount::parse(&shown).ok(), Some(amount), "{text:?}");
    }
}

/// Targets, names of gates and paths of groups: none leads out of the tree.
pub fn targets(data: &[u8]) {
    let text = text(data);
    if let Ok(target) = Target::parse(&text) {
        let again = Target::parse(&target.to_string());
        assert!(again.is_ok_and(|again| again == target), "{text:?}");
    }
    if let Ok(group) = GroupPath::parse(&text) {
        let path = group.as_str();
        assert!(
            path.starts_with('/') && !path.contains(['\n', '\0']),
            "{text:?}"
        );
        assert!(
            path.split('/').all(|name| name != ".." && name != "."),
            "{text:?}"
        );
    }
    if let Ok(name) = GateName::parse(&text) {
        assert!(!name.as_str().contains(['/', '\n', '\0']) && !name.as_str().starts_with('.'));
    }
    let made = GateName::from_command(&text, u32::from(data.first().copied().unwrap_or(2)));
    assert!(GateName::parse(made.as_str()).is_ok(), "{text:?}: {made}");
}
