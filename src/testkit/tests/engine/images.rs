//! Images that do not exist, or whose registries cannot be asked.

use super::scenario::{Scenario, Setup};
use refit_channel::ChannelError;
use refit_fixtures::{plan, plan_with};
use refit_rehearse::Kind;

const IMAGE: &str = "example.com/upgrade:v1";

/// Nodes, and a controller that can ask registries.
fn of_nodes(nodes: &[&str]) -> Scenario {
    let mut scenario = Scenario::without_controller(&Setup::default());
    scenario.channels.lock().unwrap().has_registries = true;
    scenario.start();
    scenario.add_nodes(nodes);
    scenario
}

fn registry_says(scenario: &Scenario, image: &str, error: ChannelError) {
    let mut channels = scenario.channels.lock().unwrap();
    channels.images.insert(image.to_owned(), error);
}

fn has_no(scenario: &Scenario, image: &str) {
    registry_says(
        scenario,
        image,
        ChannelError::NoImage("HTTP/1.1 404 Not Found".to_owned()),
    );
}

fn looked_up(scenario: &Scenario) -> usize {
    scenario.channels.lock().unwrap().looked_up.len()
}

#[test]
fn no_node_is_cordoned_for_an_image_that_does_not_exist_and_the_roll_out_begins_once_it_does() {
    let mut scenario = of_nodes(&["a", "b"]);
    has_no(&scenario, IMAGE);
    scenario.apply_and_settle(plan_with("p", |spec| spec.cordon = Some(true)));
    scenario.pass_secs(600);
    let why = "the registry has no image example.com/upgrade:v1 (HTTP/1.1 404 Not Found): wait until it is published, or \
               correct the image or the version";
    assert_eq!(scenario.complete("p"), ["False", "ImageMissing", why]);
    assert_eq!(scenario.entry("p", "a").message.as_deref(), Some(why));
    assert_eq!(scenario.events_of("ImageMissing"), [why], "once");
    let jobs = scenario.cluster.with(|state| state.all(Kind::Job).count());
    assert_eq!(jobs, 0);
    assert!(!scenario.node("a").unschedulable && !scenario.node("b").unschedulable);
    let asked = looked_up(&scenario);
    assert!((9..=11).contains(&asked), "every minute, not {asked}");

    scenario.channels.lock().unwrap().images.clear();
    scenario.pass_secs(70);
    assert_eq!(scenario.live_nodes("p").len(), 1);
    scenario.roll_out();
    scenario.assert_over();
    let asked = looked_up(&scenario);
    scenario.pass_secs(600);
    assert_eq!(looked_up(&scenario), asked, "a finished Plan asks nobody");
}

#[test]
fn a_registry_that_cannot_be_asked_holds_no_node_and_is_asked_once() {
    let mut scenario = of_nodes(&["a", "b"]);
    registry_says(
        &scenario,
        IMAGE,
        ChannelError::Denied {
            status: "HTTP/1.1 401 Unauthorized".to_owned(),
            given: false,
        },
    );
    scenario.apply_and_settle(plan("p"));
    scenario.roll_out();
    scenario.assert_over();
    assert_eq!(looked_up(&scenario), 1);
    assert!(scenario.events_of("ImageMissing").is_empty());
}

#[test]
fn a_node_in_progress_finishes_although_the_image_is_gone_and_the_next_one_does_not_start() {
    let mut scenario = of_nodes(&["a", "b"]);
    scenario.apply_and_settle(plan("p"));
    let first = scenario.live_nodes("p")[0].clone();
    // Only this process knows the first answer.
    has_no(&scenario, IMAGE);
    scenario.restart();
    scenario.pass_secs(30);
    assert_eq!(scenario.live_nodes("p"), std::slice::from_ref(&first));
    scenario.succeed(&first);
    scenario.pass_secs(120);
    assert!(scenario.live_nodes("p").is_empty());
    assert_eq!(scenario.complete("p")[1], "ImageMissing");
    scenario.channels.lock().unwrap().images.clear();
    scenario.roll_out();
    scenario.pass_secs(120);
    scenario.roll_out();
    scenario.assert_over();
}

#[test]
fn a_corrected_version_is_asked_for_at_once() {
    let mut scenario = of_nodes(&["a"]);
    has_no(&scenario, IMAGE);
    scenario.apply_and_settle(plan("p"));
    assert_eq!(scenario.complete("p")[1], "ImageMissing");
    scenario.edit_and_settle("p", |spec| spec.version = Some("v2".to_owned()));
    assert_eq!(scenario.live_nodes("p"), ["a"]);
}
