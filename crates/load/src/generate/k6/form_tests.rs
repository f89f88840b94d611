//! The generator's output beside that of k6 1.8.1, which `testdata/k6` keeps as it was written: one
//! virtual user, three requests, within two seconds.

use std::collections::BTreeSet;

use super::*;

const BODY: &str = include_str!("../../../testdata/k6/body.txt");
const JSON: &str = include_str!("../../../testdata/k6/samples.json");
const CSV: &str = include_str!("../../../testdata/k6/samples.csv");

/// Where it was recorded.
const RECORDED_URL: &str = "http://127.0.0.1:28123/";
const URL: &str = url!();
const TIME_NS: u64 = 1_795_962_607_658_098_089;

/// A line with each number in its place as `0`, and the address that both had: its form.
fn form(line: &str) -> String {
    let line = line.replace(RECORDED_URL, URL);
    let mut form = String::new();
    for (at, part) in line.split(URL).enumerate() {
        if at > 0 {
            form.push_str(URL);
        }
        // Times of JSON have fractions of any length.
        let mut was_number = false;
        for character in part.chars() {
            let is_number = character.is_ascii_digit() || (was_number && character == '.');
            match (is_number, was_number) {
                (true, false) => form.push('0'),
                (true, true) => {}
                (false, _) => form.push(character),
            }
            was_number = is_number;
        }
    }
    form
}

fn forms(text: &str) -> BTreeSet<String> {
    text.lines().map(form).collect()
}

fn generated(kind: Form, requests: u64) -> (String, Sums) {
    let (mut out, mut sums) = (Vec::new(), Sums::default());
    kind.head(&mut out);
    for number in 0..requests {
        kind.request(&mut out, number, TIME_NS + number * 1_000, &mut sums);
    }
    kind.second(&mut out, TIME_NS);
    (String::from_utf8(out).expect("text"), sums)
}

/// Scenario: the generator writes what k6 wrote. Guarantee: each kind of line that k6 has is one of
/// the generator's, to the byte but for numbers and the address, and there are no others.
#[test]
fn the_lines_are_those_of_k6() {
    for (kind, recorded) in [(Form::Lines, BODY), (Form::Json, JSON), (Form::Csv, CSV)] {
        let (text, _) = generated(kind, 5);
        assert_eq!(forms(&text), forms(recorded), "{kind:?}");
    }
    // Numbers have their forms too.
    let (text, _) = generated(Form::Csv, 1);
    assert!(text.contains("http_reqs,1795962607,1.000000,,,,true,"), "{text}");
    let (text, _) = generated(Form::Lines, 1);
    assert!(text.contains("value=1 1795962607658098089\n"), "{text}");
    let (text, _) = generated(Form::Json, 1);
    assert!(text.contains("\"time\":\"2026-11-29T14:30:07.658098089Z\",\"value\":1,"), "{text}");
}

/// Guarantee: a request has as many samples as k6 takes for it, in k6's order.
#[test]
fn a_request_has_the_samples_of_k6() {
    let name = |line: &str| line.split([',', ' ']).next().unwrap_or_default().to_owned();
    let of_iteration = |text: &str| -> Vec<String> {
        text.lines().map(name).take(SAMPLES_PER_REQUEST as usize).collect()
    };
    let (text, _) = generated(Form::Lines, 1);
    assert_eq!(of_iteration(&text), of_iteration(BODY));
    assert_eq!(text.lines().count() as u64, SAMPLES_PER_REQUEST + OF_SECOND.len() as u64);
}

/// Guarantee: the sums are those of the values that were written, in each form.
#[test]
fn the_sums_are_those_of_what_was_written() {
    let sum = |text: &str, name: &str, value: fn(&str) -> Option<&str>| -> u64 {
        let lines = text.lines().filter(|line| line.starts_with(name));
        lines.filter_map(value).map(|value| value.parse::<f64>().expect("a number") as u64).sum()
    };
    let (lines, sums) = generated(Form::Lines, 1_000);
    let (csv, csv_sums) = generated(Form::Csv, 1_000);
    assert_eq!((sums[0], sums), (1_000, csv_sums));
    for (at, name) in COUNTERS.iter().enumerate() {
        let of_line: fn(&str) -> Option<&str> =
            |line| line.split("value=").nth(1)?.split(' ').next();
        assert_eq!(sum(&lines, &format!("{name},"), of_line), sums[at], "{name}");
        let of_row: fn(&str) -> Option<&str> = |row| row.split(',').nth(2);
        assert_eq!(sum(&csv, &format!("{name},"), of_row), sums[at], "{name}");
    }
}

/// Guarantee: no fraction, and one with zeros at its end, are written as Go writes them.
#[test]
fn times_are_written_as_go_does() {
    assert_eq!(rfc3339_nano(1_795_962_607 * SECOND_NS), "2026-11-29T14:30:07Z");
    assert_eq!(rfc3339_nano(1_795_962_607 * SECOND_NS + 120_000_000), "2026-11-29T14:30:07.12Z");
}
