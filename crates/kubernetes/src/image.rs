//! Names of images: `[HOST[:PORT]/]PATH[:TAG][@DIGEST]`, as the crate of Docker's registry in Go
//! reads them.

/// The parts of an image's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image<'a> {
    pub repository: &'a str,
    pub tag: Option<&'a str>,
    pub digest: Option<&'a str>,
}

impl<'a> Image<'a> {
    /// Nothing if it is no name of an image.
    pub fn parse(text: &'a str) -> Option<Image<'a>> {
        let (name, digest) = match text.split_once('@') {
            Some((name, digest)) => (name, Some(digest)),
            None => (text, None),
        };
        let last = name.rfind('/').map_or(0, |slash| slash + 1);
        let (repository, tag) = match name[last..].find(':') {
            Some(colon) => (&name[..last + colon], Some(&name[last + colon + 1..])),
            None => (name, None),
        };
        let is_valid = is_repository(repository)
            && tag.is_none_or(is_tag)
            && digest.is_none_or(|digest| is_digest(digest).is_some());
        is_valid.then_some(Image { repository, tag, digest })
    }

    /// The version that it stands for: its tag, its digest or both.
    pub fn version(&self) -> Option<String> {
        match (self.tag, self.digest) {
            (Some(tag), Some(digest)) => Some(format!("{tag}@{digest}")),
            (Some(only), None) | (None, Some(only)) => Some(only.to_owned()),
            (None, None) => None,
        }
    }
}

/// The full name of an image with a digest, as a container's status has it: with the registry and
/// `library/` where they are left out. Nothing if there is no digest.
pub fn canonical(image_id: &str) -> Option<String> {
    let text = image_id.split_once("://").map_or(image_id, |(_, text)| text);
    let Image { repository, tag, digest } = Image::parse(text)?;
    let digest = digest?;
    let (host, path) = match repository.split_once('/') {
        Some((host, path)) if host.contains(['.', ':']) || host == "localhost" => (host, path),
        _ => ("docker.io", repository),
    };
    let host = if host == "index.docker.io" { "docker.io" } else { host };
    let library = if host == "docker.io" && !path.contains('/') { "library/" } else { "" };
    let tag = tag.map(|tag| format!(":{tag}")).unwrap_or_default();
    Some(format!("{host}/{library}{path}{tag}@{digest}"))
}

/// Longer names are none.
const NAME_LIMIT_BYTES: usize = 255;

fn is_repository(text: &str) -> bool {
    let mut parts = text.split('/').peekable();
    let first = parts.peek().copied().unwrap_or_default();
    let has_host = text.contains('/') && is_host(first) && !is_component(first);
    if has_host {
        parts.next();
    }
    !text.is_empty() && text.len() <= NAME_LIMIT_BYTES && parts.all(is_component)
}

/// A host with capital letters, dots or a port.
fn is_host(text: &str) -> bool {
    let (host, port) = text.rsplit_once(':').unwrap_or((text, "0"));
    let is_label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let is_v6 = host.starts_with('[') && host.ends_with(']');
    !port.is_empty()
        && port.bytes().all(|byte| byte.is_ascii_digit())
        && (is_v6 || host.split('.').all(is_label))
}

/// Small letters and digits, with `.`, `_`, `__` or any number of `-` between them.
fn is_component(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else { return false };
    let mut separators = text.split(|character: char| is_plain_char(character));
    is_plain(*first)
        && is_plain(*last)
        && separators
            .all(|it| matches!(it, "" | "." | "_" | "__") || it.bytes().all(|byte| byte == b'-'))
}

fn is_plain_char(character: char) -> bool {
    character.is_ascii_lowercase() || character.is_ascii_digit()
}

fn is_tag(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    (1..=128).contains(&text.len()) && text.bytes().all(is_inner) && !text.starts_with(['.', '-'])
}

fn is_digest(text: &str) -> Option<()> {
    let (algorithm, hash) = text.split_once(':')?;
    let is_valid = algorithm.starts_with(|first: char| first.is_ascii_alphabetic())
        && hash.len() >= 32
        && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_valid.then_some(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DIGEST: &str = "sha256:dbc66f8c46d4cf4793527ca0737d73527a2bb830019953c2371b5f45f515f1a8";

    /// Guarantee: names are taken apart as the Collector takes them apart.
    #[test]
    fn images_are_taken_apart() {
        for (text, repository, tag) in [
            ("alpine", "alpine", None),
            ("alpine:v1.0.0", "alpine", Some("v1.0.0")),
            ("alpine/alpine:2.0.0", "alpine/alpine", Some("2.0.0")),
            ("example.com/alpine/alpine", "example.com/alpine/alpine", None),
            ("example.com:3000/alpine/a__b:test", "example.com:3000/alpine/a__b", Some("test")),
            ("Example.com/x---y", "Example.com/x---y", None),
        ] {
            let image = Image::parse(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!((image.repository, image.tag, image.digest), (repository, tag, None));
            let with_digest = format!("{text}@{DIGEST}");
            assert_eq!(Image::parse(&with_digest).and_then(|it| it.digest), Some(DIGEST));
        }
        for text in ["", "aaa:", "Alpine", "a//b", "a:b:c", "x@sha256:12", "-a", "a_", "é"] {
            assert_eq!(Image::parse(text), None, "{text}");
        }
    }

    #[test]
    fn versions_are_tags_and_digests() {
        let version = |text: &str| Image::parse(text).and_then(|image| image.version());
        assert_eq!(version("a/b:1").as_deref(), Some("1"));
        assert_eq!(version("a/b"), None);
        assert_eq!(version(&format!("a/b@{DIGEST}")).as_deref(), Some(DIGEST));
        assert_eq!(version(&format!("a/b:1@{DIGEST}")), Some(format!("1@{DIGEST}")));
    }

    #[test]
    fn full_names_have_registry_and_digest() {
        for (text, expected) in [
            ("alpine", Some("docker.io/library/alpine")),
            ("docker-pullable://user/app", Some("docker.io/user/app")),
            ("ghcr.io/x/y", Some("ghcr.io/x/y")),
            ("localhost/y", Some("localhost/y")),
        ] {
            let found = canonical(&format!("{text}@{DIGEST}"));
            assert_eq!(found, expected.map(|it| format!("{it}@{DIGEST}")));
        }
        assert_eq!(canonical("alpine:1"), None);
        assert_eq!(canonical(DIGEST), None);
    }

    proptest! {
        /// Guarantee: any text is either refused, or made of the parts that are found.
        #[test]
        fn any_text_is_taken_apart_or_refused(text in "[a-zA-Z0-9é:@/._\\[\\]-]{0,60}") {
            canonical(&text);
            if let Some(Image { repository, tag, digest }) = Image::parse(&text) {
                let tag = tag.map(|tag| format!(":{tag}")).unwrap_or_default();
                let digest = digest.map(|digest| format!("@{digest}")).unwrap_or_default();
                prop_assert_eq!(format!("{repository}{tag}{digest}"), text);
            }
        }
    }
}
