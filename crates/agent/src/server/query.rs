//! What a query asks for.

use percent_encoding::percent_decode_str;
use tidegate_api::{ApiError, ErrorKind};

fn wrong(why: &str, mend: &str) -> ApiError {
    ApiError::new(ErrorKind::Usage, format!("socket: query: {why}")).with_mend(mend)
}

/// The value of a parameter, as it is written.
pub(super) fn value<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    let values = |pair: &'a str| pair.strip_prefix(name)?.strip_prefix('=');
    query.split('&').find_map(values)
}

/// The `target` of a query, percent-decoded. A plus is itself: it may stand in a group's name.
pub(super) fn target(query: &str) -> Result<String, ApiError> {
    let wrong = |why: &str| wrong(why, "write ?target=TARGET");
    let encoded = value(query, "target").ok_or_else(|| wrong("no target"))?;
    let decoded = percent_decode_str(encoded).decode_utf8();
    let decoded = decoded.map_err(|_| wrong("the target is not UTF-8"))?;
    Ok(decoded.into_owned())
}

/// A whole number, where there is one of this name.
pub(super) fn whole(query: &str, name: &str) -> Result<Option<u64>, ApiError> {
    let Some(text) = value(query, name) else {
        return Ok(None);
    };
    let number = text.parse().map_err(|_| {
        let why = format!("{name} is not a whole number");
        wrong(&why, &format!("write ?{name}=N"))
    })?;
    Ok(Some(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_an_event_is_a_number() {
        assert_eq!(whole("", "since").unwrap(), None);
        assert_eq!(whole("x=1&since=7", "since").unwrap(), Some(7));
        for wrong in ["since=", "since=-1", "since=99999999999999999999"] {
            let error = whole(wrong, "since").unwrap_err();
            assert_eq!(error.kind, ErrorKind::Usage, "{wrong}");
        }
    }

    #[test]
    fn targets_are_decoded_or_refused() {
        assert_eq!(target("target=cgroup%3A/a%20b").unwrap(), "cgroup:/a b");
        assert_eq!(target("x=1&target=a+b%").unwrap(), "a+b%");
        for wrong in ["", "target", "target=%ff"] {
            assert_eq!(target(wrong).unwrap_err().kind, ErrorKind::Usage, "{wrong}");
        }
    }
}
