//! The values of `postCompleteLabels`.

/// Expands `$(LATEST_VERSION)` and `$(LATEST_HASH)` in the value of a label. Any other `$(X)` stays, and `$$` becomes
/// `$`, as in `args` of containers (S59; kubernetes/kubernetes, `third_party/forked/golang/expansion`).
pub fn expand(value: &str, version: &str, hash: &str) -> String {
    let mut out = String::with_capacity(value.len());
    let mut rest = value;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let (text, length) = if rest.starts_with("$$") {
            ("$", 2)
        } else if rest.starts_with("$(LATEST_VERSION)") {
            (version, "$(LATEST_VERSION)".len())
        } else if rest.starts_with("$(LATEST_HASH)") {
            (hash, "$(LATEST_HASH)".len())
        } else {
            ("$", 1)
        };
        out.push_str(text);
        rest = &rest[length..];
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::expand;

    #[test]
    fn labels_expand_as_kubernetes_expands_variables() {
        let expand = |value| expand(value, "v1", "abc");
        assert_eq!(expand("$(LATEST_VERSION)"), "v1");
        assert_eq!(expand("a-$(LATEST_HASH)-$(LATEST_VERSION)"), "a-abc-v1");
        assert_eq!(expand("$(OTHER)"), "$(OTHER)");
        assert_eq!(expand("$$(LATEST_VERSION)"), "$(LATEST_VERSION)");
        assert_eq!(expand("cost$"), "cost$");
        assert_eq!(expand("static"), "static");
    }
}
