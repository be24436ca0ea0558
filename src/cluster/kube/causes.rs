//! Chains of causes of an error.

/// The cause of all causes.
pub(super) fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.last().unwrap_or(error).to_string()
}

/// Finds an error of type `E` in a chain of causes.
pub(super) fn find<'a, E: std::error::Error + 'static>(
    error: &'a (dyn std::error::Error + 'static),
) -> Option<&'a E> {
    let mut error = Some(error);
    while let Some(this) = error {
        if let Some(found) = this.downcast_ref() {
            return Some(found);
        }
        error = this.source();
    }
    None
}
