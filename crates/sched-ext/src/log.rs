//! What libbpf says while it loads: kept, because its return values are bare errno and the verifier
//! speaks only here.

use std::sync::Mutex;

use libbpf_rs::PrintLevel;

/// The last of what was said, cut at [`KEPT`].
static SAID: Mutex<String> = Mutex::new(String::new());

/// Bytes that are kept.
const KEPT: usize = 1 << 20;

/// Lines of a failure that are worth showing: the verifier gives its reason at the end.
const SHOWN: usize = 30;

/// Has libbpf's words kept from here on.
pub fn capture() {
    if let Ok(mut said) = SAID.lock() {
        said.clear();
    }
    libbpf_rs::set_print(Some((PrintLevel::Warn, keep)));
}

fn keep(_: PrintLevel, text: String) {
    tracing::debug!(target: "tidegate::bpf", "{}", text.trim_end());
    if let Ok(mut said) = SAID.lock() {
        said.push_str(&text);
        if said.len() > KEPT {
            let mut cut = said.len() - KEPT;
            while !said.is_char_boundary(cut) {
                cut += 1;
            }
            said.drain(..cut);
        }
    }
}

/// The end of what was said, each line on one of its own after a line break; empty if nothing was.
pub fn end() -> String {
    let said = SAID.lock().map(|said| said.clone()).unwrap_or_default();
    last_lines(&said)
}

fn last_lines(said: &str) -> String {
    let lines: Vec<&str> = said
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let from = lines.len().saturating_sub(SHOWN);
    lines[from..]
        .iter()
        .map(|line| format!("\n{line}"))
        .collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_the_end_is_shown() {
        let said: String = (0..100).map(|line| format!("line {line}\n\n")).collect();
        let shown = super::last_lines(&said);
        assert_eq!(shown.lines().count(), super::SHOWN + 1);
        assert!(shown.ends_with("line 99"));
        assert_eq!(super::last_lines(""), "");
    }
}
