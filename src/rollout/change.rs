//! What a watch says of the objects of a kind that not every cluster has.

/// A change of the objects of a kind that not every cluster has.
#[derive(Debug)]
pub enum Change<T> {
    ListStarted,
    ListFinished,
    Object(T),
    Deleted {
        name: String,
        uid: String,
    },
    /// The API server does not know the kind, so there are no objects.
    Unknown,
}

impl<T> Change<T> {
    pub fn map<U>(self, of: impl FnOnce(T) -> U) -> Change<U> {
        match self {
            Self::ListStarted => Change::ListStarted,
            Self::ListFinished => Change::ListFinished,
            Self::Object(object) => Change::Object(of(object)),
            Self::Deleted { name, uid } => Change::Deleted { name, uid },
            Self::Unknown => Change::Unknown,
        }
    }
}
