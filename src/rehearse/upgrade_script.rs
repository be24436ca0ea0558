//! What the entrypoint of `rancher/k3s-upgrade` and `rancher/rke2-upgrade` waits for in `prepare <plan>`. Pure.

use std::fmt;

use serde::Serialize;

use super::json::Value;
use refit_api::prepare::Prepare;

pub fn dependency(prepare: &Value) -> Option<String> {
    let texts = |field: &str| -> Vec<String> {
        let all = prepare[field].as_array().into_iter().flatten();
        all.map(|one| one.as_str().unwrap_or_default().to_owned())
            .collect()
    };
    let image = prepare["image"].as_str().unwrap_or_default();
    let prepare = Prepare::parse(image, &texts("command"), &texts("args"))?;
    prepare.plan().map(str::to_owned)
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum PrepareWait {
    /// The Plan does not exist.
    PlanMissing { plan: String },
    /// `status.applying` of the Plan is not empty.
    PlanApplying { plan: String },
    /// There is no control-plane node.
    NoControlPlane,
    /// A control-plane node runs another version than that of the waiting Plan.
    VersionDiffers {
        /// The awaited version, as an image tag.
        wanted: String,
        node: String,
        kubelet: String,
    },
}

impl PrepareWait {
    /// The blocker without details that differ between nodes.
    pub fn blocker(&self) -> String {
        match self {
            Self::PlanMissing { plan } => format!("Plan {plan}, which does not exist"),
            Self::PlanApplying { plan } => format!("Plan {plan}"),
            Self::NoControlPlane => "a control-plane node, but there is none".to_owned(),
            Self::VersionDiffers { wanted, .. } => format!("control-plane nodes of version {wanted}"),
        }
    }
}

impl fmt::Display for PrepareWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`prepare` waits for {}", self.blocker())?;
        if let Self::VersionDiffers { node, kubelet, .. } = self {
            write!(f, "; {node} runs {kubelet}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::json;

    #[test]
    fn the_dependency_of_a_plan_is_read_off_its_spec() {
        let of = |prepare: Value| dependency(&prepare);
        assert_eq!(
            of(json!({ "args": ["prepare", "servers"] })).as_deref(),
            Some("servers")
        );
        assert_eq!(of(json!({ "args": ["prepare"] })), None);
        assert_eq!(
            of(json!({ "command": ["sh"], "args": ["prepare", "servers"] })),
            None
        );
        assert_eq!(of(Value::Null), None);
    }
}
