//! One page with everything in it: no script, no font, nothing loaded from elsewhere.

use super::text::{headline_table, is_number};
use super::{Report, Table};

/// The plots are drawn in marker colours (plots.rs); here each gets its colour, by day and by night.
/// The series are Okabe and Ito's palette, which tells apart for most colour-blind readers.
const STYLE: &str = r#"
:root { color-scheme: light dark; --page: #fdfdfc; --ink: #1d2327; --soft: #66707a; --rule: #dfe3e6;
  --s0: #0072b2; --s1: #d55e00; --s2: #009e73; --s3: #cc79a7; --s4: #b8860b; --s5: #4f9fd0; --s6: #7a4fa3; --s7: #c5ccd2;
  --good: #117a3d; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --page: #16191c; --ink: #e4e7ea; --soft: #98a2ab;
  --rule: #32383e; --s0: #56b4e9; --s1: #ff8a3d; --s2: #2fcf9f; --s3: #e59bc4; --s4: #e6c84a;
  --s5: #8fc9ef; --s6: #b79be0; --s7: #414a52; --good: #5fd38a; --bad: #ff8a80; } }
body { background: var(--page); color: var(--ink); font: 16px/1.5 system-ui, sans-serif;
  max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
p.see, p.machine, p.note { color: var(--soft); } p.see { margin-top: -0.6rem; }
div.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: 0.9rem; }
th, td { padding: 0.25rem 0.7rem; text-align: left; border-bottom: 1px solid var(--rule); }
th { color: var(--soft); font-weight: 600; } td.n { text-align: right; font-variant-numeric: tabular-nums; }
td.met { color: var(--good); font-weight: 600; } td.missed { color: var(--bad); font-weight: 600; }
svg { max-width: 100%; height: auto; } ul.legend { list-style: none; padding: 0; margin: 0.3rem 0; }
ul.legend li { display: inline-block; margin-right: 1.2rem; font-size: 0.9rem; }
ul.legend i { display: inline-block; width: 1rem; height: 0.25rem; margin-right: 0.4rem;
  vertical-align: middle; background: var(--c); }
svg [fill="\#010101"] { fill: var(--ink); } svg [stroke="\#010101"] { stroke: var(--soft); }
svg [stroke="\#020202"] { stroke: var(--rule); } svg [fill="\#020202"] { fill: var(--rule); }
svg [stroke="\#030303"] { stroke: var(--ink); }
"#;

/// The page.
pub fn render(report: &Report) -> String {
    let mut style = STYLE.replace("\\#", "#");
    for i in 0..super::plots::SERIES {
        let marker = super::plots::marker_hex(i);
        style += &format!(
            "svg [fill=\"{marker}\"] {{ fill: var(--s{i}); }} \
             svg [stroke=\"{marker}\"] {{ stroke: var(--s{i}); }}\n"
        );
    }
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
        if !plot.legend.is_empty() {
            body += "<ul class=legend>";
            for (series, label) in &plot.legend {
                body += &format!(
                    "<li><i style=\"--c: var(--s{series})\"></i>{}</li>",
                    escape(label)
                );
            }
            body += "</ul>\n";
        }
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
         <title>{}</title>\n<style>{style}</style>\n{body}</html>\n",
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

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
