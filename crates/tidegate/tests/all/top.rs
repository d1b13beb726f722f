//! `tidegate top` in a real terminal: what it shows, what its keys do, and that it survives its
//! agent.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::{Instance, OtherGroup, ends_with, or_skip, stdout, wait_for};

/// A terminal of 80 by 24 characters in which a shell runs.
struct Terminal {
    socket: PathBuf,
}

impl Terminal {
    /// None, with the reason printed, where there is no tmux.
    fn open(instance: &Instance) -> Option<Self> {
        let terminal = Self {
            socket: instance.path().join("tmux"),
        };
        let mut tmux = instance.on(Command::new("tmux"));
        tmux.env("LC_ALL", "C.UTF-8")
            .arg("-S")
            .arg(&terminal.socket);
        tmux.args("-f /dev/null new-session -d -x 80 -y 24 sh".split(' '));
        match tmux.status() {
            Ok(status) if status.success() => Some(terminal),
            found => {
                eprintln!("skipped: top in a terminal: tmux: {found:?}");
                None
            }
        }
    }

    fn tmux(&self, words: &[&str]) -> String {
        let mut tmux = Command::new("tmux");
        let output = tmux.arg("-S").arg(&self.socket).args(words).output();
        stdout(&output.unwrap())
    }

    fn keys(&self, keys: &[&str]) {
        let mut words = vec!["send-keys"];
        words.extend(keys);
        self.tmux(&words);
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    fn shows(&self, text: &str) {
        wait_for(&format!("\"{text}\" on the screen"), || {
            self.screen().contains(text)
        });
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the screen ---\n{}---", self.screen());
        }
        self.tmux(&["kill-server"]);
    }
}

#[test]
fn top_is_used_in_a_terminal() {
    let instance = or_skip!(Instance::new("top"));
    let hog = ["sh", "-c", "while :; do :; done"];
    let _side = instance.background(&["--side", "--name", "encode"], &hog);
    let _other = instance.background(&["--cap", "100‰", "--name", "capped"], &hog);
    instance.gate("encode");
    instance.gate("capped");
    let other = OtherGroup::of_side(&instance);
    let terminal = or_skip!(Terminal::open(&instance));
    let top = format!("{} top; echo ended with $?", instance.binary().display());
    terminal.keys(&[&top, "Enter"]);
    for text in ["GATE", "encode", "capped", "0.10 cap ", "explain"] {
        terminal.shows(text);
    }
    // Every second; the plot has its first points.
    terminal.shows("now");

    terminal.keys(&["/capped", "Enter"]);
    wait_for("the filter", || !terminal.screen().contains("encode"));
    terminal.keys(&["Down", "Enter"]);
    terminal.shows("Arithmetic:");
    terminal.keys(&["q", "="]);
    terminal.keys(&["cap_hard=50‰", "Enter"]);
    terminal.shows("gate capped has its terms");
    let capped = instance.gate("capped");
    assert_eq!(capped["own_limit"]["cpus"], 0.05, "{capped}");
    // A gate of `run` ends with its command, and the whole answer is seen.
    terminal.keys(&["u", "y"]);
    terminal.shows("ends with its command");
    terminal.shows("terms to take back");
    // Escape and a key that comes at once are one key to a terminal.
    terminal.keys(&["Escape"]);
    terminal.shows("encode");
    terminal.keys(&["/other-", "Enter"]);
    terminal.shows(&other.name[..20]);
    terminal.keys(&["Down", "u", "y"]);
    terminal.shows("no gate contains \"other-\"");
    terminal.keys(&["Escape"]);
    terminal.shows("encode");
    terminal.keys(&["e"]);
    terminal.shows("gate.ended");
    terminal.keys(&["q"]);

    instance.ok(&["agent", "stop"]);
    terminal.shows("agent gone");
    let _next = instance.background(&["--side", "--name", "after"], &["sleep", "100"]);
    terminal.shows("after");
    wait_for("the next agent", || {
        !terminal.screen().contains("agent gone")
    });

    terminal.keys(&["q"]);
    terminal.shows("ended with 0");
    // The terminal is a shell's again.
    terminal.keys(&["stty -a | grep -o ' icanon'; echo it echoes", "Enter"]);
    terminal.shows("\n icanon");
}

/// Starts top in a terminal; its process.
fn in_terminal(instance: &Instance, terminal: &Terminal) -> String {
    let binary = instance.binary().display();
    let pid = instance.path().join("pid");
    let top = format!(
        "sh -c 'echo $$ >{}; exec {binary} top'; echo ended with $?; stty -a | grep -o ' icanon'",
        pid.display()
    );
    terminal.keys(&[&top, "Enter"]);
    terminal.shows("encode");
    std::fs::read_to_string(pid).unwrap().trim().to_owned()
}

#[test]
fn a_signal_ends_top_and_the_terminal_is_put_back() {
    let instance = or_skip!(Instance::new("top-term"));
    let _side = instance.sleeper("encode");
    let terminal = or_skip!(Terminal::open(&instance));
    let pid = in_terminal(&instance, &terminal);
    Command::new("kill").arg(pid).status().unwrap();
    terminal.shows("ended with 0");
    terminal.shows("\n icanon");

    // Nor does it stay when its terminal goes.
    let pid = in_terminal(&instance, &terminal);
    drop(terminal);
    wait_for("its end", || !Path::new("/proc").join(&pid).exists());
}

#[test]
fn one_screen_is_text() {
    let instance = or_skip!(Instance::new("top-once"));
    let _side = instance.sleeper("encode");
    let text = instance.ok(&["top", "--once"]);
    assert!(text.contains("GATE") && text.contains("encode"), "{text}");
    assert!(!text.contains('\u{1b}'), "{text:?}");
    let mut top = instance.tidegate(&["top"]);
    let refused = top.stdin(Stdio::null()).output().unwrap();
    let said = ends_with(&refused, 2);
    assert!(said.contains("--once"), "{said}");
}
