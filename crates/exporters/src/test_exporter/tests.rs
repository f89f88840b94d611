/// Guarantee: an exporter that no other file knows is listed, read by any of its names with its
/// mistakes named, and sends.
#[tokio::test]
async fn a_component_is_its_folder_and_one_line_in_the_list() {
    assert!(crate::EXPORTERS.kinds().iter().any(|kind| kind.is_called("counter")));
    let exporter = crate::tests::exporter("counter", "limit: 2");
    for expected in ["delivered", "delivered", "rejected"] {
        assert_eq!(crate::tests::kind(&crate::tests::send(&*exporter).await), expected);
    }
    let read = |text: &str| {
        sluice_config::read_text("exporters.counter", text, |fields| {
            crate::EXPORTERS.read("counter", fields)
        })
        .1
    };
    assert_eq!(read("limits: 2").errors().count(), 1);
    assert_eq!(read("{limit: 2, retry_on_failure: {enabled: false}}").errors().count(), 0);
}
