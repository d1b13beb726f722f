//! Colours and characters, by what the terminal can show.

use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::Marker;

#[derive(Clone, Copy)]
pub struct Look {
    has_colour: bool,
    is_ascii: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    Main,
    Side,
    Idle,
    Allowance,
    Alert,
    Strong,
    Faint,
}

impl Look {
    /// By the environment: `NO_COLOR`, and the locale.
    pub fn here(is_ascii: bool) -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        // The first that is set counts.
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
            .iter()
            .find_map(|name| variable(name));
        let is_utf8 = locale.is_some_and(|locale| {
            let locale = locale.to_ascii_lowercase();
            locale.ends_with("utf-8") || locale.ends_with("utf8")
        });
        Self {
            has_colour: variable("NO_COLOR").is_none(),
            is_ascii: is_ascii || !is_utf8,
        }
    }

    pub fn without_colour(self) -> Self {
        Self {
            has_colour: false,
            ..self
        }
    }

    #[cfg(test)]
    pub fn new(has_colour: bool, is_ascii: bool) -> Self {
        Self {
            has_colour,
            is_ascii,
        }
    }

    pub fn style(self, tone: Tone) -> Style {
        let style = match tone {
            Tone::Strong => Style::new().add_modifier(Modifier::BOLD),
            Tone::Alert if !self.has_colour => Style::new().add_modifier(Modifier::BOLD),
            _ => Style::new(),
        };
        let colour = match tone {
            Tone::Main => Color::Blue,
            Tone::Side => Color::Green,
            Tone::Allowance => Color::Yellow,
            Tone::Alert => Color::Red,
            Tone::Idle | Tone::Faint => Color::DarkGray,
            Tone::Strong => return style,
        };
        match self.has_colour {
            true => style.fg(colour),
            false => style,
        }
    }

    pub fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// What a line of the plot is made of. Without colours lines are told apart by letters.
    pub fn marker(self, tone: Tone) -> Marker {
        if self.has_colour && !self.is_ascii {
            return Marker::Braille;
        }
        Marker::Custom(match tone {
            Tone::Main => 'm',
            Tone::Side => 's',
            _ => '-',
        })
    }

    pub fn cut(self) -> char {
        if self.is_ascii { 'v' } else { '▼' }
    }

    pub fn bar(self) -> (char, char) {
        if self.is_ascii {
            ('#', '.')
        } else {
            ('█', '░')
        }
    }

    pub fn ascii(self, symbol: &str) -> Option<&'static str> {
        if !self.is_ascii || symbol.is_ascii() {
            return None;
        }
        Some(match symbol {
            "│" => "|",
            "─" | "–" => "-",
            "└" => "+",
            "…" => "~",
            "‰" => "p",
            _ => "?",
        })
    }
}
