use proptest::prelude::*;

use super::*;

const HASH: &str = "21c75c607087495cc7f2c945c508a36de1f8661ce8c6b4d5989a883c";

/// A DNS subdomain, which the API server accepts as the name of a Plan, a node or a Secret.
fn subdomain() -> impl Strategy<Value = String> {
    prop::collection::vec("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", 1..5).prop_map(|labels| {
        let mut name = labels.join(".");
        name.truncate(253);
        name.trim_end_matches(['-', '.']).to_owned()
    })
}

fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_dns_label)
}

#[test]
fn a_job_has_the_name_that_system_upgrade_controller_gives_it() {
    assert_eq!(
        job_name("k3s-server", "node1.example.com", HASH),
        "apply-k3s-server-on-node1-with-21c75c607087495cc7f2c945c5-43b87"
    );
    assert_eq!(
        job_name("abcdefghijklmnopqrstuvwxyz-abcdefghijklm", "abcdef", HASH),
        "apply-abcdefghijklmnopqrstuvwxyz-abcdefghijklm-on-abcdef-fd760c"
    );
    assert_eq!(job_name("p", "n", ""), "apply-p-on-n-with-");
}

#[test]
fn a_long_secret_has_the_volume_that_system_upgrade_controller_gives_it() {
    assert_eq!(
        secret_volume_name("not-having-path-with-a-supercalifragilisticexpialidocious-name"),
        "secret-not-having-path-with-a-supercalifragilisticexpiali-42558"
    );
    assert_eq!(secret_volume_name("registry"), "secret-registry");
}

#[test]
fn a_secret_with_dots_has_a_volume_of_its_own() {
    assert_eq!(secret_volume_name("a.b"), "secret-a-b-2e7336dc");
    assert_eq!(secret_volume_name("a-b"), "secret-a-b");
    assert_ne!(secret_volume_name("a.b.c"), secret_volume_name("a.b-c"));
    let long = format!("tls.{}", "x".repeat(100));
    assert_ne!(secret_volume_name(&long), secret_volume_name(&format!("{long}y")));
}

#[test]
fn sixty_three_bytes_are_not_shortened_and_sixty_four_are() {
    let fits = "a".repeat(61);
    assert_eq!(safe_concat(&["b", &fits]), format!("b-{fits}"));
    assert_eq!(safe_concat(&["b", &fits, ""]).len(), 63);
    assert_ne!(safe_concat(&["b", &fits, ""]), format!("b-{fits}-"));
}

fn second(plan: &str, node: &str) -> String {
    let run = RunId {
        plan,
        plan_uid: "u",
        node,
        node_uid: "v",
        upgrade: HASH,
    };
    run.second_job_name()
}

#[test]
fn nodes_with_one_short_name_share_the_first_job_name_and_not_the_second() {
    assert_eq!(job_name("p", "a.x", HASH), job_name("p", "a.y", HASH));
    let second = |plan_uid, node_uid, upgrade| {
        let run = RunId {
            plan: "p",
            plan_uid,
            node: "a.x",
            node_uid,
            upgrade,
        };
        run.second_job_name()
    };
    let name = second("plan", "node", HASH);
    assert_eq!(name, "apply-p-on-a-7af0402a60a3d97e");
    assert_ne!(name, second("again", "node", HASH));
    assert_ne!(name, second("plan", "other", HASH));
    assert_ne!(name, second("plan", "node", "other"));
}

#[test]
fn a_second_name_has_no_dash_or_dot_before_its_digest() {
    let plan = format!("{}.b", "a".repeat(39)); // is cut at the dot
    let name = second(&plan, "n");
    assert!(name.starts_with(&format!("apply-{}-", "a".repeat(39))), "{name}");
}

#[test]
fn a_node_name_that_a_label_cannot_hold_is_shortened_in_it() {
    let name = "n".repeat(63);
    assert_eq!(label_value(&name), name);
    let long = format!("{}.example.com", "n".repeat(60));
    assert_eq!(label_value(&long), safe_concat(&[&long]));
    assert!(is_label_value(&label_value(&long)));
}

#[test]
fn a_plan_has_a_label_when_its_name_is_short_enough() {
    assert_eq!(plan_label("k3s"), "plan.upgrade.cattle.io/k3s");
    assert!(is_plan_label(&"p".repeat(63)));
    assert!(is_plan_label("a.b-c"));
    assert!(!is_plan_label(&"p".repeat(64)));
    assert!(!is_plan_label(""));
}

#[test]
fn text_that_is_not_ascii_is_cut_between_characters() {
    for offset in 0..4 {
        let text = format!("{}{}", "a".repeat(offset), "ü🐳".repeat(20));
        assert_eq!(safe_concat(&[&text]).len(), 63, "{text}");
        assert!(second(&text, &text).len() <= 63, "{text}");
        assert!(is_dns_label(&secret_volume_name(&text)), "{text}");
    }
}

proptest! {
    #[test]
    fn a_name_that_is_cut_has_sixty_three_bytes_and_any_other_is_whole(parts in prop::collection::vec("[a-z0-9.-]{0,40}", 1..5)) {
        let parts: Vec<_> = parts.iter().map(String::as_str).collect();
        let full = parts.join("-");
        let name = safe_concat(&parts);
        if full.len() <= 63 {
            prop_assert_eq!(name, full);
        } else {
            prop_assert_eq!(name.len(), 63);
        }
    }

    #[test]
    fn every_job_name_is_one_that_kubernetes_admits(plan in subdomain(), node in subdomain()) {
        let names = [job_name(&plan, &node, HASH), second(&plan, &node)];
        for name in names {
            prop_assert!(name.len() <= 63 && is_subdomain(&name), "{}", name);
            prop_assert!(plan.contains('.') || is_dns_label(&name), "{}", name);
        }
    }

    #[test]
    fn every_secret_has_a_volume_and_every_node_a_label(name in subdomain()) {
        let (volume, label) = (secret_volume_name(&name), label_value(&name));
        prop_assert!(is_dns_label(&volume), "{}", volume);
        prop_assert!(is_label_value(&label), "{}", label);
    }
}
