//! Secrets in the files, which count for the hash.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;

use refit_offline::gitops::objects::Object;

pub(super) fn is_named(secret: &Secret, namespace: &str, name: &str) -> bool {
    let of = secret.metadata.namespace.as_deref().unwrap_or(namespace);
    of == namespace && secret.metadata.name.as_deref() == Some(name)
}

/// A Secret in the files, as the API server would store it.
pub(super) fn secret(object: &Object<'_>) -> Option<Secret> {
    if object.kind != "Secret" || object.api_version != "v1" {
        return None;
    }
    let mut secret: Secret = serde_json::from_value(object.node.to_json()).ok()?;
    let written = secret.string_data.take().unwrap_or_default();
    // The API server writes `stringData` over `data`, and stores only `data` (pkg/apis/core/v1/conversion.go).
    if !written.is_empty() {
        let data = secret.data.get_or_insert_default();
        data.extend(
            written
                .into_iter()
                .map(|(key, text)| (key, ByteString(text.into_bytes()))),
        );
    }
    // The API server's default. The hash of a Secret includes its type.
    secret.type_.get_or_insert_with(|| "Opaque".to_owned());
    Some(secret)
}
