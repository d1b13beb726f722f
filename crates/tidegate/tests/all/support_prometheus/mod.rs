//! A Prometheus of a test's own, from the package that `make setup-test` unpacks, and the files
//! that Tidegate ships for it.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::common::Background;

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// One of the package's programs, or `None` with the reason printed.
pub fn program(test: &str, name: &str) -> Option<PathBuf> {
    let path = top().join(".cache/prometheus/usr/bin").join(name);
    if path.exists() {
        return Some(path);
    }
    eprintln!("skipped: {test}: no Prometheus here; `make setup-test` unpacks Debian's package");
    None
}

/// A file that is shipped.
pub fn packaging(name: &str) -> PathBuf {
    top().join("packaging").join(name)
}

/// A port that was free a moment ago.
pub fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// What curl, with these options, gets of the address.
pub fn fetch(url: &str, options: &[&str]) -> String {
    let mut command = Command::new("curl");
    command.args(["-s", "--max-time", "5", url]).args(options);
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

/// One that scrapes `target` and evaluates the shipped rules each second.
pub struct Prometheus {
    port: u16,
    _running: Background,
}

impl Prometheus {
    pub fn start(program: &Path, dir: &Path, target: &str) -> Prometheus {
        let rules = std::fs::read_to_string(packaging("prometheus/tidegate.rules.yml")).unwrap();
        // An alert fires at once: how long each waits is for promtool's cases.
        let impatient = rules.lines().map(|line| {
            let is_wait = line.trim_start().starts_with("for: ");
            if is_wait { "        for: 0s" } else { line }
        });
        let impatient: Vec<&str> = impatient.collect();
        std::fs::write(dir.join("rules.yml"), impatient.join("\n") + "\n").unwrap();
        let config = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [rules.yml]\n\
             scrape_configs: [{{job_name: tidegate, static_configs: [{{targets: [\"{target}\"]}}]}}]\n"
        );
        std::fs::write(dir.join("prometheus.yml"), config).unwrap();
        let port = free_port();
        let words = [
            program.display().to_string(),
            format!("--config.file={}", dir.join("prometheus.yml").display()),
            format!("--storage.tsdb.path={}", dir.join("data").display()),
            format!("--web.listen-address=127.0.0.1:{port}"),
            "--log.level=error".to_owned(),
        ];
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        Prometheus {
            port,
            _running: Background::start(&words),
        }
    }

    fn get(&self, path: &str) -> Option<Value> {
        let url = format!("http://127.0.0.1:{}/api/v1/{path}", self.port);
        serde_json::from_str(&fetch(&url, &[])).ok()
    }

    /// The answer to an instant query, whatever it is.
    pub fn answer(&self, expression: &str) -> Value {
        let encoded: String = expression
            .bytes()
            .map(|byte| format!("%{byte:02x}"))
            .collect();
        self.get(&format!("query?query={encoded}"))
            .unwrap_or_default()
    }

    /// The value of an instant query, where it has exactly one.
    pub fn value(&self, expression: &str) -> Option<f64> {
        let answer = self.answer(expression);
        match answer["data"]["result"].as_array()?.as_slice() {
            [one] => one["value"][1].as_str()?.parse().ok(),
            _ => None,
        }
    }

    pub fn firing(&self) -> Vec<String> {
        let answer = self.get("alerts").unwrap_or_default();
        let alerts = answer["data"]["alerts"].as_array().cloned();
        let firing = alerts.unwrap_or_default().into_iter();
        let firing = firing.filter(|alert| alert["state"] == "firing");
        firing
            .filter_map(|alert| Some(alert["labels"]["alertname"].as_str()?.to_owned()))
            .collect()
    }
}

/// The queries of the shipped dashboard, by panel, with every instance, gate and class chosen.
pub fn dashboard_queries() -> Vec<(String, String)> {
    let text = std::fs::read_to_string(packaging("grafana/tidegate.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let title = panel["title"].as_str().unwrap();
        for target in panel["targets"].as_array().into_iter().flatten() {
            let mut query = target["expr"].as_str().unwrap().to_owned();
            for variable in ["$instance", "$gate", "$class"] {
                query = query.replace(variable, ".*");
            }
            query = query.replace("$__rate_interval", "10s");
            assert!(!query.contains('$'), "{title}: {query}: unknown variable");
            queries.push((title.to_owned(), query));
        }
    }
    queries
}
