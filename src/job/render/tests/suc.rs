//! Jobs beside those that system-upgrade-controller creates for the same Plans.

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm};
use serde::Deserialize;

use super::*;
use crate::inputs::inputs;
use crate::name::job_name;
use refit_api::Plan;

/// A Plan, a node, and the Job that system-upgrade-controller creates for them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Fixture {
    why: String,
    pub(super) plan: Plan,
    node: FixtureNode,
    job: Job,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FixtureNode {
    name: String,
    labels: BTreeMap<String, String>,
}

pub(super) fn fixtures() -> Vec<Fixture> {
    serde_saphyr::from_str(include_str!("../suc_jobs.yaml")).unwrap()
}

impl Fixture {
    pub(super) fn render(&self, settings: &JobSettings) -> Job {
        let (plan, status) = (&self.plan, self.plan.status.as_ref().unwrap());
        let os = self.node.labels.get(names::LABEL_OS).map(String::as_str);
        let version = status.latest_version.as_deref().unwrap();
        let hash = status.latest_hash.as_deref().unwrap();
        let plan_name = plan.metadata.name.as_deref().unwrap();
        let input = JobInput {
            plan: PlanInput {
                name: plan_name,
                namespace: plan.metadata.namespace.as_deref().unwrap(),
                uid: plan.metadata.uid.as_deref().unwrap(),
                labels: plan.metadata.labels.as_ref(),
                annotations: plan.metadata.annotations.as_ref(),
                spec: &plan.spec,
                latest_version: version,
                latest_hash: hash,
                inputs: &inputs(&plan.spec, version),
                digests: &NO_DIGESTS,
            },
            node: NodeInput {
                name: &self.node.name,
                uid: "node-uid",
                os,
                shares_hostname: false,
                may_be_new: false,
            },
            name: &job_name(plan_name, &self.node.name, hash),
            attempt: 1,
            unschedulable_before: (os == Some("windows")).then_some(false),
        };
        render(&input, settings).unwrap_or_else(|error| panic!("{}: {error}", self.why))
    }
}

#[test]
fn the_k3os_plan_drains() {
    insta::assert_yaml_snapshot!(fixtures()[0].render(&settings()));
}

#[test]
fn a_cordon_with_prepare_and_secrets() {
    insta::assert_yaml_snapshot!(fixtures()[1].render(&settings()));
}

#[test]
fn a_windows_node_is_drained_by_kubectl() {
    insta::assert_yaml_snapshot!(fixtures()[2].render(&settings()));
}

#[test]
fn an_exclusive_plan_keeps_away_from_all_exclusive_plans() {
    insta::assert_yaml_snapshot!(fixtures()[3].render(&settings()));
}

/// Applies refit's deliberate differences to the Job of system-upgrade-controller.
fn with_our_differences(mut theirs: Job, ours: &Job, node: &str) -> Job {
    theirs.status = None;
    theirs
        .metadata
        .owner_references
        .clone_from(&ours.metadata.owner_references);
    let annotations = ours.metadata.annotations.as_ref().unwrap();
    let own = annotations.iter().filter(|(key, _)| key.starts_with("refit.rs/"));
    let own = own.map(|(key, value)| (key.clone(), value.clone()));
    theirs.metadata.annotations.get_or_insert_default().extend(own);
    let job = theirs.spec.as_mut().unwrap();
    job.parallelism = Some(1);
    job.ttl_seconds_after_finished = None;
    let metadata = job.template.metadata.as_mut().unwrap();
    let of_template = [
        names::ANNOTATION_PLAN_UID,
        names::ANNOTATION_NODE_NAME,
        names::ANNOTATION_NODE_UID,
    ];
    let own = of_template.map(|key| (key.to_owned(), annotations[key].clone()));
    metadata.annotations.get_or_insert_default().extend(own);
    let pod = job.template.spec.as_mut().unwrap();
    let affinity = pod.affinity.as_mut().unwrap().node_affinity.as_mut().unwrap();
    let required = affinity
        .required_during_scheduling_ignored_during_execution
        .as_mut();
    let by_name = NodeSelectorRequirement {
        key: "metadata.name".to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.to_owned()]),
    };
    required.unwrap().node_selector_terms = vec![NodeSelectorTerm {
        match_fields: Some(vec![by_name]),
        match_expressions: None,
    }];
    let our_pod = ours.spec.as_ref().unwrap().template.spec.as_ref().unwrap();
    let inits = pod.init_containers.iter_mut().flatten();
    for one in inits.chain(&mut pod.containers) {
        one.termination_message_policy = Some("FallbackToLogsOnError".to_owned());
        one.resources = None; // Go cannot omit it
        if one.image.as_deref() == Some("rancher/kubectl:v1.30.3") {
            let own = container(our_pod, &one.name);
            assert_eq!(own.env.as_ref().unwrap()[..6], one.env.as_ref().unwrap()[..]);
            *one = Container {
                args: one.args.clone(),
                ..own.clone()
            };
            pod.image_pull_secrets.clone_from(&our_pod.image_pull_secrets);
        }
    }
    theirs
}

#[test]
fn a_job_is_that_of_system_upgrade_controller_but_for_what_is_different_on_purpose() {
    let fixtures = fixtures();
    assert_eq!(fixtures.len(), 4);
    for fixture in fixtures {
        let ours = fixture.render(&settings());
        let theirs = with_our_differences(fixture.job.clone(), &ours, &fixture.node.name);
        let [ours, theirs] = [ours, theirs].map(|job| serde_json::to_string_pretty(&job).unwrap());
        for (index, (ours, theirs)) in ours.lines().zip(theirs.lines()).enumerate() {
            assert_eq!(ours, theirs, "{}, line {index}", fixture.why);
        }
        assert_eq!(ours.len(), theirs.len(), "{}", fixture.why);
    }
}
