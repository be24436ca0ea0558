use super::*;

fn args(yaml: &str) -> String {
    let drain: DrainSpec = serde_saphyr::from_str(yaml).unwrap();
    drain_args(&drain, "n").unwrap().join(" ")
}

const BARE: &str = "drain n --pod-selector !upgrade.cattle.io/controller";

#[test]
fn an_empty_drain_ignores_daemon_sets_and_deletes_empty_dirs() {
    assert_eq!(
        args("{}"),
        format!("{BARE} --ignore-daemonsets --delete-emptydir-data")
    );
}

#[test]
fn every_flag_has_its_place() {
    assert_eq!(
        args(
            "{timeout: 5m, gracePeriod: 30, deleteEmptydirData: true, ignoreDaemonSets: true, force: true,
              disableEviction: true, skipWaitForDeleteTimeout: 60,
              podSelector: {matchExpressions: [{key: component, operator: NotIn, values: [sonobuoy]}]}}"
        ),
        "drain n --pod-selector component notin (sonobuoy),!upgrade.cattle.io/controller --ignore-daemonsets \
         --delete-emptydir-data --force --timeout 5m --grace-period 30 --disable-eviction=true \
         --skip-wait-for-delete-timeout 60"
    );
}

#[test]
fn a_selector_is_one_argument() {
    let drain: DrainSpec =
        serde_saphyr::from_str("podSelector: {matchExpressions: [{key: a, operator: In, values: [b]}]}")
            .unwrap();
    assert_eq!(
        drain_args(&drain, "n").unwrap()[3],
        "a in (b),!upgrade.cattle.io/controller"
    );
}

#[test]
fn flags_that_are_false_or_zero_are_not_there() {
    let off = "{ignoreDaemonSets: false, deleteEmptydirData: false, force: false, disableEviction: false, skipWaitForDeleteTimeout: 0}";
    assert_eq!(args(off), BARE);
    assert_eq!(args("{ignoreDaemonSets: false, deleteLocalData: false}"), BARE);
    assert_eq!(
        args("{ignoreDaemonSets: false, deleteLocalData: false, skipWaitForDeleteTimeout: -1}"),
        BARE
    );
}

#[test]
fn a_grace_period_of_zero_or_less_is_there() {
    let rest = "--ignore-daemonsets --delete-emptydir-data";
    assert_eq!(
        args("{gracePeriod: 0}"),
        format!("{BARE} {rest} --grace-period 0")
    );
    assert_eq!(
        args("{gracePeriod: -1}"),
        format!("{BARE} {rest} --grace-period -1")
    );
}

#[test]
fn a_timeout_that_is_a_number_is_nanoseconds_of_any_size() {
    let timeout = |yaml: &str| args(yaml).rsplit(' ').next().unwrap().to_owned();
    assert_eq!(timeout("{timeout: 60}"), "60ns");
    assert_eq!(timeout("{timeout: 1000000000}"), "1s");
    assert_eq!(timeout("{timeout: 60000000000}"), "1m0s"); // more than 32 bits
    assert_eq!(
        timeout("{timeout: 9223372036854775807}"),
        "2562047h47m16.854775807s"
    );
    assert_eq!(timeout("{timeout: 0}"), "0s");
    assert_eq!(timeout("{timeout: 300s}"), "300s");
}

#[test]
fn a_selector_that_is_none_is_refused() {
    let drain: DrainSpec =
        serde_saphyr::from_str("podSelector: {matchExpressions: [{key: a, operator: Is}]}").unwrap();
    assert_eq!(
        drain_args(&drain, "n").unwrap_err().to_string(),
        "spec.drain.podSelector: \"Is\" is not a valid label selector operator"
    );
}
