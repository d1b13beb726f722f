//! Answers for people: plain text under 80 columns, with colour only where it goes to a terminal.

pub mod events;
pub mod explain;
pub mod gates;
pub mod measure;
pub mod policy;
pub mod status;
#[cfg(test)]
mod tests;

use serde::Serialize;
use tidegate_api::cli::Failure;
pub use tidegate_api::cli::{
    BAD, BOLD, GOOD, WIDTH, count, cpus, fit, json, print, span, styled, wrapped,
};
use tidegate_api::{Done, Exit};

pub fn cpus_or_unknown(amount: Option<f64>) -> String {
    amount.map_or_else(|| "unknown".to_owned(), cpus)
}

/// Before a line of a list: the first alone has its name.
pub fn label(name: &str, index: usize) -> String {
    let name = if index == 0 { name } else { "" };
    let end = if index == 0 { ": " } else { "  " };
    format!("{name:>10}{end}")
}

pub fn show<T: Serialize>(
    json: bool,
    report: &T,
    page: impl FnOnce(&T) -> String,
) -> Result<Exit, Failure> {
    match json {
        true => self::json(report),
        false => print(&page(report)),
    }
}

/// Prints the answer of a call that has nothing to report but that it is done.
pub fn show_done(json: bool, done: &Done) -> Result<Exit, Failure> {
    show(json, done, |done| format!("{}\n", done.message))
}
