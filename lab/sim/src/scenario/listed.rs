//! Files of arrivals: one request a line, `TIME [WORK]`, as in `12.5ms 800us`; `#` begins a
//! comment.

use tidegate_terms::{TimeSpan, quoted};

use crate::workloads::Request;

/// More requests than a run of the simulator serves in reasonable time.
const REQUESTS_MAX: usize = 10_000_000;

pub(super) fn parse(name: &str, text: &str) -> Result<Vec<Request>, String> {
    let mut requests: Vec<Request> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let at = |why: String| format!("{}:{}: {why}", quoted(name), index + 1);
        let content = line.split('#').next().unwrap_or_default().trim();
        if content.is_empty() {
            continue;
        }
        let mut words = content.split_whitespace();
        let time = |text: &str| {
            TimeSpan::parse(text).map_err(|refusal| at(format!("\"{}\" {refusal}", quoted(text))))
        };
        let due_ns = time(words.next().unwrap_or_default())?.ns();
        let work_ns = match words.next() {
            Some(work) => time(work)?.ns(),
            None => 0,
        };
        if let Some(word) = words.next() {
            return Err(at(format!("\"{}\" is one word too many", quoted(word))));
        }
        if requests.last().is_some_and(|last| last.due_ns > due_ns) {
            return Err(at("the request is due before the one above".into()));
        }
        if requests.len() == REQUESTS_MAX {
            return Err(at(format!("more than {REQUESTS_MAX} requests")));
        }
        requests.push(Request { due_ns, work_ns });
    }
    if requests.is_empty() {
        return Err(format!("\"{}\" holds no request", quoted(name)));
    }
    Ok(requests)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_mistakes_named_with_their_line() {
        let list = parse("a", "# warm\n1ms\n2.5ms 800us # slow\n\n").unwrap();
        let request = |due_ns, work_ns| Request { due_ns, work_ns };
        assert_eq!(list, [request(1_000_000, 0), request(2_500_000, 800_000)]);
        for (text, why) in [
            ("5ms\n1ms\n", "a:2: the request is due before"),
            ("1ms 2ms 3ms\n", "one word too many"),
            ("x\n", "a:1: \"x\" is not a time"),
            ("", "holds no request"),
        ] {
            let error = parse("a", text).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
