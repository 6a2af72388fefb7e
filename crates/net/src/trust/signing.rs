//! Signatures of manifests: who casts an object need not be who vouches for its bytes.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use rcgen::{KeyPair, PKCS_ED25519};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};

use super::files::{create, key, read};
use super::unusable;
use crate::error::Error;
use crate::identity::{credentials_error, issue_error};

/// What is signed before the id, so that a signature means this and nothing else.
const DOMAIN: &[u8; 20] = b"outpour manifest v1\0";

/// How long a signature is, in bytes.
pub const SIGNATURE_BYTES: usize = 64;

/// A key pair that vouches for manifests.
#[derive(Clone)]
pub struct Signer(Arc<Ed25519KeyPair>);

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Signer").field(&self.public()).finish()
    }
}

impl Signer {
    /// Makes a key pair: the file `out` has the secret key, `out` with `.pub` at its end the public one.
    ///
    /// # Errors
    /// If one of the files is there already or cannot be written.
    pub fn create(out: &Path) -> Result<PublicKey, Error> {
        let pair = KeyPair::generate_for(&PKCS_ED25519);
        let pair = pair.map_err(|error| issue_error("a signer", error))?;
        let mut public = out.as_os_str().to_owned();
        public.push(".pub");
        create(out, &pair.serialize_pem())?;
        let key = Self::load(out)?.public();
        create(Path::new(&public), &format!("{key}\n"))?;
        Ok(key)
    }

    /// Reads the secret key that [`Self::create`] wrote.
    ///
    /// # Errors
    /// If the file cannot be read, may be read by others, or is no such key.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let key = key(&read(path)?, path)?;
        let pair = Ed25519KeyPair::from_pkcs8(&key);
        let pair =
            pair.map_err(|error| unusable(path, format!("it is no Ed25519 key: {error}")))?;
        Ok(Self(Arc::new(pair)))
    }

    /// The key by which its signatures are known.
    pub fn public(&self) -> PublicKey {
        // Keys of this sort are all as long.
        PublicKey::of(self.0.public_key()).unwrap_or(PublicKey([0; 32]))
    }

    /// Signs the manifest of this id.
    pub fn sign(&self, manifest: &[u8; 32]) -> Vec<u8> {
        let signature = self.0.sign(&message(manifest)).as_ref().to_vec();
        debug_assert_eq!(signature.len(), SIGNATURE_BYTES);
        signature
    }
}

/// The public half of a [`Signer`], as text 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    pub(super) fn of(key: &impl AsRef<[u8]>) -> Option<Self> {
        key.as_ref().try_into().ok().map(Self)
    }

    /// Whether the holder of the secret half has signed the manifest of this id.
    pub fn has_signed(&self, manifest: &[u8; 32], signature: &[u8]) -> bool {
        let key = UnparsedPublicKey::new(&ED25519, self.0);
        key.verify(&message(manifest), signature).is_ok()
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for PublicKey {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || credentials_error("the public key", "expected 64 hexadecimal digits");
        let text = text.trim();
        let digits = text.bytes().all(|digit| digit.is_ascii_hexdigit());
        if text.len() != 64 || !digits {
            return Err(wrong());
        }
        let mut key = [0; 32];
        for (byte, digits) in key.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digits = std::str::from_utf8(digits).map_err(|_| wrong())?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| wrong())?;
        }
        Ok(Self(key))
    }
}

fn message(manifest: &[u8; 32]) -> Vec<u8> {
    [DOMAIN.as_slice(), manifest].concat()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_signature_is_of_one_manifest_by_one_key_for_one_purpose() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("release.key");
        let public = Signer::create(&out).unwrap();
        let text = std::fs::read_to_string(dir.path().join("release.key.pub")).unwrap();
        assert_eq!(text.parse::<PublicKey>().unwrap(), public);
        let signer = Signer::load(&out).unwrap();
        let manifest = [7; 32];
        let signature = signer.sign(&manifest);
        assert!(public.has_signed(&manifest, &signature));
        for bit in [0, 255] {
            let mut other = manifest;
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(!public.has_signed(&other, &signature), "bit {bit}");
        }
        let other = Signer::create(&dir.path().join("other.key")).unwrap();
        assert!(!other.has_signed(&manifest, &signature));
        assert!(!public.has_signed(&manifest, &signature[1..]));
        assert!(!public.has_signed(&manifest, &[]));
        // The id alone, without the purpose, is something else.
        let bare = signer.0.sign(&manifest);
        assert!(!public.has_signed(&manifest, bare.as_ref()));
        assert!(matches!(Signer::create(&out), Err(Error::Exists { .. })));
        let shown = format!("{signer:?}");
        assert_eq!(shown, format!("Signer({public:?})"));
    }

    #[test]
    fn a_public_key_is_64_digits() {
        for text in ["", "00", &"g".repeat(64), &"0".repeat(65), &"+1".repeat(32)] {
            assert!(text.parse::<PublicKey>().is_err(), "{text:?}");
        }
        let text = "0f".repeat(32);
        assert_eq!(text.parse::<PublicKey>().unwrap().to_string(), text);
    }
}
