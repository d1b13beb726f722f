//! The support table: what `doctor` says on each machine, as text and as a test in the VM.

use super::proofs::PROOFS;

/// Mechanism and `doctor`'s word for it, in `doctor`'s order.
pub type Words = Vec<(String, String)>;

/// What stands between the markers of docs/support.md.
pub const BEGIN: &str = "<!-- support table: written by cargo xtask support --write -->\n";
const END: &str = "<!-- end of support table -->";

pub struct Column {
    pub title: &'static str,
    /// What `doctor` says there.
    pub words: Words,
}

/// A test stands behind the cell, or else it says no.
fn word(column: usize, mechanism: &str, said: &str) -> String {
    let proof = PROOFS.iter().find(|proof| proof.mechanism == mechanism);
    let backed = proof.is_some_and(|proof| {
        let tests = [proof.host, proof.vm, proof.vm, proof.user];
        tests.get(column).is_some_and(|test| !test.is_empty())
    });
    if backed { said } else { "no" }.to_owned()
}

/// The table in Markdown. Columns in the order: host, VM, VM, user.
pub fn markdown(columns: &[Column]) -> String {
    let titles: Vec<&str> = columns.iter().map(|column| column.title).collect();
    let mut text = format!(
        "| mechanism | {} |\n|---|{}\n",
        titles.join(" | "),
        "---|".repeat(titles.len())
    );
    for proof in PROOFS {
        let cells: Vec<String> = columns
            .iter()
            .enumerate()
            .map(|(number, column)| {
                let said = column
                    .words
                    .iter()
                    .find(|(name, _)| name == proof.mechanism);
                word(number, proof.mechanism, said.map_or("no", |(_, said)| said))
            })
            .collect();
        text.push_str(&format!(
            "| {} | {} |\n",
            proof.mechanism,
            cells.join(" | ")
        ));
    }
    text
}

/// The page with this table in it; `None` where it has no place for one.
pub fn put(page: &str, table: &str) -> Option<String> {
    let begin = page.find(BEGIN)? + BEGIN.len();
    let end = begin + page[begin..].find(END)?;
    Some(format!("{}{table}{}", &page[..begin], &page[end..]))
}

/// One column of the committed table, as words of `doctor`.
pub fn column(page: &str, number: usize) -> Words {
    let begin = page.find(BEGIN).map_or(page.len(), |at| at + BEGIN.len());
    let table = page[begin..].split(END).next().unwrap_or_default();
    table
        .lines()
        .skip(2)
        .filter_map(|line| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            Some((
                cells.get(1)?.to_string(),
                cells.get(number + 2)?.to_string(),
            ))
        })
        .collect()
}

/// As the table would have it: what `doctor` says, where a test stands behind it.
pub fn as_shown(number: usize, words: &Words) -> Words {
    let shown = |(name, said): &(String, String)| (name.clone(), word(number, name, said));
    words.iter().map(shown).collect()
}

/// The test that holds `doctor` in the VM to the table.
pub fn vm_case(columns: &[(&str, Words)]) -> String {
    let mut text = String::from(
        "# what: doctor says of this kernel what docs/support.md says (written by cargo xtask support --write)\n\
         # modes: precise\n# kernels: 6.18 7.3\n# needs: tidegate\n\
         tidegate doctor --json >/tmp/doctor\ncase $(uname -r) in\n",
    );
    for (series, words) in columns {
        text.push_str(&format!("{series}.*)\n\tcat >/tmp/wanted <<'END'\n"));
        for (name, said) in words {
            text.push_str(&format!("{name}: {said}\n"));
        }
        text.push_str("END\n\t;;\n");
    }
    text.push_str(
        "*) skip \"the table has no column for $(uname -r)\" ;;\nesac\n\
         awk -F'\"' '/^      \"name\":/ { name = $4 } /^      \"now\":/ { print name \": \" $4 }' /tmp/doctor >/tmp/found\n\
         cat /tmp/found\nsame \"what doctor says\" \"$(cat /tmp/found)\" \"$(cat /tmp/wanted)\"\n",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(said: &str) -> Words {
        let all = PROOFS
            .iter()
            .map(|proof| (proof.mechanism.to_owned(), said.to_owned()));
        all.collect()
    }

    #[test]
    fn what_is_put_is_read_again_and_needs_a_test() {
        let columns = [
            Column {
                title: "a",
                words: words("yes"),
            },
            Column {
                title: "b",
                words: words("partly"),
            },
        ];
        let page = format!("# x\n\n{BEGIN}old\n{END}\n\nmore\n");
        let page = put(&page, &markdown(&columns)).unwrap();
        assert!(page.starts_with("# x") && page.ends_with("\n\nmore\n") && !page.contains("old"));
        let read = column(&page, 1);
        assert_eq!(read, as_shown(1, &words("partly")));
        assert_eq!(read.last().unwrap().1, "no", "no test stands behind it");
        assert_eq!(put("no markers", ""), None);
    }
}
