//! Screens as they are drawn, and what keys do to them.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use tidegate_api::{
    Decision, EventView, ExplainView, GateView, HeldView, Limit, LimitView, StatusView,
};

use super::draw;
use super::feed::News;
use super::keys::{Command, press};
use super::screen::{Note, Page, Screen};
use super::style::Look;
use super::{as_text, screen};

const NOW: u64 = 1_795_631_144;

fn gate(name: &str, class: &str, usage_cpus: f64) -> GateView {
    GateView {
        name: name.into(),
        class: class.into(),
        target: "run".into(),
        command: Some(format!("{name} --of=a/file")),
        usage_cpus: Some(usage_cpus),
        allowance_cpus: (class == "side").then_some(1.32),
        held: HeldView {
            limit: match class {
                "side" => Limit::Headroom,
                _ => Limit::None,
            },
            ..HeldView::default()
        },
        age_seconds: 100.0,
        ..GateView::default()
    }
}

fn machine(gates: Vec<GateView>) -> StatusView {
    StatusView {
        version: "0.1.0".into(),
        pid: 4707,
        mode: "service".into(),
        engine: "cgroup".into(),
        uptime_seconds: 7_300.0,
        cpus: 2,
        capacity_cpus: 2.0,
        main_cpus: 0.68,
        side_cpus: 0.93,
        idle_cpus: 0.39,
        decision: Decision {
            limit: Limit::Headroom,
            allowance_cpus: 1.32,
            ..Decision::default()
        },
        headroom_ratio: 0.2,
        headroom_from: "gate web".into(),
        idle_kept_ratio: 0.193,
        guardian_pid: Some(4711),
        gates,
        ..StatusView::default()
    }
}

fn usual() -> Screen {
    let mut screen = Screen::new(1);
    let mut web = gate("web", "main", 0.6);
    web.own_limit = Some(LimitView {
        by: "quota".into(),
        cpus: 0.75,
        ..LimitView::default()
    });
    let mut child = gate("encode-2", "side", 0.33);
    child.parent = Some("encode".into());
    child.nr_throttled = 7;
    child.throttled_seconds = 12.34;
    let gates = vec![gate("encode", "side", 0.6), child, web];
    for ago in (0..=60).rev() {
        let mut then = machine(gates.clone());
        let was_cut = ago < 30;
        then.main_cpus = if was_cut { 0.68 } else { 0.2 };
        then.decision.allowance_cpus = if was_cut { 0.92 } else { 1.4 };
        then.side_cpus = then.decision.allowance_cpus - 0.05;
        screen.take(News::Status(Box::new(then)), NOW - ago);
    }
    screen.take(News::Status(Box::new(machine(gates))), NOW);
    screen
}

fn key(screen: &mut Screen, code: KeyCode) -> Command {
    press(screen, KeyEvent::new(code, KeyModifiers::NONE))
}

fn typed(screen: &mut Screen, text: &str) -> Command {
    let mut last = Command::None;
    for c in text.chars() {
        last = key(screen, KeyCode::Char(c));
    }
    last
}

fn plain() -> Look {
    Look::new(false, false)
}

#[test]
fn the_usual_screen() {
    let mut screen = usual();
    screen.move_by(1);
    insta::assert_snapshot!(as_text(&mut screen, &Look::new(true, false), 80, 24));
}

#[test]
fn a_large_screen() {
    insta::assert_snapshot!(as_text(&mut usual(), &plain(), 120, 40));
}

#[test]
fn ascii_alone() {
    let mut screen = usual();
    let alert = "the guardian is gone – 500‰".to_owned();
    screen.machine.as_mut().unwrap().alerts.push(alert);
    let text = as_text(&mut screen, &Look::new(true, true), 80, 24);
    assert!(text.is_ascii(), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn every_page_fits_every_size() {
    for (columns, lines) in [(1, 1), (20, 5), (80, 24), (300, 100)] {
        for page in [Page::List, Page::Explain, Page::Events, Page::Help] {
            let mut screen = usual();
            screen.page = page;
            screen.scroll = usize::MAX;
            as_text(&mut screen, &Look::new(true, false), columns, lines);
        }
    }
}

#[test]
fn the_agent_goes_and_another_comes() {
    let mut screen = usual();
    screen.move_by(1);
    screen.take(News::Lost("the agent has ended".into()), NOW);
    let text = as_text(&mut screen, &plain(), 80, 24);
    assert!(
        text.contains("agent gone: the agent has ended") && text.contains("encode-2"),
        "what was known is still shown: {text}"
    );
    let mut next = machine(screen.gates.clone());
    next.pid = 5000;
    next.uptime_seconds = 1.0;
    let chosen = screen.chosen().unwrap();
    screen.take(News::NewAgent, NOW);
    screen.take(News::Status(Box::new(next)), NOW);
    let text = as_text(&mut screen, &plain(), 80, 24);
    assert!(
        text.contains("agent 5000") && !text.contains("gone"),
        "{text}"
    );
    assert!(screen.is_there(&chosen), "gates outlive their agent");
}

#[test]
fn a_selected_gate_stays_selected_wherever_it_moves() {
    let mut screen = usual();
    screen.move_by(1);
    screen.move_by(1);
    assert_eq!(screen.selected.as_deref(), Some("web"));
    let mut gates = screen.gates.clone();
    gates
        .iter_mut()
        .find(|gate| gate.name == "web")
        .unwrap()
        .usage_cpus = Some(1.9);
    gates.push(gate("new", "side", 1.8));
    screen.take(News::Status(Box::new(machine(gates))), NOW);
    let rows = screen.rows();
    assert_eq!(screen.position(&rows), Some(0), "it is the first by now");
    assert_eq!(screen.selected.as_deref(), Some("web"));
}

#[test]
fn an_action_asks_and_is_on_the_gate_that_was_asked_about() {
    let mut screen = usual();
    assert!(matches!(
        key(&mut screen, KeyCode::Char('u')),
        Command::None
    ));
    assert!(matches!(&screen.note, Some(Note::Error(why)) if why.contains("no gate is selected")));
    screen.move_by(1);
    let first = screen.selected.clone().unwrap();
    key(&mut screen, KeyCode::Char('u'));
    insta::assert_snapshot!(
        as_text(&mut screen, &plain(), 80, 24)
            .lines()
            .last()
            .unwrap()
    );
    // Meanwhile the list turns round.
    key(&mut screen, KeyCode::Char('n'));
    key(&mut screen, KeyCode::Char('s'));
    key(&mut screen, KeyCode::Char('u'));
    let Command::Unset(request) = key(&mut screen, KeyCode::Char('y')) else {
        panic!("not taken back");
    };
    assert_eq!(request.target, format!("gate:{first}"));
}

#[test]
fn a_later_gate_of_the_same_name_is_not_meant() {
    let mut screen = usual();
    screen.move_by(1);
    key(&mut screen, KeyCode::Char('u'));
    let mut gates = screen.gates.clone();
    for gate in &mut gates {
        gate.age_seconds = 0.5;
    }
    screen.take(News::Status(Box::new(machine(gates))), NOW);
    assert!(matches!(
        key(&mut screen, KeyCode::Char('y')),
        Command::None
    ));
    assert!(matches!(&screen.note, Some(Note::Error(why)) if why.contains("has ended meanwhile")));
}

#[test]
fn terms_are_read_before_they_are_sent() {
    let mut screen = usual();
    screen.move_by(1);
    typed(&mut screen, "=weight=many");
    assert!(matches!(key(&mut screen, KeyCode::Enter), Command::None));
    let foot = as_text(&mut screen, &plain(), 100, 24);
    assert!(foot.contains("weight"), "{foot}");
    for _ in 0.."many".len() {
        key(&mut screen, KeyCode::Backspace);
    }
    typed(&mut screen, "50 cap_hard=200‰");
    let Command::Set(request) = key(&mut screen, KeyCode::Enter) else {
        panic!("not set: {:?}", screen.note);
    };
    assert_eq!(request.terms["weight"], "50");
    assert_eq!(request.terms["cap_hard"], "200‰");
}

#[test]
fn the_list_is_filtered_sorted_and_a_tree() {
    let mut screen = usual();
    let names = |screen: &Screen| -> Vec<(usize, String)> {
        let rows = screen.rows();
        rows.iter()
            .map(|row| (row.depth, row.gate.name.clone()))
            .collect()
    };
    let named = |all: &[(usize, &str)]| -> Vec<(usize, String)> {
        all.iter()
            .map(|(depth, name)| (*depth, (*name).to_owned()))
            .collect()
    };
    key(&mut screen, KeyCode::Char('t'));
    assert_eq!(
        names(&screen),
        named(&[(0, "encode"), (1, "encode-2"), (0, "web")])
    );
    typed(&mut screen, "/ENCODE-");
    assert_eq!(
        names(&screen),
        named(&[(0, "encode-2")]),
        "its parent is not shown"
    );
    key(&mut screen, KeyCode::Esc);
    assert_eq!(names(&screen).len(), 3, "as before");
    key(&mut screen, KeyCode::Char('t'));
    key(&mut screen, KeyCode::Char('<'));
    key(&mut screen, KeyCode::Char('<'));
    key(&mut screen, KeyCode::Char('s'));
    assert_eq!(
        names(&screen),
        named(&[(0, "web"), (0, "encode-2"), (0, "encode")])
    );
}

#[test]
fn a_frozen_list_stands_still_and_the_machine_goes_on() {
    let mut screen = usual();
    key(&mut screen, KeyCode::Char(' '));
    let mut next = machine(vec![gate("other", "side", 1.0)]);
    next.main_cpus = 1.11;
    screen.take(News::Status(Box::new(next)), NOW + 1);
    let text = as_text(&mut screen, &plain(), 80, 24);
    assert!(
        text.contains("1.11") && text.contains("encode-2") && !text.contains("other"),
        "{text}"
    );
    key(&mut screen, KeyCode::Char(' '));
    assert_eq!(screen.rows().len(), 1);
}

#[test]
fn the_page_about_a_gate_is_asked_for_at_each_look() {
    let mut screen = usual();
    screen.move_by(1);
    key(&mut screen, KeyCode::Enter);
    let name = screen.wants_explained().unwrap();
    assert_eq!(screen.wants_explained(), None, "once a look");
    let status = machine(screen.gates.clone());
    screen.take(News::Status(Box::new(status.clone())), NOW);
    assert_eq!(screen.wants_explained().as_ref(), Some(&name));
    let view = ExplainView {
        gate: gate(&name, "side", 0.6),
        summary: "encode uses 0.60 CPUs of the 1.32 that side work may use".into(),
        status,
        ..ExplainView::default()
    };
    screen.take(
        News::Explained("another".into(), Box::new(Err("no".into()))),
        NOW,
    );
    assert!(screen.explained.is_none(), "an answer that comes late");
    screen.take(News::Explained(name, Box::new(Ok(view))), NOW);
    insta::assert_snapshot!(as_text(&mut screen, &plain(), 80, 24));
}

#[test]
fn events_are_listed_from_the_newest() {
    let mut screen = usual();
    let events = (1..2_000).map(|seq| EventView {
        seq,
        kind: "outside_write".into(),
        gate: Some("web\u{1b}[2J".into()),
        message: format!("number {seq}"),
        ..EventView::default()
    });
    screen.take(News::Events(events.collect()), NOW);
    key(&mut screen, KeyCode::Char('e'));
    let text = as_text(&mut screen, &plain(), 80, 24);
    let first = text.lines().nth(4).unwrap();
    assert!(
        first.contains("number 1999") && !first.contains('\u{1b}'),
        "{first}"
    );
    key(&mut screen, KeyCode::End);
    let text = as_text(&mut screen, &plain(), 80, 24);
    assert!(
        text.contains("number 1000") && !text.contains("number 999"),
        "{text}"
    );
    assert!(matches!(
        key(&mut screen, KeyCode::Char('q')),
        Command::None
    ));
    assert!(matches!(
        key(&mut screen, KeyCode::Char('q')),
        Command::Quit
    ));
}

#[test]
fn a_machine_that_is_not_measured_says_so() {
    let mut screen = Screen::new(1);
    let mut status = machine(vec![]);
    status.capacity_cpus = 0.0;
    screen.take(News::Status(Box::new(status)), NOW);
    let text = as_text(&mut screen, &plain(), 80, 24);
    assert!(
        text.contains("nothing is limited") && text.contains("no gates"),
        "{text}"
    );
}

#[test]
fn one_screen_has_all_gates() {
    let gates = (0..500).map(|nth| gate(&format!("g{nth}"), "side", 0.01));
    let mut screen = Screen::new(1);
    screen.take(News::Status(Box::new(machine(gates.collect()))), NOW);
    let lines = draw::height_of_all(&screen);
    let text = as_text(&mut screen, &plain(), 80, lines);
    assert_eq!(text.matches("headroom").count(), 500);
    assert!(screen.points.len() <= screen::PLOT_S as usize + 1);
}
