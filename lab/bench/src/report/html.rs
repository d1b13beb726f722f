//! One page with everything in it: no script, no font, nothing loaded from elsewhere.

use super::text::{headline_table, is_number};
use super::{Report, Table, escape};

const STYLE: &str = "
:root { color-scheme: light dark; --ink: light-dark(#1d2327, #e4e7ea); --soft: light-dark(#66707a, #98a2ab);
  --rule: light-dark(#dfe3e6, #32383e); }
body { background: light-dark(#fdfdfc, #16191c); color: var(--ink); font: 16px/1.5 system-ui, sans-serif;
  max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
p.see, p.machine, p.note, th { color: var(--soft); } div.wide { overflow-x: auto; } svg { max-width: 100%; height: auto; }
table { border-collapse: collapse; font-size: 0.9rem; }
th, td { padding: 0.25rem 0.7rem; text-align: left; border-bottom: 1px solid var(--rule); }
td.n { text-align: right; font-variant-numeric: tabular-nums; }
td.met { color: light-dark(#117a3d, #5fd38a); } td.missed { color: light-dark(#b3261e, #ff8a80); }
";

pub fn render(report: &Report) -> String {
    let title = report
        .scenario
        .as_ref()
        .map_or(report.title, |one| &one.about);
    let mut body = format!(
        "<h1>{}</h1>\n<p class=machine>{}</p>\n",
        escape(title),
        escape(&report.machine.line())
    );
    if !report.headline.is_empty() {
        body += &format!(
            "<h2>Headline</h2>\n{}",
            table(&headline_table(&report.headline))
        );
    }
    for plot in &report.plots {
        body += &format!(
            "<h2>{}</h2>\n<p class=see>{}</p>\n",
            escape(&plot.title),
            escape(&plot.see)
        );
        body += &format!("<div class=wide>{}</div>\n", plot.svg);
    }
    for t in &report.tables {
        body += &format!("<h2>{}</h2>\n{}", escape(&t.title), table(t));
    }
    for note in &report.notes {
        body += &format!("<p class=note>{}</p>\n", escape(note));
    }
    format!(
        "<!doctype html>\n<html lang=en>\n<meta charset=utf-8>\n\
         <meta name=viewport content=\"width=device-width\">\n\
         <title>{}</title>\n<style>{STYLE}</style>\n{body}</html>\n",
        escape(&report.command())
    )
}

fn table(t: &Table) -> String {
    let mut out = String::from("<div class=wide><table><tr>");
    for c in &t.columns {
        out += &format!("<th>{}</th>", escape(c));
    }
    out += "</tr>\n";
    for row in &t.rows {
        out += "<tr>";
        for cell in row {
            let class = match cell.as_str() {
                "met" => " class=met",
                "NOT met" => " class=missed",
                c if is_number(c) => " class=n",
                _ => "",
            };
            out += &format!("<td{class}>{}</td>", escape(cell));
        }
        out += "</tr>\n";
    }
    out + "</table></div>\n"
}
