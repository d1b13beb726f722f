//! What is shown of a headroom that is found by measured harm.

use tidegate_api::HarmView;
use tidegate_engine::control::{AutoState, Found, FoundTail};

/// All of it.
pub(super) fn harm_view(found: &Found) -> HarmView {
    let state = match found.state {
        AutoState::NoSide => "no side work",
        AutoState::NoRoom => "no room",
        AutoState::NoMain => "no main work",
        AutoState::Learning => "learning",
        AutoState::Known => "known",
        AutoState::Unproven => "unproven",
        AutoState::Unknown(_) => "unknown",
    };
    let pct = |nth: usize| {
        let ratio_ppm = found.ratio_ppm?[nth];
        Some((f64::from(ratio_ppm) - 1e6) / 1e4)
    };
    let tail_pct = |nth: usize| Some(f64::from(found.tail?.more_ppm[nth]) / 1e4);
    HarmView {
        state: state.to_owned(),
        level_pct: f64::from(found.level_ppm) / 1e4,
        aim_pct: f64::from(found.aim_ppm) / 1e4,
        harm_pct: pct(0),
        harm_from_pct: pct(1),
        harm_to_pct: pct(2),
        tail_pct: tail_pct(0),
        tail_from_pct: tail_pct(1),
        tail_to_pct: tail_pct(2),
        tail_after_us: found.tail.map(|tail| tail.late_after_ns as f64 / 1e3),
        sentence: sentence(found),
    }
}

/// Harm with its interval, the level, and why it is not known.
pub(crate) fn sentence(found: &Found) -> String {
    let level = f64::from(found.level_ppm) / 1e4;
    let aim = accepted(found);
    let about = |what: String| match cost(found) {
        Some(cost) => format!("{cost}; {what}"),
        None => what,
    };
    let idle_class = match found.level_ppm {
        0 => " (the idle class alone, without a quota)",
        _ => "",
    };
    match found.state {
        AutoState::NoSide => {
            "side work uses little more than its tolerance, so there is nothing to measure"
                .to_owned()
        }
        AutoState::NoMain => format!(
            "main is almost idle, so there is nothing to measure; {level:.0} % of headroom meanwhile{idle_class}"
        ),
        AutoState::NoRoom => format!(
            "main and {level:.0} % of headroom leave side work little more than its tolerance, so there is nothing to measure"
        ),
        AutoState::Learning => about(format!(
            "measuring at {level:.0} % of headroom{idle_class}: at times 60 % is kept, to compare"
        )),
        AutoState::Known if found.ratio_ppm.is_none() => format!(
            "side work harms main with less than {level:.0} % of headroom, which is the most that is kept"
        ),
        AutoState::Known => about(format!(
            "{level:.0} % of headroom{idle_class} is the least at which that is within {aim}"
        )),
        AutoState::Unproven => about(format!(
            "that may be chance, so {level:.0} % of headroom{idle_class} is in force until harm is certain"
        )),
        AutoState::Unknown(why) => format!(
            "it cannot be told what side work costs main ({why}): {level:.0} % of headroom is in force"
        ),
    }
}

/// `side work costs main 1.3 % (0.4 to 2.2) more than at 60 % of headroom`, and where its waits decide also
/// `2.1 % (1.0 to 3.2) more of main's runs wait longer than 1.0 ms`.
fn cost(found: &Found) -> Option<String> {
    let [ratio, from, to] = found.ratio_ppm?.map(|ppm| (f64::from(ppm) - 1e6) / 1e4);
    let cost = format!(
        "side work costs main {ratio:.1} % ({from:.1} to {to:.1}) more than at 60 % of headroom"
    );
    let Some(tail) = deciding_tail(found) else {
        return Some(cost);
    };
    let [more, from, to] = tail.more_ppm.map(|ppm| f64::from(ppm) / 1e4);
    let ms = tail.late_after_ns as f64 / 1e6;
    Some(format!(
        "{cost}, and {more:.1} % ({from:.1} to {to:.1}) more of main's runs wait longer than {ms:.1} ms"
    ))
}

/// `5 %`, and `5 and 0.75 %` where main's waits decide.
fn accepted(found: &Found) -> String {
    let aim = f64::from(found.aim_ppm) / 1e4;
    match deciding_tail(found) {
        Some(tail) => format!("{aim} and {} %", f64::from(tail.aim_ppm) / 1e4),
        None => format!("{aim} %"),
    }
}

fn deciding_tail(found: &Found) -> Option<FoundTail> {
    found.tail.filter(|tail| tail.decides)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(state: AutoState, level_ppm: u32, ratio_ppm: Option<[u32; 3]>) -> String {
        harm_view(&Found {
            level_ppm,
            state,
            aim_ppm: 50_000,
            ratio_ppm,
            tail: None,
            is_low: false,
        })
        .sentence
    }

    #[test]
    fn where_main_s_waits_decide_they_are_told() {
        let mut found = Found {
            level_ppm: 600_000,
            state: AutoState::Known,
            aim_ppm: 50_000,
            ratio_ppm: Some([1_013_000, 1_004_000, 1_022_000]),
            tail: Some(FoundTail {
                late_after_ns: 1_040_000,
                more_ppm: [21_000, 9_000, 33_000],
                aim_ppm: 7_500,
                decides: true,
            }),
            is_low: false,
        };
        let view = harm_view(&found);
        assert_eq!(
            view.sentence,
            "side work costs main 1.3 % (0.4 to 2.2) more than at 60 % of headroom, and 2.1 % (0.9 to 3.3) more of main's runs wait longer than 1.0 ms; \
             60 % of headroom is the least at which that is within 5 and 0.75 %"
        );
        assert_eq!(
            (view.tail_pct, view.tail_after_us),
            (Some(2.1), Some(1040.0))
        );
        found.tail = found.tail.map(|tail| FoundTail {
            decides: false,
            ..tail
        });
        assert!(!sentence(&found).contains("runs"), "the mean decides");
    }

    #[test]
    fn harm_is_told_with_its_interval_and_the_level() {
        let ratio_ppm = Some([1_013_000, 1_004_000, 1_022_000]);
        assert_eq!(
            said(AutoState::Known, 150_000, ratio_ppm),
            "side work costs main 1.3 % (0.4 to 2.2) more than at 60 % of headroom; 15 % of headroom is the least at which that is within 5 %"
        );
        assert_eq!(
            said(
                AutoState::Unproven,
                150_000,
                Some([1_066_000, 982_000, 1_157_000])
            ),
            "side work costs main 6.6 % (-1.8 to 15.7) more than at 60 % of headroom; that may be chance, so 15 % of headroom is in force until harm is certain"
        );
        assert_eq!(
            said(AutoState::Learning, 0, None),
            "measuring at 0 % of headroom (the idle class alone, without a quota): at times 60 % is kept, to compare"
        );
    }

    #[test]
    fn why_it_is_not_known_is_told() {
        assert_eq!(
            said(AutoState::Unknown("drift"), 200_000, None),
            "it cannot be told what side work costs main (drift): 20 % of headroom is in force"
        );
    }
}
