//! Contents of files: texts that are always the same, and generated ones with a seed each.

use fastrand::Rng;

/// Lines of words, some beyond ASCII.
pub(crate) fn plain(seed: u64, lines: usize) -> Vec<u8> {
    let mut rng = Rng::with_seed(seed);
    let lines = (0..lines).map(|number| format!("{number} {}\n", words(&mut rng, 1..9)));
    lines.collect::<String>().into_bytes()
}

pub(crate) fn words(rng: &mut Rng, count: std::ops::Range<usize>) -> String {
    const WORDS: [&str; 14] = [
        "ready",
        "Grüße",
        "GET",
        "/cart/7?q=a%20b",
        "日本語",
        "🌍",
        "a=b",
        "\"quoted\"",
        "\\n",
        "it's",
        "x,y;z",
        "[id]",
        "0x1f",
        "-",
    ];
    let words: Vec<_> = (0..rng.usize(count)).map(|_| WORDS[rng.usize(..WORDS.len())]).collect();
    words.join(" ")
}

/// Lines with white space around them, or of nothing else.
pub(crate) fn spaces(seed: u64) -> Vec<u8> {
    const SPACES: [&str; 8] = ["", "", "", " ", "\t", "  \t ", "\u{a0}", "\u{b}"];
    let mut rng = Rng::with_seed(seed);
    let mut text = String::new();
    for number in 0..80 {
        for _ in 0..2 {
            text.push_str(SPACES[rng.usize(..SPACES.len())]);
        }
        if rng.u8(..3) > 0 {
            text.push_str(&format!("{number} {}", words(&mut rng, 0..3)));
        }
        for _ in 0..2 {
            text.push_str(SPACES[rng.usize(..SPACES.len())]);
        }
        text.push('\n');
    }
    text.into_bytes()
}

/// Lines that end with CRLF, with LF, and with more than that.
pub(crate) fn crlf(seed: u64) -> Vec<u8> {
    const ENDS: [&str; 6] = ["\r\n", "\r\n", "\r\n", "\n", "\r\r\n", "\r\n\r\n"];
    let mut rng = Rng::with_seed(seed);
    let mut text = String::new();
    for number in 0..60 {
        let inside = if rng.u8(..6) == 0 { "\r" } else { "" };
        text.push_str(&format!("{number}{inside} {}", words(&mut rng, 0..4)));
        text.push_str(ENDS[rng.usize(..ENDS.len())]);
    }
    text.into_bytes()
}

/// Lines with NUL, control characters, and bytes that are no UTF-8.
pub(crate) fn bytes(seed: u64) -> Vec<u8> {
    const PIECES: [&[u8]; 14] = [
        b"a",
        b"\0",
        b"\0\0\0",
        b"\x1b[31m",
        b"\x7f",
        b"\xff",
        b"\xc3",
        b"\xe2\x82",
        b"\xf0\x9f\x8c",
        b"\xed\xa0\x80",
        b"\xc0\xaf",
        "€".as_bytes(),
        "\u{fffd}".as_bytes(),
        "\u{feff}".as_bytes(),
    ];
    let mut rng = Rng::with_seed(seed);
    let mut content = Vec::new();
    for number in 0..80 {
        content.extend_from_slice(format!("{number} ").as_bytes());
        for _ in 0..rng.usize(1..6) {
            content.extend_from_slice(PIECES[rng.usize(..PIECES.len())]);
        }
        content.push(b'\n');
    }
    content
}

/// Lines of ASCII, most of them longer than 100 bytes.
pub(crate) fn long(seed: u64) -> Vec<u8> {
    let mut rng = Rng::with_seed(seed);
    let mut text = String::new();
    for number in 0..50 {
        text.push_str(&format!("{number} "));
        let length = [20, 97, 98, 99, 100, 101, 199, 200, 201, 350, 1000][rng.usize(..11)];
        text.extend((0..length).map(|_| if rng.u8(..9) == 0 { ' ' } else { rng.alphanumeric() }));
        text.push('\n');
    }
    text.into_bytes()
}

/// Records of several lines, which begin with a date, with other lines before the first one.
pub(crate) fn stack(seed: u64) -> Vec<u8> {
    let mut rng = Rng::with_seed(seed);
    let mut text = "before the first\n\nand more\n".to_owned();
    for number in 0..60 {
        let (month, day) = (rng.u8(1..=12), rng.u8(1..=28));
        text.push_str(&format!("2024-{month:02}-{day:02} ERROR {number} "));
        text.push_str(&words(&mut rng, 0..5));
        for _ in 0..rng.usize(0..4) {
            text.push_str(["\n  at main.rs:7", "\n\tcaused by: x", "\n"][rng.usize(..3)]);
        }
        text.push_str([" end\n", "\n", " end \n", " the end of it\n"][rng.usize(..4)]);
    }
    text.into_bytes()
}

/// The same text as UTF-16.
pub(crate) fn utf_16(text: &str, to_bytes: fn(u16) -> [u8; 2]) -> Vec<u8> {
    text.encode_utf16().flat_map(to_bytes).collect()
}

/// Lines of JSON objects, some of them with mistakes.
pub(crate) fn json(seed: u64, mistakes: bool) -> Vec<u8> {
    let mut rng = Rng::with_seed(seed);
    let mut text = String::new();
    for number in 0..60 {
        let mut line = format!(
            "{{\"time\": \"2024-03-{:02}T10:{:02}:07.{:03}Z\", \"level\": {}, \"n\": {number}, \
            {}}}",
            rng.u8(1..=28),
            rng.u8(..60),
            rng.u16(..1000),
            ["\"info\"", "\"WARN\"", "\"error2\"", "\"odd\"", "3", "null"][rng.usize(..6)],
            json_entries(&mut rng, 3),
        );
        if mistakes && rng.u8(..4) == 0 {
            let at = rng.usize(..line.len());
            match (rng.u8(..4), line.is_char_boundary(at)) {
                (0, true) => line.truncate(at),
                (1, true) => line.insert(at, '"'),
                (2, _) => line.push_str(" {}"),
                _ => line = ["", "text", "[1]", "null", "\"a\"", "17"][rng.usize(..6)].to_owned(),
            }
        }
        text.push_str(&line);
        text.push('\n');
    }
    text.into_bytes()
}

fn json_entries(rng: &mut Rng, depth: usize) -> String {
    const KEYS: [&str; 8] = ["a", "b", "msg", "user.id", "user", "Grüße", "", "a b"];
    let mut keys = KEYS.to_vec();
    rng.shuffle(&mut keys);
    let keys = &keys[..rng.usize(1..4)];
    let entries = keys.iter().map(|key| format!("\"{key}\":{}", json_value(rng, depth)));
    entries.collect::<Vec<_>>().join(",")
}

fn json_value(rng: &mut Rng, depth: usize) -> String {
    const LEAVES: [&str; 20] = [
        "null",
        "true",
        "false",
        "0",
        "-0",
        "17",
        "-5",
        "1.5",
        "1.0",
        "1e3",
        "-2.5E-3",
        "9007199254740993",
        "9223372036854775807",
        "123456789012345678901",
        "\"\"",
        "\"text\"",
        "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
        "\"\\u00e9\\ud83d\\ude00\"",
        "\"Grüße 🌍\"",
        "\" spaces \"",
    ];
    match rng.u8(..if depth == 0 { 6 } else { 9 }) {
        6 => format!("{{{}}}", json_entries(rng, depth - 1)),
        7 => {
            let items = (0..rng.usize(..4)).map(|_| json_value(rng, depth - 1));
            format!("[{}]", items.collect::<Vec<_>>().join(", "))
        }
        8 => ["{}", "[]"][rng.usize(..2)].to_owned(),
        _ => LEAVES[rng.usize(..LEAVES.len())].to_owned(),
    }
}
