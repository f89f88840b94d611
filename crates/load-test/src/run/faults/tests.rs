//! Parsing, checking, describing and setting of faults.

use super::*;
use crate::backend::{Backend, Delay, Faults, Refuse};
use crate::report::FaultWindow;
use sluice_net::grpc::Code;

const MINUTE: Duration = Duration::from_secs(60);

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

fn parse(text: &str) -> ScheduledFault {
    text.parse().unwrap()
}

fn schedule(texts: &[&str], pipelines: usize) -> Result<FaultSchedule, (String, String)> {
    FaultSchedule::new(texts.iter().map(|text| parse(text)).collect(), MINUTE, pipelines)
}

#[test]
fn what_is_written_is_what_is_meant_and_reads_the_same_again() {
    let stall = parse("stall, from=10,to=20s,pipeline=0+2,share=0.25");
    let expected = ScheduledFault {
        kind: FaultKind::Stall,
        share: 0.25,
        from: seconds(10.0),
        to: Some(seconds(20.0)),
        pipelines: vec![0, 2],
    };
    assert_eq!(stall, expected);
    assert_eq!(parse("throttle").kind, FaultKind::Throttle { retry_after: seconds(1.0) });
    let texts = [
        "refuse,share=0.7",
        "throttle,retry-after=2.5,from=1",
        "delay,by=1,share=0.7",
        "reset,to=9",
        "outage,pipeline=1",
    ];
    for text in texts {
        assert_eq!(parse(&parse(text).to_string()), parse(text), "{text}");
    }
}

#[test]
fn the_part_that_is_wrong_is_named_with_what_helps() {
    let cases = [
        (
            "stal,from=1",
            "no fault `stal`: there are refuse, throttle, delay, stall, reset and outage",
        ),
        ("", "no fault ``: there are refuse"),
        ("stall,from", "`from`: write name=value"),
        ("stall,form=1", "`form`: stall takes share, from, to, pipeline"),
        ("outage,share=0.5", "`share`: outage takes from, to, pipeline"),
        ("refuse,by=1", "`by`: refuse takes share, from, to, pipeline"),
        ("stall,from=1,from=2", "`from` is given twice"),
        ("refuse,share=70", "`share=70`: give a share of the requests above 0, up to 1"),
        ("refuse,share=0", "above 0"),
        ("stall,to=soon", "`to=soon`: give a number of seconds"),
        ("stall,from=-1", "give a number of seconds"),
        (
            "stall,pipeline=one",
            "`pipeline=one`: give a pipeline's number from 0, or several as 0+2",
        ),
        ("delay", "add by=SECONDS"),
        ("stall,from=20,to=10", "to=10: the fault begins at 20 s and must end later"),
    ];
    for (text, expected) in cases {
        let error = text.parse::<ScheduledFault>().unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn a_fault_that_the_run_cannot_have_is_refused() {
    let cases: [(&[&str], usize, &str); 7] = [
        (&["stall,from=60"], 1, "begins at 60 s and the load ends at 60 s"),
        (&["stall,to=61"], 1, "to=61: the load ends at 60 s: leave `to` away"),
        (&["stall,pipeline=1"], 1, "pipeline=1: there is pipeline 0 only: add -m"),
        (&["stall,pipeline=0+3"], 3, "pipeline=3: there are pipelines 0 to 2"),
        (
            &["refuse,share=0.5,to=20", "throttle,from=10"],
            1,
            "than `refuse,share=0.5,to=20` does at 10 s",
        ),
        (
            &["outage,pipeline=1", "outage"],
            3,
            "give pipeline 1 another answer than `outage,pipeline=1` does at 0 s",
        ),
        (&["delay,by=1", "delay,by=2,from=59"], 1, "let one end before the other begins"),
    ];
    for (texts, pipelines, expected) in cases {
        let (fault, error) = schedule(texts, pipelines).unwrap_err();
        assert!(error.to_string().contains(expected), "{texts:?}: {error}");
        assert_eq!(
            parse(&fault),
            parse(texts.last().unwrap()),
            "the later of two is the one that is named"
        );
    }
    schedule(&["refuse,to=20", "throttle,from=20", "stall,from=10", "outage,from=30,to=40"], 1)
        .unwrap();
    schedule(&["refuse,pipeline=0", "throttle,pipeline=1+2"], 3).unwrap();
}

#[test]
fn faults_that_meet_are_had_together() {
    let schedule = schedule(
        &[
            "refuse,share=0.7",
            "delay,by=1,share=0.7",
            "outage,from=10,to=20,pipeline=1",
            "reset,from=15,to=30",
        ],
        3,
    )
    .unwrap();
    let refuse = Some(Refuse { share: 0.7, code: Code::Unavailable, retry_delay: None });
    let always =
        Faults { refuse, delay: Some(Delay { share: 0.7, by: seconds(1.0) }), ..Faults::default() };
    let of = |pipeline| -> Vec<_> {
        let steps = schedule.timeline(pipeline, MINUTE).into_iter();
        steps.map(|(at, faults)| (at.as_secs(), faults)).collect()
    };
    let resets = Faults { reset_share: 1.0, ..always.clone() };
    assert_eq!(
        of(0),
        [(0, always.clone()), (15, resets.clone()), (30, always.clone()), (60, Faults::default())]
    );
    let dead = Faults { dead: true, ..always.clone() };
    let both = Faults { dead: true, ..resets.clone() };
    let second = [
        (0, always.clone()),
        (10, dead),
        (15, both),
        (20, resets),
        (30, always),
        (60, Faults::default()),
    ];
    assert_eq!(of(1), second);
}

#[test]
fn a_gap_between_two_faults_is_well() {
    let schedule =
        schedule(&["outage,from=5,to=10", "throttle,retry-after=3,from=20,share=0.5"], 1).unwrap();
    let refuse =
        Refuse { share: 0.5, code: Code::ResourceExhausted, retry_delay: Some(seconds(3.0)) };
    let expected = [
        (seconds(5.0), Faults::dead()),
        (seconds(10.0), Faults::default()),
        (seconds(20.0), Faults { refuse: Some(refuse), ..Faults::default() }),
        (MINUTE, Faults::default()),
    ];
    assert_eq!(schedule.timeline(0, MINUTE), expected);
}

#[test]
fn reports_say_what_was_wrong_and_when() {
    let texts = [
        "refuse,share=0.7,to=61",
        "throttle,retry-after=5,from=61,pipeline=1",
        "outage,from=10,to=20,pipeline=0+2",
    ];
    let faults = texts.iter().map(|text| parse(text)).collect();
    let schedule = FaultSchedule::new(faults, 2 * MINUTE, 3).unwrap();
    let words = "70 % of requests answered 503 from 0 to 61 s; all requests answered 429 with \
    Retry-After 5 s \
    (pipeline 1) from 61 s; \
                 connections refused (pipelines 0, 2) from 10 to 20 s";
    assert_eq!(schedule.in_words().unwrap(), words);
    assert_eq!(FaultSchedule::default().in_words(), None);
    // Interrupted at 15 s: faults that had not begun are absent, active ones ended with the load.
    let window = |from_s, to_s, label: &str| FaultWindow {
        from_s,
        to_s: Some(to_s),
        label: label.to_owned(),
    };
    let expected = [
        window(0.0, 15.0, "70 % of requests answered 503"),
        window(10.0, 15.0, "connections refused (pipelines 0, 2)"),
    ];
    assert_eq!(schedule.windows(seconds(15.0)), expected);
}

async fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let began = tokio::time::Instant::now();
    while !is_so() {
        assert!(began.elapsed() < seconds(20.0), "{what}");
        tokio::time::sleep(seconds(0.005)).await;
    }
}

#[tokio::test]
async fn each_backend_is_told_by_the_clock_and_all_are_well_at_the_end() {
    let backends = [Backend::healthy().await.unwrap(), Backend::healthy().await.unwrap()];
    let schedule = schedule(&["refuse,share=0.7,to=3", "stall,from=1,to=2,pipeline=1"], 2).unwrap();
    let current = |index: usize| Faults::clone(&backends[index].faults().current());
    let refusing = Faults::unavailable(0.7);
    let running = schedule.start(&backends, MINUTE, false);
    assert_eq!((current(0), current(1)), (refusing.clone(), refusing.clone()), "at once");
    let stalled = Faults { stall_share: 1.0, ..refusing.clone() };
    wait_until("stalls", || current(1) == stalled).await;
    assert_eq!(current(0), refusing, "the other does not");
    wait_until("stalls no more", || current(1) == refusing).await;
    wait_until("is well", || current(0) == Faults::default() && current(1) == Faults::default())
        .await;
    drop(running);
    // Ended early, nothing comes later.
    let running = schedule.start(&backends, MINUTE, false);
    assert_eq!(current(0), refusing);
    running.end(&backends).await;
    assert_eq!((current(0), current(1)), (Faults::default(), Faults::default()));
    tokio::time::sleep(seconds(1.3)).await;
    assert_eq!(current(1), Faults::default());
}
