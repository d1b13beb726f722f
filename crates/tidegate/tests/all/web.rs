//! The page of `tidegate web`: in a real browser, and what it refuses.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::{Background, Instance, describe, or_skip, stderr, stdout};
use crate::support_prometheus::fetch;

const BURN: &[&str] = &["sh", "-c", "while :; do :; done"];

pub fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Whether the build has the page; if not, why is printed.
pub fn has_page() -> bool {
    let has_plots = top().join("web/node_modules/uplot").exists();
    if !has_plots {
        eprintln!("skipped: web: no page in this build; `make setup-build` adds it");
    }
    has_plots
}

/// Where pictures of the page are kept.
pub fn pictures() -> PathBuf {
    let folder = top().join("target/web");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// The page, and its address; `None` with the reason printed where the build has no page.
fn served(instance: &Instance) -> Option<(Background, String)> {
    let mut command = instance.tidegate(&["web", "--listen", "127.0.0.1:0"]);
    let mut child = command
        .process_group(0)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let said = child.stdout.take().unwrap();
    BufReader::new(said).read_line(&mut line).unwrap();
    if line.is_empty() {
        let output = child.wait_with_output().unwrap();
        let why = stderr(&output);
        assert!(why.contains("not in this build; run `npm ci"), "{why}");
        eprintln!("skipped: web: {}", why.trim());
        return None;
    }
    let url = line.split(' ').next().unwrap().to_owned();
    Some((Background(child), url))
}

/// The browser, where what drives it is there too.
pub fn browser() -> Option<String> {
    let script =
        "command -v node >/dev/null && { command -v chromium || command -v chromium-browser; }";
    let output = Command::new("sh").args(["-c", script]).output().unwrap();
    let path = stdout(&output).trim().to_owned();
    if path.is_empty() || !top().join("web/node_modules/playwright-core").exists() {
        eprintln!(
            "skipped: web: no chromium, node or playwright-core; `make setup-test` installs them"
        );
        return None;
    }
    Some(path)
}

#[test]
fn the_page_shows_the_agent_and_follows_the_next() {
    let instance = or_skip!(Instance::new("web"));
    let (Some(chromium), Some((_web, url))) = (browser(), served(&instance)) else {
        return;
    };
    std::fs::create_dir_all(instance.run_dir().join("tidegate.toml.d")).unwrap();
    // An address that is in use is an alert.
    let used = url.trim_start_matches("http://").trim_end_matches('/');
    let config = instance.run_dir().join("tidegate.toml");
    std::fs::write(config, format!("api_listen = \"{used}\"\n")).unwrap();
    let side = instance.background(&["--side", "--headroom", "20%", "--name", "encode"], BURN);
    let main = instance.background(&["--main", "--name", "web"], &["sleep", "60"]);
    instance.gate("encode");
    instance.gate("web");
    let rule = "[[rule]]\nname = \"nightly\"\nmatch = { cgroup = \"/nightly-*\" }\nterms = { class = \"side\", weight = 50 }\n";
    std::fs::write(
        instance.run_dir().join("tidegate.toml.d/10-nightly.toml"),
        rule,
    )
    .unwrap();
    instance.ok(&["policy", "apply", "--for", "10m"]);
    let mut script = Command::new("node")
        .arg(top().join("web/test/page.mjs"))
        .args([url.as_str(), pictures().to_str().unwrap()])
        .env("CHROMIUM", chromium)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let said = script.stdout.take().unwrap();
    BufReader::new(said).read_line(&mut line).unwrap();
    let _second = (line == "next agent\n").then(|| {
        drop((side, main));
        instance.ok(&["agent", "stop"]);
        let second = instance.background(&["--side", "--name", "second"], BURN);
        instance.gate("second");
        second
    });
    let output = script.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", describe(&output));
}

#[test]
fn the_page_is_for_this_machine_alone_and_only_reads() {
    let instance = or_skip!(Instance::new("web-refuses"));
    let (_web, url) = or_skip!(served(&instance));
    let _side = instance.background(&["--side", "--name", "encode"], BURN);
    instance.gate("encode");
    let call =
        |path: &str, options: &[&str]| fetch(&format!("{url}{path}"), &[&["-i"], options].concat());
    let page = call("", &[]);
    assert!(
        page.starts_with("HTTP/1.1 200") && page.contains("<title>Tidegate</title>"),
        "{page}"
    );
    assert!(
        page.contains("content-security-policy: default-src 'none'; script-src 'self'"),
        "{page}"
    );
    let status = call("v1/status", &[]);
    assert!(
        status.contains("\"name\":\"encode\"") && !status.contains("while :"),
        "{status}"
    );
    let stream = call("v1/stream?topics=status", &["-N", "--max-time", "1"]);
    assert!(
        stream.contains("event: status") && !stream.contains("while :"),
        "{stream}"
    );
    for (path, options, answer) in [
        ("", &["-H", "Host: evil.example"][..], "HTTP/1.1 403"),
        ("v1/status", &["-H", "Host: evil.example"], "HTTP/1.1 403"),
        ("", &["-X", "POST"], "HTTP/1.1 405"),
        ("v1/policy", &["-X", "POST"], "HTTP/1.1 405"),
        ("v1/stop", &["-X", "POST"], "HTTP/1.1 404"),
        ("v1/stop", &[], "HTTP/1.1 404"),
        ("metrics", &[], "HTTP/1.1 404"),
    ] {
        let found = call(path, options);
        assert!(found.starts_with(answer), "{path} {options:?}: {found}");
        assert!(found.contains("nosniff"), "{found}");
    }
}

#[test]
fn another_address_is_refused_with_what_helps() {
    for (address, why) in [
        ("0.0.0.0:9480", "is not an address of this machine alone"),
        ("[::]:9480", "is not an address of this machine alone"),
        ("localhost", "is no address with a port"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["web", "--listen", address])
            .output()
            .unwrap();
        let wanted = format!(
            "tidegate: web: --listen: \"{address}\" {why}; write a loopback address with a port, as in 127.0.0.1:9480\n"
        );
        assert_eq!(stderr(&output), wanted);
        assert_eq!(output.status.code(), Some(2));
    }
}
