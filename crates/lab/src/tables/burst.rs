//! A quota with burst: how the limits compare, beside the published ones.

use crate::LabError;
use crate::dist::Latency;
use crate::experiments::published::BURST;
use crate::report::{Table, plots};

/// One limit.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its name.
    pub label: String,
    /// From when a request was due to when a free worker ran.
    pub wakeup: Latency,
    /// ... to when it was done.
    pub request: Latency,
    /// CPU use over the quota.
    pub used_pct: f64,
    /// Periods in which the group was throttled.
    pub throttled_pct: f64,
    /// The burst that stood at the end.
    pub burst_ms_end: f64,
}

/// What a request waits for, beside its own work: CPUs and quota.
pub fn waiting_us(latency_us: f64, work_us: f64) -> f64 {
    (latency_us - work_us).max(0.0)
}

/// Every limit.
pub fn table(title: &str, rows: &[Row]) -> Table {
    let mut t = Table::new(
        title,
        &[
            "limit",
            "wakeup p50, us",
            "p99",
            "p99.9",
            "max",
            "request p50, ms",
            "p99",
            "max",
            "of the quota used",
            "periods throttled",
            "burst at the end, ms",
        ],
    );
    for r in rows {
        t.push([
            r.label.clone(),
            format!("{:.1}", r.wakeup.p50_us),
            format!("{:.1}", r.wakeup.p99_us),
            format!("{:.1}", r.wakeup.p999_us),
            format!("{:.0}", r.wakeup.max_us),
            format!("{:.2}", r.request.p50_us / 1000.0),
            format!("{:.2}", r.request.p99_us / 1000.0),
            format!("{:.1}", r.request.max_us / 1000.0),
            format!("{:.1} %", r.used_pct),
            format!("{:.1} %", r.throttled_pct),
            format!("{:.0}", r.burst_ms_end),
        ]);
    }
    t
}

/// Waiting beside the burst series' wakeup latencies; `work_us` is a request's own work, `columns` are the limits to show.
pub fn seed_table(title: &str, work_us: f64, columns: &[&Row]) -> Table {
    let mut heads = vec!["statistic", "published: burst 0", "published: burst 400 ms"];
    heads.extend(columns.iter().map(|r| r.label.as_str()));
    let mut t = Table::new(title, &heads);
    for r in &BURST {
        let ours: Option<fn(&Latency) -> f64> = match r.stat {
            "p50" => Some(|l| l.p50_us),
            "p90" => Some(|l| l.p90_us),
            "p99" => Some(|l| l.p99_us),
            "p99.9" => Some(|l| l.p999_us),
            "max" => Some(|l| l.max_us),
            _ => None,
        };
        let Some(ours) = ours else { continue };
        let mut cells = vec![
            r.stat.to_string(),
            format!("{:.0}", r.without_us),
            format!("{:.0}", r.with_us),
        ];
        let waits = |row: &&Row| format!("{:.1}", waiting_us(ours(&row.request), work_us));
        cells.extend(columns.iter().map(waits));
        t.push(cells);
    }
    t
}

/// A request's latency over its percentiles.
pub fn plot(rows: &[Row]) -> Result<plots::Plot, LabError> {
    let mut plot = plots::Lines::new(
        "A request's latency",
        "percentile (50, 90, 99, 99.9 and the worst, evenly spaced)",
        "latency, ms",
    )
    .see("Burst brings the tail back to where it is without a limit; the mean use stays below the quota.")
    .range(0.0..4.0, 0.0..1.0)
    .dots()
    .log_y();
    for (i, row) in rows.iter().enumerate() {
        let l = &row.request;
        let points = [l.p50_us, l.p90_us, l.p99_us, l.p999_us, l.max_us];
        let line = points
            .iter()
            .enumerate()
            .map(|(x, us)| (x as f64, us / 1000.0));
        plot = plot.series(&row.label, i, line.collect());
    }
    plot.draw()
}
