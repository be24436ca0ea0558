//! `spec.apiAccess`: which containers of a Job get a token of the API server.

use super::field_enum::field_enum;

field_enum! {
    /// Which of the Plan's containers get a token of its service account.
    ApiAccess {
        /// Both, as under system-upgrade-controller.
        All,
        /// `prepare`, which reads the API in the images of K3s and RKE2.
        PrepareOnly,
        /// Neither.
        None,
    }
}
