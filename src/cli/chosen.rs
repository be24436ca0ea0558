//! Selects Plans by `--plan`: names with or without namespace.

use std::collections::BTreeMap;

use refit_api::crd::VERSION;
use refit_api::names::GROUP;
use refit_base::names::shortened;
use refit_offline::gitops::Source;
use refit_offline::gitops::objects::objects;

/// Message for files without a Plan.
const NO_PLAN: &str = "there is no Plan in these files";
/// The message for files without a Plan. It names the first file that has one where refit does not look, such as in the
/// text of a `ConfigMap`.
pub(super) fn no_plan<'s>(sources: impl IntoIterator<Item = &'s Source> + Clone) -> String {
    let wanted = format!("{GROUP}/{VERSION}");
    let is_kind = |line: &str| {
        let mut words = line
            .split([' ', '-', '"', '\'', ':', ',', '{', '}'])
            .filter(|word| !word.is_empty());
        words.any(|word| word == "kind") && words.next() == Some("Plan")
    };
    let mentions = |source: &&Source| source.text.contains(&wanted) && source.text.lines().any(is_kind);
    match sources.clone().into_iter().find(mentions) {
        Some(source) => format!(
            "{NO_PLAN}; {} mentions one within another object or text, which refit does not read",
            source.name
        ),
        None => match found(sources) {
            found if found.is_empty() => NO_PLAN.to_owned(),
            found => format!("{NO_PLAN}; they have {found}; `refit example` prints a Plan"),
        },
    }
}

/// The objects that there are, by kind.
fn found<'s>(sources: impl IntoIterator<Item = &'s Source>) -> String {
    let mut kinds = BTreeMap::<String, usize>::new();
    for source in sources {
        for object in objects(&source.stream.documents) {
            *kinds.entry(object.kind).or_default() += 1;
        }
    }
    let kinds = kinds.iter().filter(|(kind, _)| !kind.is_empty()).take(SHOWN);
    let kinds: Vec<_> = kinds.map(|(kind, count)| format!("{count} {kind}")).collect();
    kinds.join(", ")
}

/// Where commands that only read files look for Plans.
pub(super) const FILES: &str = "these files";
/// Maximum number of names in a message.
const SHOWN: usize = 20;

/// Whether a Plan is selected. Without `--plan` all are.
pub(super) fn is_chosen(wanted: &[String], name: &str, title: &str) -> bool {
    wanted.is_empty() || wanted.iter().any(|wanted| wanted == name || wanted == title)
}

/// A message about wanted names without a Plan; `None` if there is no Plan at all. `plans` has the name and the title
/// of each.
pub(super) fn unknown(wanted: &[String], plans: &[(String, String)], place: &str) -> Option<String> {
    let has = |wanted: &String| {
        plans
            .iter()
            .any(|(name, title)| is_chosen(std::slice::from_ref(wanted), name, title))
    };
    let missing: Vec<_> = wanted
        .iter()
        .filter(|wanted| !has(wanted))
        .map(|name| format!("{name:?}"))
        .collect();
    if missing.is_empty() || plans.is_empty() {
        return None;
    }
    let titles = plans.iter().map(|(_, title)| title);
    Some(format!(
        "there is no Plan {} in {place}; the Plans are {}",
        missing.join(", "),
        shortened(titles, SHOWN)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plans() -> Vec<(String, String)> {
        [("server", "ns/server"), ("agent", "agent")]
            .map(|(name, title)| (name.to_owned(), title.to_owned()))
            .to_vec()
    }

    #[test]
    fn a_plan_is_chosen_by_its_name_with_or_without_its_namespace() {
        let wanted = |name: &str| vec![name.to_owned()];
        for (name, expected) in [("server", true), ("ns/server", true), ("other/server", false)] {
            assert_eq!(
                is_chosen(&wanted(name), "server", "ns/server"),
                expected,
                "{name}"
            );
        }
        assert!(is_chosen(&[], "server", "ns/server"));
    }

    #[test]
    fn a_name_that_no_plan_has_is_reported_with_the_names_of_all_plans() {
        let why = unknown(&["server".to_owned(), "c".to_owned()], &plans(), FILES).unwrap();
        assert_eq!(
            why,
            "there is no Plan \"c\" in these files; the Plans are ns/server, agent"
        );
        assert_eq!(unknown(&["ns/server".to_owned()], &plans(), FILES), None);
    }
}
