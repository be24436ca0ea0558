use super::*;

fn args(yaml: &str) -> String {
    let drain: DrainSpec = serde_saphyr::from_str(yaml).unwrap();
    drain_args(&drain, "n", false).unwrap().join(" ")
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
    let yaml = "podSelector: {matchExpressions: [{key: a, operator: In, values: [b]}]}";
    let drain: DrainSpec = serde_saphyr::from_str(yaml).unwrap();
    let args = drain_args(&drain, "n", false).unwrap();
    assert_eq!(args[3], "a in (b),!upgrade.cattle.io/controller");
}

#[test]
fn false_and_zero_leave_a_flag_out_except_for_the_grace_period() {
    for (off, flags) in [
        (
            "deleteEmptydirData: false, force: false, disableEviction: false",
            "",
        ),
        ("deleteLocalData: false", ""),
        ("deleteLocalData: false, skipWaitForDeleteTimeout: 0", ""),
        ("deleteLocalData: false, skipWaitForDeleteTimeout: -1", ""),
        ("deleteLocalData: false, gracePeriod: 0", " --grace-period 0"),
        ("deleteLocalData: false, gracePeriod: -1", " --grace-period -1"),
    ] {
        assert_eq!(
            args(&format!("{{ignoreDaemonSets: false, {off}}}")),
            format!("{BARE}{flags}"),
            "{off}"
        );
    }
}

#[test]
fn a_timeout_that_is_a_number_is_nanoseconds_of_any_size() {
    let timeout = |yaml: &str| args(yaml).rsplit(' ').next().unwrap().to_owned();
    for (written, passed) in [
        ("60", "60ns"),
        ("1000000000", "1s"),
        ("60000000000", "1m0s"), // more than 32 bits
        ("9223372036854775807", "2562047h47m16.854775807s"),
        ("0", "0s"),
        ("300s", "300s"),
    ] {
        assert_eq!(timeout(&format!("{{timeout: {written}}}")), passed, "{written}");
    }
}

#[test]
fn an_invalid_selector_is_refused() {
    let drain: DrainSpec =
        serde_saphyr::from_str("podSelector: {matchExpressions: [{key: a, operator: Is}]}").unwrap();
    assert_eq!(
        drain_args(&drain, "n", false).unwrap_err().to_string(),
        "spec.drain.podSelector: \"Is\" is not a valid label selector operator"
    );
}
