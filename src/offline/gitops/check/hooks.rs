//! What `before` and `after` do not have, although the other containers of the Plan have it.

use super::subject::Subject;
use crate::gitops::placeholder::is_placeholder;
use crate::gitops::reference::Reference;
use crate::gitops::rule::Rule;
use refit_api::reboot::HostAccess;
use refit_api::{Hook, HookSpec, PlanSpec};

/// Where containers see the root of the host.
const HOST: &str = "/host";

impl Subject<'_> {
    pub(super) fn check_hooks(&mut self, spec: &PlanSpec) {
        for hook in Hook::ALL {
            if let Some(of) = hook.spec(spec) {
                self.check_hook_access(hook, of);
                self.check_hook_tag(hook, of, spec);
            }
        }
    }

    /// `Full` is the default of `spec.hostAccess`, and `None` that of a hook.
    fn check_hook_access(&mut self, hook: Hook, of: &HookSpec) {
        let container = &of.container;
        let mut volumes = container.volumes.iter().flatten();
        let mut words = container.command.iter().chain(&container.args).flatten();
        if of.host_access() != HostAccess::None
            || volumes.any(|volume| names_host(&volume.destination))
            || !words.any(|word| names_host(word))
        {
            return;
        }
        let name = hook.as_str();
        let field = format!("spec.{name}.hostAccess");
        let found = if of.host_access.is_some() {
            "None"
        } else {
            "absent, which means None"
        };
        let message =
            format!("{field} is {found}, and spec.{name} names {HOST}, which it does not have then");
        let hint = "add `hostAccess: Root`, or Full for the namespaces of the host, too".to_owned();
        self.report(Rule::HookHostAccess, &field, message, Some(hint));
    }

    fn check_hook_tag(&mut self, hook: Hook, of: &HookSpec, spec: &PlanSpec) {
        let image = &of.container.image;
        let name_of = |image| Reference::read(image).map(|reference| reference.name);
        let takes_version =
            !is_placeholder(image) && Reference::read(image).is_some_and(|it| it.is_name_only);
        // Without either, the tag is missing, which is reported elsewhere.
        let has_version = [&spec.version, &spec.channel]
            .into_iter()
            .flatten()
            .any(|text| !text.is_empty());
        if !takes_version || !has_version || name_of(image) == name_of(spec.upgrade_image()) {
            return;
        }
        let field = format!("spec.{}.image", hook.as_str());
        let message = format!(
            "{field} is {image:?} without a tag, so its tag is the Plan's version, as if it were the image of spec.upgrade"
        );
        let hint = "give it a tag of its own".to_owned();
        self.report(Rule::ImageTag, &field, message, Some(hint));
    }
}

/// Whether the text has the path, and not only one that begins or ends like it, such as `/hosts`.
fn names_host(text: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    text.match_indices(HOST).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + HOST.len()..]);
        !before.ends_with(is_word) && !after.starts_with(is_word)
    })
}

#[cfg(test)]
mod tests {
    use super::names_host;

    #[test]
    fn the_path_of_the_host_is_told_from_others() {
        for text in ["/host", "chroot /host sync", "--root=/host/etc", "ls '/host'"] {
            assert!(names_host(text), "{text}");
        }
        for text in [
            "/etc/hosts",
            "/hostname",
            "example.com/host",
            "/host-data",
            "host",
        ] {
            assert!(!names_host(text), "{text}");
        }
    }
}
