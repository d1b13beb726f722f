//! What a query asks for.

use percent_encoding::percent_decode_str;
use tidegate_api::{ApiError, ApiResult, Call, ErrorKind};

pub(super) fn wrong(why: &str, remedy: &str) -> ApiError {
    ApiError::new(ErrorKind::Usage, format!("socket: query: {why}")).with_remedy(remedy)
}

pub(super) fn check_names(query: &str, call: &Call) -> ApiResult<()> {
    let known: Vec<&str> = call.query.iter().map(|field| field.name).collect();
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let mut names = pairs.filter_map(|pair| pair.split('=').next());
    let Some(unknown) = names.find(|name| !known.contains(name)) else {
        return Ok(());
    };
    let remedy = match known.as_slice() {
        [] => "this call has no fields: leave it out".to_owned(),
        known => format!("the fields of this call: {}", known.join(", ")),
    };
    Err(wrong(&format!("there is no field \"{unknown}\""), &remedy))
}

pub(super) fn value<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    let values = |pair: &'a str| pair.strip_prefix(name)?.strip_prefix('=');
    query.split('&').find_map(values)
}

/// The `target` of a query, percent-decoded. A plus is itself: it may stand in a group's name.
pub(super) fn target(query: &str) -> ApiResult<String> {
    let wrong = |why: &str| wrong(why, "write ?target=TARGET");
    let encoded = value(query, "target").ok_or_else(|| wrong("no target"))?;
    let decoded = percent_decode_str(encoded).decode_utf8();
    let decoded = decoded.map_err(|_| wrong("the target is not UTF-8"))?;
    Ok(decoded.into_owned())
}

pub(super) fn whole(query: &str, name: &str) -> ApiResult<Option<u64>> {
    let Some(text) = value(query, name) else {
        return Ok(None);
    };
    let number = text.parse().map_err(|_| {
        let why = format!("{name} is not a whole number");
        wrong(&why, &format!("write ?{name}=N"))
    })?;
    Ok(Some(number))
}

pub(super) fn wants_gates(query: &str) -> ApiResult<bool> {
    match value(query, "gates") {
        None => Ok(true),
        Some("none") => Ok(false),
        Some(_) => Err(wrong(
            "gates is not none",
            "write ?gates=none, or leave it out",
        )),
    }
}

const HOUR_S: u64 = 3_600;

/// A stretch of the past, `from` and `to` in seconds since 1970, and what one point of it covers,
/// `step`; the last hour by seconds where they are not given.
pub(super) fn stretch(query: &str, now_s: u64) -> ApiResult<(u64, u64, u64)> {
    let to = whole(query, "to")?.unwrap_or(now_s);
    let from = whole(query, "from")?.unwrap_or(to.saturating_sub(HOUR_S - 1));
    let step = whole(query, "step")?.unwrap_or(1);
    if from > to {
        let why = "from is after to";
        return Err(wrong(
            why,
            "write ?from=EARLIER&to=LATER, in seconds since 1970",
        ));
    }
    if !(1..=HOUR_S).contains(&step) {
        let why = format!("step is not from 1 to {HOUR_S}");
        return Err(wrong(&why, "write ?step=SECONDS"));
    }
    Ok((from, to, step))
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
    fn a_field_that_a_call_does_not_have_is_refused() {
        let check = |path: &str, query: &str| {
            let call = tidegate_api::CALLS.iter().find(|call| call.path == path);
            check_names(query, call.unwrap())
        };
        assert_eq!(check("/v1/history", "from=5&step=2"), Ok(()));
        assert_eq!(check("/v1/policy", ""), Ok(()));
        let error = check("/v1/history", "from=5&form=7").unwrap_err();
        assert_eq!(error.kind, ErrorKind::Usage);
        assert_eq!(
            error.to_string(),
            "socket: query: there is no field \"form\"; the fields of this call: from, to, step"
        );
        assert!(check("/v1/policy", "x").is_err());
    }

    #[test]
    fn a_stretch_is_the_last_hour_or_what_is_asked_for() {
        let found = |query: &str| stretch(query, 10_000);
        assert_eq!(found("").unwrap(), (6_401, 10_000, 1));
        assert_eq!(found("from=5&to=7&step=2").unwrap(), (5, 7, 2));
        assert_eq!(found("to=7").unwrap(), (0, 7, 1));
        for wrong in ["from=8&to=7", "from=10001", "step=0", "step=3601", "to=-1"] {
            assert_eq!(found(wrong).unwrap_err().kind, ErrorKind::Usage, "{wrong}");
        }
    }

    #[test]
    fn gates_are_wanted_or_not() {
        assert!(wants_gates("").unwrap());
        assert!(!wants_gates("x=1&gates=none").unwrap());
        for wrong in ["gates=", "gates=all"] {
            assert_eq!(wants_gates(wrong).unwrap_err().kind, ErrorKind::Usage);
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
