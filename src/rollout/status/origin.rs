//! Where a Plan comes from: what GitOps tools and pipelines note on it.

use std::collections::BTreeMap;

use refit_api::text::{MAX_NAME, shorten};
use refit_api::{Origin, names};
use refit_facts::PlanFacts;

/// Labels of Flux: its kind, then the labels with name and namespace of the object that applies the Plan.
const FLUX: [(&str, &str, &str); 2] = [
    (
        "Kustomization",
        "kustomize.toolkit.fluxcd.io/name",
        "kustomize.toolkit.fluxcd.io/namespace",
    ),
    (
        "HelmRelease",
        "helm.toolkit.fluxcd.io/name",
        "helm.toolkit.fluxcd.io/namespace",
    ),
];
/// Annotation of Argo CD: `<application>:<group>/<kind>:<namespace>/<name>`. With Applications in any namespace, the
/// application is `<namespace>_<name>`.
const ARGO_TRACKING: &str = "argocd.argoproj.io/tracking-id";
/// Annotation of kustomize (`buildMetadata: [originAnnotations]`): YAML with `path`, `repo` and `ref`.
const KUSTOMIZE_ORIGIN: &str = "config.kubernetes.io/origin";

/// The origin of a Plan; `None` if nothing is known of it.
pub(super) fn origin(plan: &PlanFacts) -> Option<Origin> {
    let metadata = &plan.object.metadata;
    let (labels, annotations) = (metadata.labels.as_ref(), metadata.annotations.as_ref());
    let annotation = |key| get(annotations, key);
    let flux = FLUX.iter().find_map(|(kind, name, namespace)| {
        let name = get(labels, name)?;
        let namespace = get(labels, namespace).unwrap_or_default();
        Some(format!("{kind} {namespace}/{name}"))
    });
    let argo = || {
        let application = annotation(ARGO_TRACKING)?.split(':').next()?;
        Some(format!("Application {}", application.replacen('_', "/", 1)))
    };
    let short = |text: &str| shorten(text.trim(), MAX_NAME).into_owned();
    let found = Origin {
        manager: flux.or_else(argo).as_deref().map(short),
        commit: annotation(names::ANNOTATION_COMMIT)
            .or_else(|| annotation(KUSTOMIZE_ORIGIN).and_then(reference))
            .map(short),
        author: annotation(names::ANNOTATION_AUTHOR).map(short),
    };
    (found != Origin::default()).then_some(found)
}

fn get<'a>(all: Option<&'a BTreeMap<String, String>>, key: &str) -> Option<&'a str> {
    all?.get(key)
        .map(String::as_str)
        .filter(|text| !text.trim().is_empty())
}

/// The line `ref: <reference>`.
fn reference(origin: &str) -> Option<&str> {
    let line = origin.lines().find_map(|line| line.trim().strip_prefix("ref:"))?;
    Some(line.trim()).filter(|text| !text.is_empty())
}

/// For the end of an event: ` (commit 4f1c2d7 by alice, applied by Kustomization flux-system/apps)`.
pub(super) fn suffix(origin: Option<&Origin>) -> String {
    let Some(origin) = origin else {
        return String::new();
    };
    let commit = match (&origin.commit, &origin.author) {
        (Some(commit), Some(author)) => Some(format!("commit {commit} by {author}")),
        (Some(commit), None) => Some(format!("commit {commit}")),
        (None, Some(author)) => Some(format!("author {author}")),
        (None, None) => None,
    };
    let manager = origin
        .manager
        .as_ref()
        .map(|manager| format!("applied by {manager}"));
    let parts: Vec<_> = commit.into_iter().chain(manager).collect();
    format!(" ({})", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use refit_fixtures::{plan, read};

    fn of(labels: &[(&str, &str)], annotations: &[(&str, &str)]) -> Option<Origin> {
        let map = |pairs: &[(&str, &str)]| {
            let owned = pairs
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            Some(owned.collect())
        };
        let mut plan = plan("p");
        (plan.metadata.labels, plan.metadata.annotations) = (map(labels), map(annotations));
        origin(&read(plan))
    }

    #[test]
    fn a_plan_of_flux_names_its_kustomization_and_its_commit() {
        let flux = [
            ("kustomize.toolkit.fluxcd.io/name", "apps"),
            ("kustomize.toolkit.fluxcd.io/namespace", "flux-system"),
        ];
        let found = of(
            &flux,
            &[("refit.rs/commit", "4f1c2d7"), ("refit.rs/author", "alice")],
        );
        assert_eq!(
            suffix(found.as_ref()),
            " (commit 4f1c2d7 by alice, applied by Kustomization flux-system/apps)"
        );
    }

    #[test]
    fn a_plan_of_argo_cd_names_its_application() {
        let id = "team_upgrades:upgrade.cattle.io/Plan:system-upgrade/p";
        let found = of(&[], &[(ARGO_TRACKING, id)]).unwrap();
        assert_eq!(found.manager.as_deref(), Some("Application team/upgrades"));
        assert_eq!(suffix(Some(&found)), " (applied by Application team/upgrades)");
    }

    #[test]
    fn the_reference_that_kustomize_notes_is_the_commit() {
        let found = of(
            &[],
            &[(
                KUSTOMIZE_ORIGIN,
                "path: a/b.yaml\nrepo: https://example.com/r\nref: v1.2\n",
            )],
        );
        assert_eq!(found.unwrap().commit.as_deref(), Some("v1.2"));
    }

    #[test]
    fn a_plan_without_such_notes_has_no_origin_and_long_ones_are_shortened() {
        assert_eq!((of(&[], &[]), suffix(None)), (None, String::new()));
        assert_eq!(of(&[], &[("refit.rs/commit", " ")]), None);
        let long = of(&[], &[("refit.rs/author", &"x".repeat(10_000))]).unwrap();
        assert_eq!(long.author.unwrap().len(), MAX_NAME);
    }
}
