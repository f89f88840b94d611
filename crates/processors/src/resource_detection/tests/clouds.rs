//! Services of metadata, and what becomes of their answers. The Collector's answers to most of the
//! same are compared in `crates/sluice/tests/detectors`.

use super::*;

fn at(url: &str, variables: &[(&str, &str)]) -> Surroundings {
    Surroundings::of(Path::new("/nowhere"), variables, url)
}

async fn found(detector: &str, options: &str, around: &Surroundings) -> Vec<String> {
    let section = if options.is_empty() { String::new() } else { format!("{detector}: {options}") };
    let yaml = format!("{{detectors: [{detector}], {section}}}");
    detected(&yaml, around).await.unwrap_or_else(|error| panic!("{error}")).0
}

const EC2: &[(&str, &str)] = &[
    ("/latest/meta-data/instance-id", "i-1"),
    (
        "/latest/dynamic/instance-identity/document",
        r#"{"accountId": "12", "availabilityZone": "eu-1a", "imageId": "ami", "instanceId": "i-1",
            "instanceType": "m1", "region": "eu-1", "privateIp": "10.0.0.1"}"#,
    ),
    ("/latest/meta-data/hostname", "ip-10.internal"),
    ("/latest/meta-data/tags/instance", "team\nother\ncost"),
    ("/latest/meta-data/tags/instance/team", "blue"),
];
const EC2_LINES: [&str; 9] = [
    "cloud.account.id=12",
    "cloud.availability_zone=eu-1a",
    "cloud.platform=aws_ec2",
    "cloud.provider=aws",
    "cloud.region=eu-1",
    "host.id=i-1",
    "host.image.id=ami",
    "host.name=ip-10.internal",
    "host.type=m1",
];

/// Scenario: a service that wants a token, one that knows none, and one that is switched off.
/// Guarantee: the token is sent; without, the older form is used unless that is forbidden; tags
/// that match are added.
#[tokio::test]
async fn an_instance_of_ec2_is_described() {
    let answers = by_path(EC2);
    let (url, asked) = service(move |head| match head.starts_with("PUT /latest/api/token ") {
        true => (200, "secret".to_owned()),
        false if head.contains("x-aws-ec2-metadata-token: secret\r\n") => answers(head),
        false => (401, String::new()),
    })
    .await;
    assert_eq!(found("ec2", "", &at(&url, &[])).await, EC2_LINES);
    assert!(asked.lock()[0].contains("x-aws-ec2-metadata-token-ttl-seconds: 300\r\n"));
    let tags = "{tags: [^te, cost], tags_from_imds: true}";
    let with_tag = [&EC2_LINES[..5], &["ec2.tag.team=blue"], &EC2_LINES[5..]].concat();
    assert_eq!(found("ec2", tags, &at(&url, &[])).await, with_tag);

    let (url, _) = service(by_path(EC2)).await;
    assert_eq!(found("ec2", "", &at("", &[(ENDPOINT, &url)])).await, EC2_LINES);
    for switch in ["AWS_EC2_METADATA_V1_DISABLED", "AWS_EC2_METADATA_DISABLED"] {
        let around = at(&url, &[(switch, "true")]);
        assert_eq!(found("ec2", "", &around).await, [""; 0], "{switch}");
    }
}

const ENDPOINT: &str = "AWS_EC2_METADATA_SERVICE_ENDPOINT";

/// Scenario: an instance that loses its document. Guarantee: that is an error, since it is an
/// instance.
#[tokio::test]
async fn an_instance_without_its_document_is_an_error() {
    let (url, _) = service(by_path(&[("/latest/meta-data/instance-id", "i-1")])).await;
    let yaml = "{detectors: [ec2], retry: {enabled: false}}";
    let failure = detected(yaml, &at(&url, &[])).await.expect_err("is an error");
    assert!(failure.contains("instance-identity/document answers 404"), "{failure}");
}

const AZURE: &str = "/metadata/instance/compute?api-version=2020-09-01&format=json";

#[tokio::test]
async fn a_machine_of_azure_is_described() {
    let answers = &[(
        AZURE,
        r#"{"location": "west", "name": "vm", "vmId": "id", "vmSize": "A1", "zone": "2",
            "subscriptionId": "sub", "resourceGroupName": "MC_group_cluster_west",
            "vmScaleSetName": "", "osProfile": {"computerName": "computer"},
            "tagsList": [{"name": "team", "value": "blue"}, {"name": "x", "value": "y"}]}"#,
    )];
    let (url, asked) = service(by_path(answers)).await;
    let on = "{tags: [^t], resource_attributes: {cloud.availability_zone: {enabled: true}}}";
    let expected = [
        "azure.resourcegroup.name=MC_group_cluster_west",
        "azure.tag.team=blue",
        "azure.vm.name=vm",
        "azure.vm.size=A1",
        "cloud.account.id=sub",
        "cloud.availability_zone=2",
        "cloud.platform=azure.vm",
        "cloud.provider=azure",
        "cloud.region=west",
        "host.id=id",
        "host.name=computer",
    ];
    assert_eq!(found("azure", on, &at(&url, &[])).await, expected);
    assert!(asked.lock()[0].contains("metadata: true\r\n"));
    let on = "{resource_attributes: {k8s.cluster.name: {enabled: true}}}";
    let expected = ["cloud.platform=azure.aks", "cloud.provider=azure", "k8s.cluster.name=cluster"];
    let cluster = at(&url, &[("KUBERNETES_SERVICE_HOST", "10.0.0.1")]);
    assert_eq!(found("aks", on, &cluster).await, expected);
    assert_eq!(found("aks", on, &at(&url, &[])).await, [""; 0]);
}

/// Scenario: another cloud's service at the same address. Guarantee: it is not taken for Google's.
#[tokio::test]
async fn only_googles_service_is_asked_as_googles() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(b"HTTP/1.1 200 X\r\ncontent-length: 0\r\n\r\n").await;
        }
    });
    assert_eq!(found("gcp", "", &at(&url, &[])).await, [""; 0]);
    let answers = &[("/", ""), ("/computeMetadata/v1/project/project-id", "p")];
    let (url, _) = service(by_path(answers)).await;
    let expected = ["cloud.account.id=p", "cloud.provider=gcp"];
    assert_eq!(found("gcp", "", &at(&url, &[])).await, expected);
}

/// Guarantee: what variables say needs no service; the file of Elastic Beanstalk is read.
#[tokio::test]
async fn variables_and_files_are_enough_for_some() {
    let variables = [("BMS_PROJECT_ID", "p"), ("BMS_INSTANCE_ID", "i"), ("BMS_REGION", "europe-1")];
    let expected = [
        "cloud.account.id=p",
        "cloud.platform=gcp_bare_metal_solution",
        "cloud.provider=gcp",
        "cloud.region=europe-1",
        "host.name=i",
    ];
    assert_eq!(found("gcp", "", &at("http://127.0.0.1:9", &variables)).await, expected);

    let folder = tempfile::tempdir().expect("a directory");
    let file = folder.path().join("var/elasticbeanstalk/xray/environment.conf");
    std::fs::create_dir_all(file.parent().expect("a folder")).expect("is made");
    let text = r#"{"deployment_id": 23, "version_label": "v", "environment_name": "BETA"}"#;
    std::fs::write(&file, text).expect("is written");
    let around = Surroundings::of(folder.path(), &[], "");
    let expected = [
        "cloud.platform=aws_elastic_beanstalk",
        "cloud.provider=aws",
        "deployment.environment=BETA",
        "service.instance.id=23",
        "service.version=v",
    ];
    let lines = detected("detectors: [elastic_beanstalk]", &around).await.expect("works").0;
    assert_eq!(lines, expected);
    std::fs::write(&file, "{").expect("is written");
    let yaml = "{detectors: [elastic_beanstalk], retry: {enabled: false}}";
    let failure = detected(yaml, &around).await.expect_err("is an error");
    assert!(failure.contains("environment.conf cannot be read"), "{failure}");
}

/// Guarantee: smaller clouds are described by what their services say, and Dynatrace by its file.
#[tokio::test]
async fn others_are_described_by_one_answer() {
    let answers = &[
        ("/metadata/v1.json", r#"{"droplet_id": 2756294, "hostname": "d", "region": "nyc3"}"#),
        (
            "/opc/v2/instance/",
            r#"{"id": "ocid", "displayName": "o", "shape": "VM", "availabilityDomain": "AD-1",
                "canonicalRegionName": "us-a", "metadata": {"realm": "oc1"}}"#,
        ),
    ];
    let (url, asked) = service(by_path(answers)).await;
    let expected =
        ["cloud.provider=digitalocean", "cloud.region=nyc3", "host.id=2756294", "host.name=d"];
    assert_eq!(found("digitalocean", "", &at(&url, &[])).await, expected);
    let expected = [
        "cloud.availability_zone=AD-1",
        "cloud.platform=oracle_cloud_oke",
        "cloud.provider=oracle_cloud",
        "cloud.region=us-a",
        "host.id=ocid",
        "host.name=o",
        "host.type=VM",
        "k8s.cluster.name=",
        "oracle_cloud.realm=oc1",
    ];
    assert_eq!(found("oraclecloud", "", &at(&url, &[])).await, expected);
    assert!(asked.lock()[1].contains("authorization: Bearer Oracle\r\n"));

    let folder = tempfile::tempdir().expect("a directory");
    let around = Surroundings::of(folder.path(), &[], "");
    assert_eq!(found("dynatrace", "", &around).await, [""; 0]);
    let file = folder.path().join("var/lib/dynatrace/enrichment/dt_host_metadata.properties");
    std::fs::create_dir_all(file.parent().expect("a folder")).expect("is made");
    let text = "dt.entity.host=HOST-1\nhost.name= a=b \nother=x\nno pair\ndt.smartscape.host=\n";
    std::fs::write(&file, text).expect("is written");
    assert_eq!(found("dynatrace", "", &around).await, ["dt.entity.host=HOST-1", "host.name=a=b"]);
}

/// Scenario: pods of EKS that reach EC2's metadata, and that do not; another cluster. Guarantee:
/// the first have attributes of the instance, the second the cluster's alone, and the last nothing.
#[tokio::test]
async fn a_pod_of_eks_is_known_by_its_variables() {
    let (url, asked) = service(by_path(EC2)).await;
    let token = ("AWS_WEB_IDENTITY_TOKEN_FILE", "/var/run/eks.amazonaws.com/token");
    let pod = [("KUBERNETES_SERVICE_HOST", "127.0.0.1"), token];
    let expected = ["cloud.platform=aws_eks", "cloud.provider=aws"];
    assert_eq!(found("eks", "", &at(&url, &pod)).await, expected);
    assert_eq!(asked.lock().len(), 0);
    let on = "{resource_attributes: {host.id: {enabled: true}, host.name: {enabled: true}}}";
    let of_instance = [&expected[..], &["host.id=i-1", "host.name=ip-10.internal"]].concat();
    assert_eq!(found("eks", on, &at(&url, &pod)).await, of_instance);
    assert_eq!(found("eks", on, &at("http://127.0.0.1:9", &pod)).await, expected);
    assert_eq!(found("eks", on, &at(&url, &[token])).await, [""; 0]);
}
