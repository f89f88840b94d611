use console::strip_ansi_codes;

use super::*;
use crate::report::FaultWindow;
use crate::report::MEBIBYTE;

const WIDE: Screen = Screen { rows: 24, columns: 100 };

/// The second of three turns, 34 seconds into its load of a minute; backends refuse from second 30
/// to 40.
fn scene() -> Scene {
    let mut scene = Scene::new("traces, Multi Pipeline Backpressure", Some(3));
    scene.begin_turn("sluice");
    scene.begin_turn("otelcol");
    let window = FaultWindow {
        from_s: 30.0,
        to_s: Some(40.0),
        label: "70 % of requests answered 503".to_owned(),
    };
    scene.begin(Phase::Load { lasts: Duration::from_secs(60), windows: vec![window] });
    for second in 1..=34 {
        let share = f64::from(second.min(8)) / 8.0;
        scene.samples.push(Sample {
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

fn lines(scene: &Scene, elapsed_s: u64, screen: Screen) -> Vec<String> {
    let text = draw(scene, Duration::from_secs(elapsed_s), screen);
    strip_ansi_codes(&text).lines().map(str::to_owned).collect()
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
    let text = lines(&scene(), 34, WIDE).join("\n");
    assert_eq!(text, expected, "\n{text}");
}

#[test]
fn a_small_screen_shows_the_same_in_few_lines() {
    let expected = "\
otelcol (2/3)  under load
0:26 left, about 1:28 for all turns
received 20000/s, exported 60000/s
queue 512, memory 175 MB
CPU 0.98, p99 –
faults: 70 % of requests answered 503";
    assert_eq!(lines(&scene(), 34, Screen { columns: 41, ..WIDE }).join("\n"), expected);
}

#[test]
fn no_line_is_wider_than_any_screen() {
    for columns in [0, 1, 2, 10, 39, 40, 56, 80, 300] {
        for rows in [0, 1, 2, 3, 4, 5, 10, 14, 50] {
            let screen = Screen { columns, rows };
            let lines = lines(&scene(), 34, screen);
            assert!(
                lines.iter().all(|line| line.chars().count() < columns.max(1)),
                "{screen:?}: {lines:?}"
            );
        }
    }
}

#[test]
fn names_cannot_move_the_cursor() {
    let mut scene = scene();
    scene.begin_turn("evil\x1b[2J\r\nname");
    let text = draw(&scene, Duration::ZERO, WIDE);
    assert!(text.contains("evil[2Jname") && !text.contains("\x1b[2J"), "{text:?}");
}

#[test]
fn every_phase_says_what_it_waits_for_and_how_long() {
    let mut scene = scene();
    scene.begin(Phase::Draining { within: Duration::from_secs(30) });
    let drain = lines(&scene, 4, WIDE)[1..3].join("\n");
    assert!(drain.contains("drains") && drain.contains("0:04 of at most 0:30"), "{drain}");
    scene.begin(Phase::Waiting("Prometheus".to_owned()));
    let wait = lines(&scene, 4, WIDE)[1..3].join("\n");
    assert!(wait.contains("waits for Prometheus") && wait.ends_with("0:04"), "{wait}");
}

#[test]
fn a_log_line_and_a_summary_have_the_figures_and_a_dash_for_what_is_not_known() {
    assert_eq!(
        log_line(&scene(), Duration::from_secs(34)),
        "  34 s  otelcol (2/3): received 20000/s, exported 60000/s, queue 512, memory 175 MB, CPU 0.98, p99 –, \
         faults: 70 % of requests answered 503"
    );
    let kpis = Kpis { received_per_s: Some(19_500.4), lost: Some(0), ..Kpis::default() };
    assert_eq!(
        summary(&scene(), &kpis),
        "otelcol (2/3): received 19500/s, exported –, queue –, memory –, CPU –, p99 –, lost 0, doubled –"
    );
}

#[test]
fn clocks_count_up_to_hours() {
    let seconds = |seconds| clock(Duration::from_secs(seconds));
    assert_eq!([seconds(7), seconds(754), seconds(3723)], ["0:07", "12:34", "1:02:03"]);
    assert_eq!(clock(Duration::from_millis(200)), "0:01", "a second that has begun is not over");
}
