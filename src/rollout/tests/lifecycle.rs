//! The lifecycle conditions of nodes.

use super::build::{cluster, status_of};
use super::unreadable::{failed, unreadable};
use crate::{Step, decide};
use refit_facts::record::Record;
use refit_fixtures::{morning, plan};

#[test]
fn a_node_that_has_another_write_to_come_or_cannot_be_read_gets_no_conditions_now() {
    let hash = status_of(&mut cluster([], [plan("p")]), "p").latest_hash.unwrap();
    for (has_other_write, is_unreadable, writes) in
        [(false, false, true), (true, false, false), (false, true, false)]
    {
        let mut node = failed(1, &hash, "exited with 3");
        if has_other_write {
            let record: &Record = &node.records["p"];
            let of_deleted = Record {
                plan_uid: "q-uid".into(),
                ..record.clone()
            };
            node.records.insert("q".into(), of_deleted);
        }
        let mut cluster = cluster([node.clone()], [plan("p")]);
        cluster.defaults.node_conditions = true;
        if is_unreadable {
            unreadable(&mut cluster, &node.name, &node.uid);
        }
        cluster.refresh(morning());
        let steps = decide(&cluster, morning()).steps;
        let has = |is: fn(&Step) -> bool| steps.iter().any(is);
        assert_eq!(has(|step| matches!(step, Step::PatchConditions { .. })), writes);
        assert_eq!(
            has(|step| matches!(step, Step::PatchNode { .. })),
            has_other_write
        );
    }
}
