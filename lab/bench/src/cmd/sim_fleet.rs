//! `tidegate-lab sim fleet`: a cluster's days, by the rule that publishes side CPU and by its
//! peers'.

use clap::builder::PossibleValuesParser;
use tidegate_publish::{Assignment, Constants};
use tidegate_sim::fleet::days::Days;
use tidegate_sim::fleet::rules::RuleKind;
use tidegate_sim::fleet::{Outcome, Settings};
use tidegate_sim::parallel;
use tidegate_terms::Share;

use tidegate_api::Exit;
use tidegate_api::cli::{self, Failure};

const NOTES: &str = "\
Each node's main follows a generated day. The node publishes side CPU by a
rule, side pods are placed where that has room, and do their work with what main
leaves. Nothing is installed and nothing is touched.

  tidegate-lab sim fleet --nodes 1000 --days 7
  tidegate-lab sim fleet --cpus 32 --headroom 20%
  tidegate-lab sim fleet --rule tidegate --pods-per-node 12 --json";

/// Rehearse a cluster's days: what nodes publish as side CPU, and the pods placed by it
#[derive(clap::Args)]
#[command(after_help = NOTES)]
pub struct Args {
    /// Nodes
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    nodes: u32,
    /// CPUs of each node
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=4_096))]
    cpus: u64,
    /// Days that pass
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=366))]
    days: u64,
    /// Of each node, kept idle for main
    #[arg(long, value_name = "PERCENT", default_value = "20%", value_parser = share)]
    headroom: Share,
    /// Of each node, what side work has in any case
    #[arg(long, value_name = "PERCENT", default_value = "1%", value_parser = share)]
    tolerance: Share,
    /// Main's use at its highest hour on the average node
    #[arg(long, value_name = "PERCENT", default_value = "50%", value_parser = share)]
    peak: Share,
    /// Side pods in the cluster, a node; one that ends is followed by the next
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u64).range(0..=10_000))]
    pods_per_node: u64,
    /// What each pod requests, in millicores
    #[arg(long, value_name = "MILLICORES", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pod_milli: u64,
    /// What each pod has to do, in minutes with all that it requests
    #[arg(long, value_name = "MINUTES", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pod_minutes: u64,
    /// Only this rule; repeat for more
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(RuleKind::ALL.map(RuleKind::name)))]
    rule: Vec<String>,
    /// Another number of our rule, as in low_percent=25; repeat for more
    #[arg(long, value_name = "NAME=N")]
    with: Vec<Assignment>,
    /// Time passes in steps of so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=60))]
    step: u64,
    /// Seed of every random choice
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
}

fn share(text: &str) -> Result<Share, String> {
    Share::parse(text).map_err(|refusal| refusal.to_string())
}

/// What `--json` prints.
#[derive(serde::Serialize)]
struct Fleet {
    outcomes: Vec<Outcome>,
}

pub fn main(args: &Args) -> Result<Exit, Failure> {
    let settings = settings(args);
    let asked =
        |rule: &RuleKind| args.rule.is_empty() || args.rule.iter().any(|one| one == rule.name());
    let rules: Vec<RuleKind> = RuleKind::ALL.into_iter().filter(asked).collect();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let outcomes = parallel::parallel(cores, rules.len(), |at| {
        tidegate_sim::fleet::run(&settings, rules[at])
    });
    if args.json {
        return cli::json(&Fleet { outcomes });
    }
    cli::print(&page(&settings, &outcomes))
}

fn settings(args: &Args) -> Settings {
    let cpus_milli = args.cpus * 1_000;
    Settings {
        nodes: args.nodes as usize,
        cpus_milli,
        seconds: args.days * 86_400,
        step_s: args.step,
        headroom_ppt: ppt(args.headroom),
        tolerance_ppt: ppt(args.tolerance),
        pods: args.pods_per_node * u64::from(args.nodes),
        request_milli: args.pod_milli,
        work_s: args.pod_minutes * 60,
        seed: args.seed,
        constants: Constants::with(&args.with),
        days: Days {
            cpus_milli,
            peak_ppt: ppt(args.peak),
            seed: args.seed,
        },
    }
}

fn ppt(share: Share) -> u64 {
    u64::from(share.ppm()) / 1_000
}

/// A row of the page: what it is, and its figure of an outcome.
type Row = (&'static str, fn(&Outcome) -> String);

const ROWS: &[Row] = &[
    ("side CPU used, core-hours", |one| {
        hours(one.side_core_seconds)
    }),
    ("  of it lost when pods moved", |one| {
        hours(one.lost_core_seconds)
    }),
    ("  of it inside main's headroom", |one| {
        hours(one.in_headroom_core_seconds)
    }),
    ("pods done", |one| one.pods_done.to_string()),
    ("published, not there, core-hours", |one| {
        hours(one.over_core_seconds)
    }),
    ("there, not published, core-hours", |one| {
        hours(one.under_core_seconds)
    }),
    ("writes a node and hour", writes),
    ("pods told to move", |one| one.evictions.to_string()),
    ("pods rejected by kubelet's restart", |one| {
        one.rejections.to_string()
    }),
    ("pods below 60 % of their request, hours", |one| {
        hours(one.starved_pod_seconds as f64)
    }),
    ("nodes below what is bound, hours", |one| {
        hours(one.below_bound_node_seconds as f64)
    }),
];

fn page(settings: &Settings, outcomes: &[Outcome]) -> String {
    let Some(first) = outcomes.first() else {
        return String::new();
    };
    let mut text = format!(
        "{} for {}, {} with {} CPUs each; main left side work {} core-hours\n\n",
        cli::count(settings.pods, "side pod", "side pods"),
        cli::span(first.seconds as f64),
        cli::count(first.nodes, "node", "nodes"),
        settings.cpus_milli / 1_000,
        hours(first.surplus_core_seconds),
    );
    let width = ROWS.iter().map(|row| row.0.len()).max().unwrap_or(0);
    text += &format!("{:width$}", "");
    for outcome in outcomes {
        text += &format!("  {:>12}", outcome.rule);
    }
    text.push('\n');
    for (name, figure) in ROWS {
        text += &format!("{name:width$}");
        for outcome in outcomes {
            text += &format!("  {:>12}", figure(outcome));
        }
        text.push('\n');
    }
    text + "\nKubelet starts again once on every node. Each rule keeps main's headroom on the node alike.\n"
}

fn hours(seconds: f64) -> String {
    format!("{:.1}", seconds / 3_600.0)
}

fn writes(one: &Outcome) -> String {
    let node_hours = (one.nodes * one.seconds) as f64 / 3_600.0;
    format!("{:.2}", one.writes as f64 / node_hours)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_a_column_for_each_rule() {
        let days = Days {
            cpus_milli: 4_000,
            peak_ppt: 500,
            seed: 1,
        };
        let settings = Settings {
            nodes: 2,
            cpus_milli: 4_000,
            seconds: 7_200,
            step_s: 10,
            headroom_ppt: 200,
            tolerance_ppt: 10,
            pods: 4,
            request_milli: 500,
            work_s: 600,
            seed: 1,
            days,
            constants: Constants::default(),
        };
        let outcomes = RuleKind::ALL.map(|rule| tidegate_sim::fleet::run(&settings, rule));
        let page = page(&settings, &outcomes);
        for rule in RuleKind::ALL {
            assert!(page.contains(rule.name()), "{page}");
        }
        assert!(page.starts_with("4 side pods for 2"), "{page}");
    }
}
