//! Which recording, and which part of it: the flags that commands about recordings share.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use tidegate_api::Exit;
use tidegate_api::cli::{Failure, lengths};

use crate::{LoadError, Recording, load};

/// Which part of a recording.
#[derive(Default, clap::Args)]
pub struct Span {
    /// From this time on, as in 08:00, 2026-11-27T08:00 or 2026-11-27T08:00Z
    #[arg(long, value_name = "TIME", value_parser = unix_ms, conflicts_with = "last")]
    from: Option<u64>,
    /// Up to this time
    #[arg(long, value_name = "TIME", value_parser = unix_ms, conflicts_with = "last")]
    to: Option<u64>,
    /// The last part, as in 10m or 1h, up to now
    #[arg(long, value_name = "TIME", value_parser = span_ms)]
    last: Option<u64>,
}

impl Span {
    /// The same, and where no flag says anything the last `span_ms`.
    pub fn or_last(&self, span_ms: u64) -> Span {
        Span {
            from: self.from,
            to: self.to,
            last: self.last.or((!self.is_said()).then_some(span_ms)),
        }
    }

    pub fn is_said(&self) -> bool {
        self.from.is_some() || self.to.is_some() || self.last.is_some()
    }

    fn bounds_ms(&self) -> (u64, u64) {
        let last = |span_ms: u64| now_ms().saturating_sub(span_ms);
        let from_ms = self.from.or(self.last.map(last));
        (from_ms.unwrap_or(0), self.to.unwrap_or(u64::MAX))
    }
}

pub fn now_ms() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    since_epoch.unwrap_or_default().as_millis() as u64
}

fn span_ms(text: &str) -> Result<u64, String> {
    lengths::seconds(text).map(|seconds| seconds * 1_000)
}

/// A time of a day is today's, and a date without a zone is local.
fn unix_ms(text: &str) -> Result<u64, String> {
    let local = |time: DateTime| time.to_zoned(TimeZone::system()).ok();
    let zoned: Option<Zoned> = None
        .or_else(|| {
            text.parse::<Timestamp>()
                .ok()
                .map(|time| time.to_zoned(TimeZone::UTC))
        })
        .or_else(|| text.parse::<DateTime>().ok().and_then(local))
        .or_else(|| {
            text.parse::<Time>()
                .ok()
                .and_then(|time| local(Zoned::now().date().to_datetime(time)))
        });
    zoned
        .and_then(|zoned| u64::try_from(zoned.timestamp().as_millisecond()).ok())
        .ok_or_else(|| {
            "is no time; write it as in 08:00, 2026-11-27T08:00 or 2026-11-27T08:00Z".to_owned()
        })
}

pub fn time(unix_seconds: f64) -> String {
    let time = Timestamp::from_second(unix_seconds as i64).unwrap_or_default();
    let zoned = time.to_zoned(TimeZone::system());
    zoned.strftime("%F %T").to_string()
}

pub fn load_span(command: &str, path: &Path, span: &Span) -> Result<Recording, Failure> {
    let (from_ms, to_ms) = span.bounds_ms();
    let shown = path.display();
    if from_ms >= to_ms {
        let why = format!("{command}: --from: is not before --to; nothing lies between them");
        return Err(Failure::new(Exit::Usage, why));
    }
    load(path, from_ms, to_ms).map_err(|error| {
        let (exit, why) = match &error {
            LoadError::Io { error: io, .. } => match io.kind() {
                std::io::ErrorKind::NotFound => (
                    Exit::NoTarget,
                    format!("{shown}: there is no such file or directory; name a recording, or the directory of an agent that records"),
                ),
                std::io::ErrorKind::PermissionDenied => (
                    Exit::Refused,
                    format!("{shown}: may not be read; recordings are their owner's alone: use sudo"),
                ),
                _ => (Exit::Failure, error.to_string()),
            },
            LoadError::Empty(_) => (Exit::NoTarget, empty(path)),
            LoadError::NoRecording(_) | LoadError::Newer { .. } => (Exit::Usage, error.to_string()),
        };
        Failure::new(exit, format!("{command}: {why}"))
    })
}

fn empty(path: &Path) -> String {
    let shown = path.display();
    match load(path, 0, u64::MAX).ok().and_then(|all| all.span_ms()) {
        Some((first_ms, last_ms)) => format!(
            "{shown}: nothing was recorded in that span; it goes from {} to {}",
            time(first_ms as f64 / 1e3),
            time(last_ms as f64 / 1e3)
        ),
        None => format!("{shown}: nothing is recorded in it; see the alerts of `tidegate status`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_spans_are_read() {
        assert_eq!(unix_ms("2026-11-27T08:00:00Z"), Ok(1_795_766_400_000));
        assert_eq!(unix_ms("2026-11-27T09:00+01:00"), Ok(1_795_766_400_000));
        assert!(unix_ms("2026-11-27 08:00").is_ok() && unix_ms("08:00").is_ok());
        assert!(unix_ms("yesterday").is_err() && unix_ms("").is_err());
        assert_eq!(span_ms("1h"), Ok(3_600_000));
        assert_eq!(span_ms("90min"), Ok(5_400_000));
        assert!(span_ms("-1h").is_err() && span_ms("0s").is_err() && span_ms("7").is_err());
    }
}
