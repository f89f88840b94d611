//! `severity_parser`, with the Collector's cases.

use sluice_otlp::AnyValue;

use super::{applied, built, text};

fn severity(options: &str, body: AnyValue) -> Result<(u8, String), String> {
    let options = format!("parse_from: body\n{options}");
    let record = applied("severity_parser", &options, body)?;
    Ok((record.severity, record.severity_text))
}

#[test]
fn names_and_numbers_of_severities_are_known_in_any_letter_case() {
    let levels = ["trace", "debug", "info", "warn", "error", "fatal"];
    for (level, name) in (0..).zip(levels) {
        for (step, suffix) in (1..).zip(["", "2", "3", "4"]) {
            let (number, name) = (level * 4 + step, format!("{name}{suffix}"));
            for written in [name.clone(), name.to_uppercase(), number.to_string()] {
                let expected = Ok((number, written.clone()));
                assert_eq!(severity("", text(&written)), expected);
                assert_eq!(severity("preset: otel", text(&written)), expected);
                assert_eq!(severity("preset: none", text(&written)), Ok((0, written)));
            }
            assert_eq!(severity("", AnyValue::Int(i64::from(number))).unwrap().0, number);
        }
    }
    assert_eq!(severity("", text("Warning")), Ok((13, "Warning".to_owned())));
    assert_eq!(severity("", text("err3")), Ok((19, "err3".to_owned())));
    assert_eq!(severity("preset: otel", text("warning")), Ok((0, "warning".to_owned())));
    assert_eq!(severity("", text("blah")), Ok((0, "blah".to_owned())));
}

#[test]
fn a_mapping_has_values_lists_ranges_and_classes() {
    let mapping = "mapping:\n  error: NOOOOOOO\n  ErRoR2: [critical, this is bad, 1234]\n  \
                   warn: {min: 300, max: 200}\n  info: 4xx\n  fatal: [5xx, {min: -9, max: -1}]\n  \
                   17: seventeen\n  debug: [9]\n  default: {min: 1000, max: 1010}\n  trace: ÀÉ";
    for (body, expected) in [
        (text("NOOOOOOO"), 17),
        (text("nooooooo"), 17),
        (text("ThiS Is BaD"), 18),
        (AnyValue::Int(1234), 18),
        (AnyValue::Double(1234.0), 18),
        (AnyValue::Bytes(b"Critical".to_vec()), 18),
        (AnyValue::Int(199), 0),
        (AnyValue::Int(200), 13),
        (AnyValue::Int(300), 13),
        (text("301"), 0),
        (text("+250"), 0),
        (text("0250"), 0),
        (text("404"), 9),
        (AnyValue::Int(599), 21),
        (AnyValue::Int(-5), 21),
        (text("-05"), 0),
        (text("SEVENTEEN"), 17),
        (AnyValue::Int(9), 5),
        (AnyValue::Int(10), 10),
        (AnyValue::Int(1005), 0),
        (text("àé"), 1),
        (text(&"é".repeat(100)), 0),
        (text("Warning"), 13),
    ] {
        assert_eq!(severity(mapping, body.clone()).map(|it| it.0), Ok(expected), "{body:?}");
    }
}

/// As in the Collector, an empty preset is the default.
#[test]
fn the_preset_may_be_empty() {
    assert_eq!(severity("preset: ''", text("warning")).map(|it| it.0), Ok(13));
}

#[test]
fn the_text_is_the_value_or_the_name_of_the_severity() {
    let overwriting = "overwrite_text: true\nmapping: {error3: [NOOO, 7]}";
    assert_eq!(severity(overwriting, text("nooo")), Ok((19, "ERROR3".to_owned())));
    assert_eq!(severity(overwriting, AnyValue::Int(7)), Ok((19, "ERROR3".to_owned())));
    assert_eq!(severity(overwriting, text("other")), Ok((0, "other".to_owned())));
    let keeping = "mapping: {error3: [NOOO, 7]}";
    assert_eq!(severity(keeping, text("nooo")), Ok((19, "nooo".to_owned())));
    assert_eq!(severity(keeping, AnyValue::Double(7.0)), Ok((19, "7".to_owned())));
}

#[test]
fn values_that_are_no_severity_are_refused() {
    for (body, kind) in [
        (AnyValue::Double(1.5), "a number"),
        (AnyValue::Bool(true), "a boolean"),
        (AnyValue::Empty, "empty"),
        (AnyValue::Map(Vec::new()), "a map"),
        (AnyValue::Double(f64::NAN), "a number"),
    ] {
        let error = severity("", body.clone()).unwrap_err();
        assert_eq!(error, format!("`body` is {kind}, not a severity"), "{body:?}");
    }
    let missing = applied("severity_parser", "parse_from: attributes['a.b']", text("info"));
    assert_eq!(missing.unwrap_err(), "the record has no `attributes[\"a.b\"]`");
}

#[test]
fn mappings_that_are_wrong_are_named() {
    for (mapping, expected) in [
        ("{eror: x}", "has `eror`, which is no severity (did you mean `error`?)"),
        ("{error: [[x]]}", "has a list within a list"),
        ("{error: 1.5}", "has a number with a fraction as a value"),
        ("{error: true}", "has a boolean as a value"),
        ("{error: {min: 1}}", "has a range without whole numbers as `min` and `max`"),
        ("{error: {min: 1, max: x}}", "has a range without whole numbers"),
        ("[error]", "must be a mapping"),
    ] {
        let options = format!("parse_from: body\nmapping: {mapping}");
        let error = built("severity_parser", &options).err().unwrap_or_default();
        assert!(error.contains(expected), "{mapping}: {error}");
    }
}
