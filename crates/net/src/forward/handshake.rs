//! The handshake: each side proves that it knows a shared key, and the client may add a user's name
//! and password. The server speaks first (`HELO`), then the client (`PING`), then the server
//! (`PONG`).
//!
//! The proofs are SHA-512 digests with the server's nonce and the client's salt in them, so that
//! one that was overheard is of no use again. They do not protect what follows: TLS does.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha512};
use sluice_config::Secret;
use subtle::ConstantTimeEq as _;

use super::message::MessageError;
use super::msgpack::{Item, Reader, Write as _};

/// Bytes of a nonce or a salt.
const SALT_BYTES: usize = 16;
/// A reason in `PONG` that is kept.
const REASON_MAX_BYTES: usize = 512;

/// The secret of both sides, and the name of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedSecret {
    pub key: Secret,
    /// The name by which this side calls itself.
    pub hostname: String,
}

impl SharedSecret {
    /// The proof of the side with this name.
    fn digest(&self, salt: &[u8], hostname: &[u8], nonce: &[u8]) -> String {
        hex(&[salt, hostname, nonce, self.key.expose().as_bytes()])
    }
}

/// A user's name and password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub password: Secret,
}

impl User {
    fn digest(&self, salt: &[u8]) -> String {
        hex(&[salt, self.name.as_bytes(), self.password.expose().as_bytes()])
    }
}

/// The SHA-512 digest of the parts, in hexadecimal digits.
fn hex(parts: &[&[u8]]) -> String {
    let mut digest = Sha512::new();
    parts.iter().for_each(|part| digest.update(part));
    digest.finalize().iter().fold(String::with_capacity(128), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.ct_eq(other).into()
}

/// Bytes that cannot be foretold.
///
/// # Errors
/// The system has none.
pub fn salt() -> std::io::Result<[u8; SALT_BYTES]> {
    let mut salt = [0; SALT_BYTES];
    let mut filled = 0;
    while filled < salt.len() {
        match rustix::rand::getrandom(&mut salt[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(bytes) => filled += bytes,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(salt)
}

/// The server's side of one handshake.
#[derive(Debug)]
pub struct Server<'a> {
    secret: &'a SharedSecret,
    /// Without users, the shared key alone decides.
    users: &'a [User],
    nonce: [u8; SALT_BYTES],
    auth_salt: [u8; SALT_BYTES],
}

impl<'a> Server<'a> {
    /// # Errors
    /// See [`salt`].
    pub fn new(secret: &'a SharedSecret, users: &'a [User]) -> std::io::Result<Self> {
        Ok(Server { secret, users, nonce: salt()?, auth_salt: salt()? })
    }

    /// `HELO`.
    pub fn hello(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.write_array(2);
        out.write_str("HELO");
        out.write_map(3);
        out.write_str("nonce");
        out.write_bin(&self.nonce);
        out.write_str("auth");
        out.write_bin(if self.users.is_empty() { &[] } else { &self.auth_salt });
        out.write_str("keepalive");
        out.write_bool(true);
        out
    }

    /// The answer to a `PING`: `PONG`, and why the client is refused, if it is.
    ///
    /// # Errors
    /// [`MessageError`] if it is no `PING`.
    pub fn answer(&self, ping: &[u8]) -> Result<(Vec<u8>, Option<&'static str>), MessageError> {
        let mut reader = Reader::new(ping);
        let fields = texts(&mut reader, b"PING", 6)?;
        let [hostname, salt, digest, name, password] = fields[..] else {
            return Err(MessageError::Invalid("a PING has six elements"));
        };
        let expected = self.secret.digest(salt, hostname, &self.nonce);
        let refused = if !is_same(expected.as_bytes(), digest) {
            Some("shared_key mismatch")
        } else if !self.knows(name, password) {
            Some("username/password mismatch")
        } else {
            None
        };
        let own = self.secret.hostname.as_bytes();
        let proof = if refused.is_none() {
            self.secret.digest(salt, own, &self.nonce)
        } else {
            String::new()
        };
        let mut out = Vec::new();
        out.write_array(5);
        out.write_str("PONG");
        out.write_bool(refused.is_none());
        out.write_str(refused.unwrap_or_default());
        out.write_str(&self.secret.hostname);
        out.write_str(&proof);
        Ok((out, refused))
    }

    fn knows(&self, name: &[u8], password: &[u8]) -> bool {
        // All are looked at: the time tells nothing about names.
        let known = self.users.iter().filter(|user| {
            let is_right = is_same(user.digest(&self.auth_salt).as_bytes(), password);
            is_right & is_same(user.name.as_bytes(), name)
        });
        self.users.is_empty() || known.count() > 0
    }
}

/// The client's side of one handshake, after the server's `HELO`.
#[derive(Debug)]
pub struct Client<'a> {
    secret: &'a SharedSecret,
    nonce: Vec<u8>,
    salt: [u8; SALT_BYTES],
}

impl<'a> Client<'a> {
    /// Reads `HELO` and writes `PING`.
    ///
    /// # Errors
    /// [`MessageError`] if it is no `HELO`, or it asks for a user where there is none.
    pub fn greet(
        secret: &'a SharedSecret,
        user: Option<&User>,
        hello: &[u8],
        salt: [u8; SALT_BYTES],
    ) -> Result<(Self, Vec<u8>), MessageError> {
        let mut reader = Reader::new(hello);
        texts(&mut reader, b"HELO", 2)?;
        let Item::Map(pairs) = reader.item()? else {
            return Err(MessageError::Invalid("a HELO has a map of options"));
        };
        let (mut nonce, mut auth_salt) = (&[][..], &[][..]);
        for _ in 0..pairs {
            let key = reader.item()?;
            let value = Reader::new(reader.skip()?).item()?;
            match (key, value) {
                (Item::Str(b"nonce"), Item::Str(bytes) | Item::Bin(bytes)) => nonce = bytes,
                (Item::Str(b"auth"), Item::Str(bytes) | Item::Bin(bytes)) => auth_salt = bytes,
                _ => {}
            }
        }
        if user.is_none() && !auth_salt.is_empty() {
            return Err(MessageError::Invalid("the server asks for a user name and a password"));
        }
        let user = user.filter(|_| !auth_salt.is_empty());
        let mut out = Vec::new();
        out.write_array(6);
        out.write_str("PING");
        out.write_str(&secret.hostname);
        out.write_bin(&salt);
        out.write_str(&secret.digest(&salt, secret.hostname.as_bytes(), nonce));
        out.write_str(user.map_or("", |user| user.name.as_str()));
        out.write_str(&user.map_or_else(String::new, |user| user.digest(auth_salt)));
        Ok((Client { secret, nonce: nonce.to_vec(), salt }, out))
    }

    /// Reads `PONG`. `Err` within: the server's reason to refuse, or why it is not trusted.
    ///
    /// # Errors
    /// [`MessageError`] if it is no `PONG`.
    pub fn verdict(&self, pong: &[u8]) -> Result<Result<(), String>, MessageError> {
        let mut reader = Reader::new(pong);
        let is_pong = reader.item()? == Item::Array(5) && reader.item()? == Item::Str(b"PONG");
        let (true, Item::Bool(is_taken)) = (is_pong, reader.item()?) else {
            return Err(MessageError::Invalid("expected PONG after PING"));
        };
        let mut text = || match reader.item()? {
            Item::Str(text) | Item::Bin(text) => Ok(text),
            _ => Err(MessageError::Invalid("a PONG consists of strings")),
        };
        let (reason, hostname, digest) = (text()?, text()?, text()?);
        if !is_taken {
            let reason = &reason[..reason.len().min(REASON_MAX_BYTES)];
            return Ok(Err(String::from_utf8_lossy(reason).into_owned()));
        }
        let expected = self.secret.digest(&self.salt, hostname, &self.nonce);
        if hostname == self.secret.hostname.as_bytes() {
            return Ok(Err("client and server use the same name; change one".to_owned()));
        }
        Ok(match is_same(expected.as_bytes(), digest) {
            true => Ok(()),
            false => Err("the server does not know the shared key".to_owned()),
        })
    }
}

/// The strings behind the name of a message with this many elements. Of a `HELO` there are none.
fn texts<'a>(
    reader: &mut Reader<'a>,
    name: &[u8],
    elements: usize,
) -> Result<Vec<&'a [u8]>, MessageError> {
    let is_right = reader.item()? == Item::Array(elements) && reader.item()? == Item::Str(name);
    if !is_right {
        return Err(MessageError::Invalid("the peer begins no handshake: is a shared key set?"));
    }
    let texts = if name == b"HELO" { 0 } else { elements - 1 };
    (0..texts)
        .map(|_| match reader.item()? {
            Item::Str(text) | Item::Bin(text) => Ok(text),
            _ => Err(MessageError::Invalid("the handshake consists of strings")),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(key: &str, hostname: &str) -> SharedSecret {
        SharedSecret { key: Secret::new(key), hostname: hostname.to_owned() }
    }

    fn user(name: &str, password: &str) -> User {
        User { name: name.to_owned(), password: Secret::new(password) }
    }

    /// The client's verdict about the server, after the server's about the client.
    fn shake(
        client: &SharedSecret,
        own: Option<&User>,
        server: &SharedSecret,
        users: &[User],
    ) -> Result<(), String> {
        let server = Server::new(server, users).expect("there is randomness");
        let salt = salt().expect("there is randomness");
        let greeted = Client::greet(client, own, &server.hello(), salt);
        let (client, ping) = greeted.map_err(|error| error.to_string())?;
        let (pong, refused) = server.answer(&ping).expect("is a PING");
        let verdict = client.verdict(&pong).expect("is a PONG");
        assert!(refused.is_none() || verdict.as_ref().is_err_and(|it| Some(&**it) == refused));
        verdict
    }

    #[test]
    fn both_sides_have_to_know_the_key_and_a_user() {
        let (client, server) = (secret("key", "client"), secret("key", "server"));
        let users = [user("a", "1"), user("b", "2")];
        assert_eq!(shake(&client, None, &server, &[]), Ok(()));
        assert_eq!(shake(&client, Some(&users[0]), &server, &[]), Ok(()));
        for user in &users {
            assert_eq!(shake(&client, Some(user), &server, &users), Ok(()));
        }
        let refused = |client: &SharedSecret, own: Option<&User>, users: &[User]| {
            shake(client, own, &server, users).expect_err("is refused")
        };
        assert_eq!(refused(&secret("other", "client"), None, &[]), "shared_key mismatch");
        for wrong in [user("a", "2"), user("c", "1"), user("", "")] {
            assert_eq!(refused(&client, Some(&wrong), &users), "username/password mismatch");
        }
        assert!(refused(&client, None, &users).contains("asks for a user name"));
        assert!(refused(&secret("key", "server"), None, &[]).contains("same name"));
    }

    /// Guarantee: a server that says yes without the key is not believed.
    #[test]
    fn a_server_without_the_key_is_not_trusted() {
        let (mine, other) = (secret("key", "client"), secret("other", "server"));
        let server = Server::new(&other, &[]).expect("there is randomness");
        let greeted = Client::greet(&mine, None, &server.hello(), [1; SALT_BYTES]);
        let (client, _) = greeted.expect("is a HELO");
        let mut pong = Vec::new();
        pong.write_array(5);
        pong.write_str("PONG");
        pong.write_bool(true);
        pong.write_str("");
        pong.write_str("server");
        pong.write_str(&other.digest(&[1; SALT_BYTES], b"server", &server.nonce));
        let verdict = client.verdict(&pong).expect("is a PONG");
        assert!(verdict.expect_err("is refused").contains("does not know"));
    }

    /// The digests of the protocol's description, computed with another implementation.
    #[test]
    fn digests_are_those_of_other_implementations() {
        let text = secret("secret_string", "client").digest(b"salt", b"client", b"nonce");
        let (first, second) = text.split_at(64);
        assert_eq!(first, "ec80eceedc0883978e3129363fa4c11a5dd909cc9b97c543842910478c07da93");
        assert_eq!(second, "9554650b490fe591d6e134bc9e81d03695d51885de5472b1f40f662f86c1ebda");
    }

    #[test]
    fn other_messages_are_no_handshake() {
        let secret = secret("key", "server");
        let server = Server::new(&secret, &[]).expect("there is randomness");
        for bytes in [&[][..], &[0xc0], &[0x93, 0xa1, b't', 0x01, 0x80], &server.hello()] {
            assert!(server.answer(bytes).is_err());
            let salt = [0; SALT_BYTES];
            let is_hello = bytes.len() > 10;
            assert_eq!(Client::greet(&secret, None, bytes, salt).is_ok(), is_hello);
        }
    }
}
