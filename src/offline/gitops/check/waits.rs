//! Which Plans wait for each other: by `dependsOn`, and by `prepare` of the images of K3s and RKE2.

use std::collections::VecDeque;
use std::collections::btree_map::{BTreeMap, Entry};

use super::control_plane::Role;
use super::prepare::Known;
use refit_api::prepare::Prepare;

/// The Plans of all files, and which of them each one waits for.
pub(super) struct Waits<'k> {
    pub(super) all: &'k [Known],
    /// Indices of Plans by namespace and name. Several clusters may have one of the same name.
    places: BTreeMap<(&'k str, &'k str), Vec<usize>>,
    /// The Plans that each one waits for.
    edges: Vec<Vec<usize>>,
}

impl<'k> Waits<'k> {
    pub(super) fn new(all: &'k [Known]) -> Self {
        let mut places = BTreeMap::<_, Vec<usize>>::new();
        for (index, plan) in all.iter().enumerate() {
            let key = (plan.namespace.as_str(), plan.name.as_str());
            places.entry(key).or_default().push(index);
        }
        let mut waits = Self {
            all,
            places,
            edges: Vec::new(),
        };
        waits.edges = all.iter().map(|plan| waits.edges_of(plan)).collect();
        waits
    }

    fn edges_of(&self, plan: &Known) -> Vec<usize> {
        let dependencies = plan.depends_on.iter().filter_map(|name| self.index(plan, name));
        // `prepare` waits for control-plane nodes, which a Plan for agents does not upgrade.
        let awaited = plan.prepare.as_ref().and_then(Prepare::plan);
        let awaited = awaited.and_then(|name| self.index(plan, name));
        let awaited = awaited.filter(|index| self.all[*index].role != Role::Worker);
        dependencies.chain(awaited).collect()
    }

    fn index(&self, own: &Known, name: &str) -> Option<usize> {
        let places = self.places.get(&(own.namespace.as_str(), name))?;
        let roots = |index: usize| &self.all[index].roots;
        let loaded = places.iter().find(|index| roots(**index).share_one(&own.roots));
        let possible = || {
            places
                .iter()
                .find(|index| roots(**index).may_share_cluster(&own.roots))
        };
        loaded.or_else(possible).copied()
    }

    /// The Plan of this name in the namespace and the cluster of another one.
    pub(super) fn beside(&self, own: &Known, name: &str) -> Option<&'k Known> {
        self.index(own, name).map(|index| &self.all[index])
    }

    /// Where a Plan of this name is that is not beside this one.
    pub(super) fn elsewhere(&self, own: &Known, name: &str) -> String {
        let others = || self.all.iter().filter(|other| other.name == name);
        let is_of_cluster = |other: &&Known| other.roots.may_share_cluster(&own.roots);
        if let Some(other) = others().find(is_of_cluster) {
            return format!("is in namespace {:?}, not in that of this Plan", other.namespace);
        }
        match others().find(|other| other.namespace == own.namespace) {
            Some(other) => format!(
                "is in {}, which no kustomization loads together with this Plan",
                other.file
            ),
            None => "is in none of these files".to_owned(),
        }
    }

    /// The shortest cycle that leads from a Plan over one that it waits for back to it, in words.
    pub(super) fn cycle(&self, own: &Known, first: &str) -> Option<String> {
        let first = self.index(own, first)?;
        let mut before = BTreeMap::from([(first, None)]);
        let mut queue = VecDeque::from([first]);
        while let Some(next) = queue.pop_front() {
            for &other in &self.edges[next] {
                let found = &self.all[other];
                if found.name == own.name && found.namespace == own.namespace {
                    let mut members = vec![own.name.as_str()];
                    let mut member = Some(next);
                    while let Some(index) = member {
                        members.push(&self.all[index].name);
                        member = before.get(&index).copied().flatten();
                    }
                    members.push(&own.name);
                    members.reverse();
                    return Some(members.join(" waits for "));
                }
                if let Entry::Vacant(place) = before.entry(other) {
                    place.insert(Some(next));
                    queue.push_back(other);
                }
            }
        }
        None
    }
}
