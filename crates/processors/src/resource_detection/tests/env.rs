use super::*;

fn around(text: &str) -> Surroundings {
    Surroundings::of(Path::new("/nowhere"), &[("OTEL_RESOURCE_ATTRIBUTES", text)], "")
}

async fn parsed(text: &str) -> Result<Vec<String>, String> {
    Ok(detected("{}", &around(text)).await?.0)
}

#[tokio::test]
async fn the_variable_is_read_as_the_collector_reads_it() {
    let text = r#" example.org/test-1 =  test $ %3A \" ,  Abc=Def  "#;
    let expected = lines(&["Abc=Def", r#"example.org/test-1=test $ : \""#]);
    assert_eq!(parsed(text).await, Ok(expected));
    assert_eq!(parsed("a=1,b=2,a=3").await, Ok(lines(&["a=3", "b=2"])));
    assert_eq!(parsed("a,b=c=d").await, Ok(lines(&["a,b=c=d"])));
    assert_eq!(parsed(&format!("{}=v", "k".repeat(256))).await.map(|it| it.len()), Ok(1));
    assert_eq!(detected("{}", &around("a=b")).await.map(|it| it.1), Ok(String::new()));
    let former = Surroundings::of(Path::new("/"), &[("OTEL_RESOURCE", "a=b")], "");
    assert_eq!(detected("{}", &former).await, Ok((lines(&["a=b"]), String::new())));
    assert_eq!(parsed("").await, Ok(Vec::new()));
}

#[tokio::test]
async fn a_variable_that_cannot_be_read_fails_the_start_at_once_and_says_where() {
    let long = format!("{}=v", "k".repeat(257));
    let started = std::time::Instant::now();
    for (text, part) in [
        ("invalid=url-%3-encoding", r#"invalid escape "%3-""#),
        ("a=%", r#"invalid escape "%""#),
        ("a=%ff", "not UTF-8"),
        ("invalid-char-ü=test", r#""invalid-char-ü=test""#),
        ("invalid-char=ü-test", r#""invalid-char=ü-test""#),
        ("extra=chars, a", r#"" a""#),
        ("key=value,key", r#""key""#),
        ("invalid=char,übetween=attributes", r#""ü""#),
        ("no pair", r#""no pair""#),
        ("=v", r#""=v""#),
        (&long, r#""k""#),
    ] {
        let failure = parsed(text).await.expect_err(text);
        assert!(failure.contains(part), "{text}: {failure}");
        assert!(failure.contains("`env`: the environment variable OTEL_RESOURCE_ATTRIBUTES"));
    }
    // It is not tried again: the first pause is a second.
    assert!(started.elapsed().as_millis() < 900, "{:?}", started.elapsed());
}
