//! docs/scenarios.md mentions every key, workload, policy and letter.

use tidegate_sim::{registry, scenario};

#[test]
fn every_key_is_explained() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/scenarios.md");
    let docs = std::fs::read_to_string(path).unwrap();
    let mut section = String::new();
    let mut sections: Vec<(String, String)> = Vec::new();
    for line in docs.lines() {
        if let Some(title) = line.strip_prefix("## ").or(line.strip_prefix("### ")) {
            section = title.to_owned();
            sections.push((section.clone(), String::new()));
        } else if let Some((_, text)) = sections.last_mut() {
            text.push_str(line);
            text.push('\n');
        }
    }
    let text_of = |what: &str| {
        let found = sections.iter().filter(|(title, _)| title.contains(what));
        found.map(|(_, text)| text.as_str()).collect::<String>()
    };
    let common = text_of("[workload.NAME]");
    for (table, key) in scenario::keys() {
        let title = match table {
            "" if matches!(
                key,
                "machine" | "scheduler" | "engine" | "group" | "workload"
            ) =>
            {
                continue;
            }
            "" => "The top of the file".to_owned(),
            "machine" | "scheduler" | "engine" => format!("`[{table}]`"),
            "group" | "workload" => format!("`[{table}.NAME]`"),
            kind => format!("`kind = \"{kind}\"`"),
        };
        let text = text_of(&title);
        assert!(!text.is_empty(), "no section {title}");
        let mention = format!("`{key}`");
        assert!(
            text.contains(&mention) || common.contains(&mention),
            "{title} does not mention {mention}"
        );
    }
    assert!(!section.is_empty());
}

#[test]
fn policies_have_names_and_words() {
    for policy in registry::policies() {
        assert!(!policy.about.is_empty(), "{}", policy.name);
        assert!(registry::policy(policy.name).is_some());
    }
}
