//! Names and UIDs. Each kind has its own type, so that the compiler finds a name that is passed for a UID.

use std::borrow::{Borrow, Cow};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::text::shorten;

/// A name, UID or label, shared between the facts that mention it.
pub type Text = Arc<str>;

macro_rules! ids {
    ($($(#[$meta:meta])* $name:ident;)*) => {$(
        $(#[$meta])*
        #[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(from = "String", into = "String")]
        pub struct $name(Text);

        impl $name {
            /// The shared text, for maps whose keys are identifiers of any kind.
            pub fn text(&self) -> &Text {
                &self.0
            }

            /// Shortens a text that anyone may have written.
            pub fn shorten(&mut self, limit: usize) {
                if let Cow::Owned(short) = shorten(&self.0, limit) {
                    self.0 = short.into();
                }
            }
        }

        impl Deref for $name {
            type Target = str;
            fn deref(&self) -> &str {
                &self.0
            }
        }

        // Maps are searched by `&str`: order and hash are those of the text.
        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        // Logs show identifiers as plain texts.
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl From<Text> for $name {
            fn from(text: Text) -> Self {
                Self(text)
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0.as_ref().to_owned()
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }
    )*};
}

ids! {
    /// `metadata.name` of a Node.
    NodeName;
    /// `metadata.name` of a Plan.
    PlanName;
    /// `metadata.name` of a Job.
    JobName;
    /// `metadata.uid` of a Node. Another UID under the same name is another machine.
    NodeUid;
    /// `metadata.uid` of a Plan.
    PlanUid;
    /// `metadata.uid` of a Job.
    JobUid;
    /// `metadata.uid` of a pod.
    PodUid;
    /// Boot ID of a node: each boot of the kernel has another.
    BootId;
    /// Hash of what a Plan applies, which is the value of the Plan's label on its nodes.
    Hash;
}
