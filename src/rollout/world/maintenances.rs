//! The objects of the kind `NodeMaintenance`.

use std::collections::{BTreeMap, BTreeSet};

use super::reservations::{Reservation, Reservations};
use crate::change::Change;
use refit_facts::Text;
use refit_facts::objects::maintenance::{Maintenance, MaintenanceGroup};

/// An object by its group and name.
pub type MaintenanceId = (MaintenanceGroup, Text);

#[derive(Debug, Default)]
pub(crate) struct Maintenances {
    objects: BTreeMap<MaintenanceId, Maintenance>,
    /// Objects of the list that runs, by group.
    listed: BTreeMap<MaintenanceGroup, BTreeSet<Text>>,
    /// Groups that were listed at least once, or do not exist.
    known: BTreeSet<MaintenanceGroup>,
}

impl Maintenances {
    /// Returns whether anything is different now.
    pub(crate) fn apply(&mut self, group: MaintenanceGroup, change: Change<Box<Maintenance>>) -> bool {
        match change {
            Change::ListStarted => {
                self.listed.insert(group, BTreeSet::new());
                false
            }
            Change::Object(object) => {
                let name = Text::from(object.name());
                if let Some(listed) = self.listed.get_mut(&group) {
                    listed.insert(name.clone());
                }
                let known = self.objects.insert((group, name.clone()), *object);
                known.as_ref() != self.objects.get(&(group, name))
            }
            Change::Deleted { name, uid } => {
                let id = (group, Text::from(name));
                let is_it = self.objects.get(&id).is_some_and(|object| object.uid() == uid);
                is_it && self.objects.remove(&id).is_some()
            }
            Change::ListFinished => {
                let listed = self.listed.remove(&group).unwrap_or_default();
                let before = self.objects.len();
                self.objects
                    .retain(|(of, name), _| *of != group || listed.contains(name));
                self.known.insert(group) || self.objects.len() != before
            }
            Change::Unknown => {
                let before = self.objects.len();
                self.objects.retain(|(of, _), _| *of != group);
                self.known.insert(group) || self.objects.len() != before
            }
        }
    }

    /// Whether all groups were read. Before, it is not known which of two objects for a node is the older one.
    pub(crate) fn are_known(&self) -> bool {
        self.known.len() == MaintenanceGroup::ALL.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&MaintenanceId, &Maintenance)> {
        self.objects.iter()
    }

    pub(crate) fn get(&self, id: &MaintenanceId) -> Option<&Maintenance> {
        self.objects.get(id)
    }

    /// The object that has each node: the oldest that is neither being deleted nor has given up.
    fn owners(&self) -> BTreeMap<&str, &MaintenanceId> {
        let wants = |object: &Maintenance| !object.is_being_deleted() && !object.status.has_given_up();
        let mut wanting: Vec<_> = self.iter().filter(|(_, object)| wants(object)).collect();
        let made = |object: &Maintenance| object.metadata.creation_timestamp.as_ref().map(|at| at.0);
        wanting.sort_by_key(|(id, object)| (made(object), *id));
        let mut owners = BTreeMap::new();
        for (id, object) in wanting {
            owners.entry(object.spec.node_name.as_str()).or_insert(id);
        }
        owners
    }

    /// The nodes that the objects want.
    pub(crate) fn reservations(&self) -> Reservations {
        let owners = self.owners().into_iter();
        let each = owners.map(|(node, id)| {
            let object = &self.objects[id];
            let reservation = Reservation {
                object: object.title().as_str().into(),
                uid: object.uid().into(),
            };
            (node.into(), reservation)
        });
        each.collect()
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
        all.owners().get(node).map(|(_, name)| name.to_string())
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
