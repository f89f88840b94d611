use super::*;

fn round_trip(status: &Status) -> Status {
    let mut headers = HeaderMap::new();
    status.write_to(&mut headers);
    Status::read_from(&headers).expect("has a status")
}

#[test]
fn a_status_survives_its_headers() {
    for code in 0..=16 {
        let plain = Status::new(Code::from_number(code), "100 % of the queue is full: \"ö\"\n");
        assert_eq!(round_trip(&plain), plain);
        for delay in [
            Duration::ZERO,
            Duration::from_millis(1500),
            Duration::from_secs(300),
            Duration::MAX / 4,
        ] {
            let delayed = Status { retry_delay: Some(delay), ..plain.clone() };
            assert_eq!(round_trip(&delayed), delayed);
            assert_eq!(Status::decode_details(&delayed.encode_details()), Some(delayed));
        }
    }
}

#[test]
fn the_message_is_percent_encoded_as_the_specification_says() {
    let mut headers = HeaderMap::new();
    Status::new(Code::Internal, "a%b\u{fc}\r\n~").write_to(&mut headers);
    assert_eq!(headers[GRPC_MESSAGE], "a%25b%C3%BC%0D%0A~");
    headers.insert(GRPC_MESSAGE, HeaderValue::from_static("100% %zz %+1 %C3%BC %2"));
    assert_eq!(
        Status::read_from(&headers).expect("has a status").message,
        "100% %zz %+1 \u{fc} %2"
    );
}

#[test]
fn retry_info_is_encoded_as_other_implementations_do() {
    // grpc-go writes this for UNAVAILABLE "busy" with RetryInfo{1.5 s}.
    let expected = [
        &b"\x08\x0e\x12\x04busy"[..],
        b"\x1a\x36\x0a\x28type.googleapis.com/google.rpc.RetryInfo",
        b"\x12\x0a\x0a\x08\x08\x01\x10\x80\xca\xb5\xee\x01",
    ]
    .concat();
    let status = Status {
        retry_delay: Some(Duration::from_millis(1500)),
        ..Status::new(Code::Unavailable, "busy")
    };
    assert_eq!(status.encode_details(), expected);
}

#[test]
fn details_are_read_with_and_without_padding_and_ignored_when_malformed() {
    let status =
        Status { retry_delay: Some(Duration::from_secs(3)), ..Status::new(Code::Unavailable, "x") };
    let details = status.encode_details();
    let mut headers = HeaderMap::new();
    headers.insert(GRPC_STATUS, HeaderValue::from_static("14"));
    for (encoded, expected) in [
        (STANDARD.encode(&details), Some(Duration::from_secs(3))),
        (STANDARD_NO_PAD.encode(&details), Some(Duration::from_secs(3))),
        ("***".to_owned(), None),
        (STANDARD.encode(&details[..details.len() - 1]), None),
    ] {
        headers.insert(GRPC_STATUS_DETAILS, HeaderValue::try_from(encoded).expect("is ASCII"));
        assert_eq!(Status::read_from(&headers).expect("has a status").retry_delay, expected);
    }
}

#[test]
fn details_of_other_types_are_passed_over() {
    let mut bytes = vec![0x08, 8];
    bytes.extend_from_slice(b"\x1a\x06\x0a\x04a/bc");
    assert_eq!(Status::decode_details(&bytes), Some(Status::new(Code::ResourceExhausted, "")));
}

#[test]
fn unknown_codes_are_unknown_and_no_code_is_no_status() {
    let mut headers = HeaderMap::new();
    assert_eq!(Status::read_from(&headers), None);
    for value in ["17", "-1", "x", "99999999999999999999"] {
        headers.insert(GRPC_STATUS, HeaderValue::from_static(value));
        assert_eq!(Status::read_from(&headers).expect("has a status").code, Code::Unknown);
    }
}

#[test]
fn long_messages_are_cut_at_a_character() {
    let status = round_trip(&Status::new(Code::Internal, "\u{fc}".repeat(10_000)));
    assert!(status.message.len() <= crate::text::TEXT_LIMIT_BYTES);
    assert!(status.message.chars().all(|character| character == '\u{fc}'));
}
