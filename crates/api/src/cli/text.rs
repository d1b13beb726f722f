//! Text for people in lines of at most 80 columns.

use anstyle::{AnsiColor, Style};

pub const WIDTH: usize = 80;

pub const BOLD: Style = Style::new().bold();
pub const GOOD: Style = AnsiColor::Green.on_default();
pub const BAD: Style = AnsiColor::Red.on_default().bold();

pub fn styled(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

pub fn cpus(amount: f64) -> String {
    format!("{amount:.2}")
}

pub fn span(seconds: f64) -> String {
    // Views carry times since a start: never negative, and far below 2^63 seconds; `as` saturates
    // anyway.
    let whole = seconds.max(0.0) as u64;
    match whole {
        0..10 => format!("{seconds:.1} s"),
        10..120 => format!("{whole} s"),
        120..7200 => format!("{} min {} s", whole / 60, whole % 60),
        7200..172_800 => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
        _ => format!("{} days", whole / 86_400),
    }
}

/// At most `width` characters, [`escaped`].
pub fn fit(text: &str, width: usize) -> String {
    let clean = escaped(text);
    if clean.chars().count() <= width {
        return clean;
    }
    clean
        .chars()
        .take(width.saturating_sub(1))
        .chain(['…'])
        .collect()
}

/// Words in lines of at most [`WIDTH`], the first after `label`, the rest below it. A word that is
/// longer than a line (a path) goes on in the next.
pub fn wrapped(label: &str, text: &str) -> String {
    let indent = label.chars().count();
    // A label that leaves no room would leave no progress either.
    let room = WIDTH.saturating_sub(indent).max(20);
    // A number and its % stay together.
    let text = fit(text, usize::MAX).replace(" %", "\u{a0}%");
    let mut lines: Vec<String> = Vec::new();
    let mut line: Vec<char> = Vec::new();
    for word in text.split_ascii_whitespace() {
        let word: Vec<char> = word.chars().collect();
        if !line.is_empty() && line.len() + 1 + word.len() > room {
            lines.push(line.drain(..).collect());
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.extend(word);
        while line.len() > room {
            lines.push(line.drain(..room).collect());
        }
    }
    lines.push(line.into_iter().collect());
    let below = " ".repeat(indent);
    let starts = std::iter::once(label).chain(std::iter::repeat(below.as_str()));
    let whole: String = starts
        .zip(&lines)
        .map(|(start, line)| format!("{}\n", format!("{start}{line}").trim_end()))
        .collect();
    whole.replace('\u{a0}', " ")
}

/// `1 process`, `2 processes`.
pub fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// Text of others, with characters that act on a terminal, or change the order in which others are
/// shown, as escapes: a command line may hold any.
pub fn escaped(text: &str) -> String {
    let acts = |c: char| {
        // Marks, embeddings, overrides and isolates of bidirectional text, and what has no width.
        c.is_control()
            || matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    let mut clean = String::with_capacity(text.len());
    for c in text.chars() {
        match acts(c) {
            true => clean.extend(c.escape_default()),
            false => clean.push(c),
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_well() {
        for (seconds, text) in [
            (0.25, "0.2 s"),
            (12.7, "12 s"),
            (200.0, "3 min 20 s"),
            (7_300.0, "2 h 1 min"),
            (400_000.0, "4 days"),
            (-1.0, "-1.0 s"),
        ] {
            assert_eq!(span(seconds), text);
        }
    }

    #[test]
    fn lines_fit() {
        let text = wrapped("  Note: ", &"word ".repeat(60));
        assert!(
            text.lines()
                .all(|line| line.chars().count() <= WIDTH && !line.ends_with(' '))
        );
        assert!(text.lines().nth(1).unwrap().starts_with("        word"));
        let path = format!("/{}", "long/".repeat(40));
        let text = wrapped("Note: ", &format!("see {path} there"));
        assert!(
            text.lines().all(|line| line.chars().count() <= WIDTH),
            "{text}"
        );
        assert!(text.replace("\n      ", "").contains(&path), "{text}");
        assert_eq!(fit("a\x1b[0mb", 20), "a\\u{1b}[0mb");
        let reordered = "run \u{202e}gpj.exe\u{2069}\n\u{200b}";
        assert_eq!(
            fit(reordered, 60),
            "run \\u{202e}gpj.exe\\u{2069}\\n\\u{200b}"
        );
        assert_eq!(fit("größe 数", 20), "größe 数");
        assert_eq!(fit("abcdef", 4), "abc…");
    }
}
