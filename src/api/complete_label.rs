//! The values of `postCompleteLabels`.

/// Expands `$(LATEST_VERSION)` and `$(LATEST_HASH)` in the value of a label (S59).
pub fn expand(value: &str, version: &str, hash: &str) -> String {
    expand_with(value, |name| match name {
        "LATEST_VERSION" => Some(version),
        "LATEST_HASH" => Some(hash),
        _ => None,
    })
}

/// Expands `$(NAME)` if the variable exists. Any other stays, and `$$` becomes `$`, as in `args` of containers
/// (kubernetes/kubernetes, `third_party/forked/golang/expansion`).
pub fn expand_with<'v>(text: &str, variable: impl Fn(&str) -> Option<&'v str>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        let reference = after.strip_prefix('(').and_then(|inside| inside.split_once(')'));
        rest = if let Some((name, behind)) = reference {
            match variable(name) {
                Some(value) => out.push_str(value),
                None => out.extend(["$(", name, ")"]),
            }
            behind
        } else {
            out.push('$');
            after.strip_prefix('$').unwrap_or(after)
        };
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
