//! Text of others on a terminal.

/// With characters that act on a terminal, or change the order in which others are shown, as
/// escapes: a command line may hold any.
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
