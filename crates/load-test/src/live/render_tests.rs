use super::*;
use crate::report::FaultWindow;

const ROOMY: Screen = Screen { columns: 100, rows: 24, has_colours: false, has_unicode: true };

/// The second of three turns, 34 seconds into its load of a minute; backends refuse from second 30 to 40.
fn scene() -> Scene {
    let mut scene = Scene::new("traces, Multi Pipeline Backpressure", Some(3));
    scene.begin_turn("sluice");
    scene.begin_turn("otelcol");
    let window = FaultWindow { from_s: 30.0, to_s: Some(40.0), label: "70 % of requests answered 503".to_owned() };
    scene.begin(Phase::Load { lasts: Duration::from_secs(60), windows: vec![window] });
    for second in 1..=34 {
        let share = f64::from(second.min(8)) / 8.0;
        scene.add(&Sample {
            t_s: f64::from(second),
            received_per_s: Some(20_000.0 * share),
            exported_per_s: (second != 20).then_some(60_000.0 * share),
            queue: Some(if second > 30 { 512.0 } else { 0.0 }),
            memory_bytes: Some(175.4 * MEBIBYTE),
            cpu_cores: Some(0.984),
            ..Sample::default()
        });
    }
    scene
}

fn text(screen: Screen) -> String {
    frame(&scene(), Duration::from_secs(34), screen).join("\n")
}

#[test]
fn a_roomy_screen_shows_progress_figures_their_curves_and_the_faults_of_the_moment() {
    let expected = "\
sluice load-test  traces, Multi Pipeline Backpressure
otelcol  turn 2 of 3  under load
━━━━━━━━━━━━━━━━━━━━━━━─────────────────  0:26 left, about 1:28 for all turns

  received      20000/s  ▂▃▄▅▅▆▇███████████████████████████
  exported      60000/s  ▂▃▄▅▅▆▇████████████ ██████████████
  queue             512  ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁████
  memory         175 MB  ██████████████████████████████████
  CPU              0.98  ██████████████████████████████████
  p99                 –  
  faults: 70 % of requests answered 503";
    assert_eq!(text(ROOMY), expected, "\n{}", text(ROOMY));
}

#[test]
fn a_small_screen_shows_the_same_in_few_lines() {
    let expected = "\
otelcol (2/3)  under load
0:26 left, about 1:28 for all turns
in 20000/s  out 60000/s  queue 512  175 
faults: 70 % of requests answered 503";
    assert_eq!(text(Screen { columns: 41, ..ROOMY }), expected);
    let lowest = text(Screen { rows: 3, ..ROOMY });
    assert_eq!(
        lowest,
        "otelcol (2/3) 0:26 left, about 1:28 for all turns in 20000/s  out 60000/s  queue 512  175 MB  0.98 CPU"
            .chars()
            .take(99)
            .collect::<String>()
    );
}

#[test]
fn no_line_is_wider_and_no_frame_higher_than_any_screen() {
    for columns in [0, 1, 2, 10, 39, 40, 56, 80, 300] {
        for rows in [0, 1, 2, 3, 4, 5, 10, 14, 50] {
            let screen = Screen { columns, rows, ..ROOMY };
            let lines = frame(&scene(), Duration::from_secs(34), screen);
            assert!(!lines.is_empty() && lines.len() <= rows.saturating_sub(1).max(1), "{screen:?}: {lines:?}");
            assert!(lines.iter().all(|line| line.chars().count() < columns.max(1)), "{screen:?}: {lines:?}");
        }
    }
}

#[test]
fn without_colours_there_is_no_escape_and_without_unicode_only_ascii_but_the_dash() {
    let coloured = text(Screen { has_colours: true, ..ROOMY });
    assert!(coloured.contains("\x1b[31m  faults: 70") && coloured.contains("\x1b[0m"));
    assert!(!text(ROOMY).contains('\x1b'));
    let plain = text(Screen { has_unicode: false, ..ROOMY });
    assert!(plain.replace('–', "-").is_ascii() && plain.contains("=====---"), "{plain}");
}

#[test]
fn names_cannot_move_the_cursor() {
    let mut scene = scene();
    scene.begin_turn("evil\x1b[2J\r\nname");
    let lines = frame(&scene, Duration::ZERO, ROOMY);
    assert!(lines[1].starts_with("evil[2Jname  turn 3 of 3  starts"), "{}", lines[1]);
    assert!(lines.iter().all(|line| !line.contains(['\x1b', '\r', '\n'])));
}

#[test]
fn every_phase_says_what_it_waits_for_and_how_long() {
    let mut scene = scene();
    scene.begin(Phase::Draining { within: Duration::from_secs(30) });
    let second_and_third = |scene: &Scene| frame(scene, Duration::from_secs(4), ROOMY)[1..3].join("\n");
    let drain = second_and_third(&scene);
    assert!(drain.contains("drains") && drain.contains("0:04 of at most 0:30"), "{drain}");
    scene.begin(Phase::Waiting("Prometheus".to_owned()));
    let wait = second_and_third(&scene);
    assert!(wait.contains("waits for Prometheus") && wait.ends_with("0:04"), "{wait}");
}

#[test]
fn a_log_line_and_a_summary_have_the_figures_and_a_dash_for_what_is_not_known() {
    assert_eq!(
        log_line(&scene(), Duration::from_secs(34)),
        "  34 s  otelcol (2/3): received 20000/s, exported 60000/s, queue 512, 175 MB memory, 0.98 CPU, p99 –, \
         faults: 70 % of requests answered 503"
    );
    let kpis = Kpis { received_per_s: Some(19_500.4), lost: Some(0), ..Kpis::default() };
    assert_eq!(
        summary(&scene(), &kpis),
        "otelcol (2/3): received 19500/s, exported –, queue –, – memory, – CPU, p99 –, lost 0, doubled –"
    );
}

#[test]
fn clocks_count_up_to_hours() {
    let seconds = |seconds| clock(Duration::from_secs(seconds));
    assert_eq!([seconds(7), seconds(754), seconds(3723)], ["0:07", "12:34", "1:02:03"]);
    assert_eq!(clock(Duration::from_millis(200)), "0:01", "a second that has begun is not over");
}
