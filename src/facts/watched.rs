//! What a watch needs to know of an object.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::read::Unreadable;

/// An object of a kind that is watched.
pub trait Watched: DeserializeOwned + Send + 'static {
    /// Its metadata, for kinds with so many changes that each is to be read in one pass.
    fn metadata(&self) -> Option<&ObjectMeta> {
        None
    }

    /// What was ignored of an object that was read, as a sentence.
    fn ignored_time(&self) -> Option<String> {
        None
    }

    /// The object with what can be read of it, for kinds that have a way to report the rest.
    fn salvage(_: &RawValue, _: &Unreadable) -> Option<Self> {
        None
    }
}

/// An object as text, for those who keep more of it than facts.
impl Watched for Box<RawValue> {}
