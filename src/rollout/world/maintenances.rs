//! The objects of the kind `NodeMaintenance`, and the nodes that they want.

use std::collections::BTreeMap;

use refit_facts::objects::maintenance::{Maintenance, MaintenanceGroup};
use refit_facts::objects::version;
use refit_facts::store::{Change, Entry, Store};
use refit_facts::{NodeName, Text};

/// An object by its group and name.
pub type MaintenanceId = (MaintenanceGroup, Text);

/// An object that wants or holds a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reservation {
    /// Its kind and name, for messages.
    pub object: Text,
    pub uid: Text,
}

/// The nodes that objects want, by name; one object each.
pub(crate) type Reservations = BTreeMap<NodeName, Reservation>;

/// What was decided about an object that wants a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservationDecision {
    /// The UID of the object: the next one that wants the node has to wait for a decision of its own.
    pub uid: Text,
    /// Whether it may take the node, and otherwise why not.
    pub answer: Result<(), String>,
}

/// The decisions, by the name of the node.
pub type ReservationDecisions = BTreeMap<NodeName, ReservationDecision>;

#[derive(Debug, Default)]
pub(crate) struct Maintenances {
    stores: [Store<Text, Text, Maintenance>; MaintenanceGroup::ALL.len()],
    reservations: Option<Reservations>,
}

impl Maintenances {
    /// Returns whether anything is known to be different now.
    pub(crate) fn apply(&mut self, group: MaintenanceGroup, change: Change<Box<Maintenance>>) -> bool {
        let store = &mut self.stores[group as usize];
        let was_listed = store.was_listed();
        let changed = store.apply(change.map(|object| Entry {
            name: object.name().into(),
            uid: object.uid().into(),
            version: version(&object.metadata),
            object: *object,
        }));
        let changed = !changed.is_empty() || store.was_listed() != was_listed;
        // Before all groups were read, it is not known which of two objects for a node is the older one.
        let is_known = changed && self.stores.iter().all(Store::was_listed);
        if is_known {
            let reservations = self.owners().into_iter().map(|(node, object)| {
                let reservation = Reservation {
                    object: object.title().as_str().into(),
                    uid: object.uid().into(),
                };
                (node.into(), reservation)
            });
            self.reservations = Some(reservations.collect());
        }
        is_known
    }

    /// All objects, by group and name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (MaintenanceId, &Maintenance)> {
        let groups = MaintenanceGroup::ALL.into_iter().zip(&self.stores);
        let all = groups.flat_map(|(group, store)| {
            let objects = store.iter();
            objects.map(move |(name, object)| ((group, name.clone()), object))
        });
        all.collect::<BTreeMap<_, _>>().into_iter()
    }

    pub(crate) fn get(&self, (group, name): &MaintenanceId) -> Option<&Maintenance> {
        self.stores[*group as usize].get(name)
    }

    /// The object that has each node: the oldest that is neither being deleted nor has given up.
    fn owners(&self) -> BTreeMap<&str, &Maintenance> {
        let wants = |object: &Maintenance| !object.is_being_deleted() && !object.status.has_given_up();
        let mut wanting: Vec<_> = self.iter().filter(|(_, object)| wants(object)).collect();
        let made = |object: &Maintenance| object.metadata.creation_timestamp.as_ref().map(|at| at.0);
        // Of one second, in the order of `iter`.
        wanting.sort_by_key(|(_, object)| made(object));
        let mut owners = BTreeMap::new();
        for (_, object) in wanting {
            owners.entry(object.spec.node_name.as_str()).or_insert(object);
        }
        owners
    }

    /// The nodes that the objects want; `None` before all objects are known.
    pub(crate) fn reservations(&self) -> Option<&Reservations> {
        self.reservations.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;
    use refit_facts::objects::maintenance::{
        KubevirtMaintenance, MAX_LEASE_ERRORS, MaintenancePhase, MaintenanceStatus, MedikMaintenance,
    };

    fn object(group: MaintenanceGroup, name: &str, node: &str, second: i64) -> Maintenance {
        let mut object: Maintenance = match group {
            MaintenanceGroup::Medik8s => MedikMaintenance::default().into(),
            MaintenanceGroup::Kubevirt => KubevirtMaintenance::default().into(),
        };
        object.metadata.name = Some(name.to_owned());
        object.metadata.uid = Some(format!("uid-of-{name}"));
        object.metadata.creation_timestamp = Some(Time(Timestamp::from_second(second).unwrap()));
        node.clone_into(&mut object.spec.node_name);
        object
    }

    fn owner(objects: &[Maintenance], node: &str) -> Option<String> {
        let mut all = Maintenances::default();
        for object in objects {
            all.apply(object.group, Change::Object(Box::new(object.clone())));
        }
        all.owners().get(node).map(|object| object.name().to_owned())
    }

    #[test]
    fn the_oldest_object_has_the_node_until_it_goes_or_gives_up() {
        let medik = MaintenanceGroup::Medik8s;
        let mut objects = [
            object(medik, "a", "one", 20),
            object(MaintenanceGroup::Kubevirt, "b", "one", 10),
            object(medik, "c", "two", 30),
        ];
        assert_eq!(owner(&objects, "one").as_deref(), Some("b"));
        assert_eq!(owner(&objects, "two").as_deref(), Some("c"));
        assert_eq!(owner(&objects, "three"), None);
        objects[1].metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        assert_eq!(owner(&objects, "one").as_deref(), Some("a"));
        objects[0].status = MaintenanceStatus {
            phase: Some(MaintenancePhase::Failed.into()),
            error_on_lease_count: MAX_LEASE_ERRORS,
            ..MaintenanceStatus::default()
        };
        assert_eq!(owner(&objects, "one"), None);
    }
}
