//! The update engine of Flatcar, the service `com.coreos.update1` on the system bus. Interface:
//! `src/update_engine/dbus_interface.h` of `flatcar/update_engine`.

use std::path::PathBuf;
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::time::timeout;
use zbus::connection::Builder;

use super::super::request::{Answer, Finding};

/// The bus name of the service, and what requests name as the reason.
const SERVICE: &str = "com.coreos.update1";
const PATH: &str = "/com/coreos/update1";
const INTERFACE: &str = "com.coreos.update1.Manager";
/// The operation of an engine that has installed a version, which runs after a reboot.
const NEEDS_REBOOT: &str = "UPDATE_STATUS_UPDATED_NEED_REBOOT";
/// Prefix of all operations.
const OPERATION: &str = "UPDATE_STATUS_";
/// Time limit of a look, from the connection to the answer.
const LIMIT: Duration = Duration::from_secs(10);

/// Body of `GetStatus`: the time of the last check, the progress, the operation, the new version and its size.
type Status = (i64, f64, String, String, i64);

/// The update engine of the host.
#[derive(Debug)]
pub struct UpdateEngine {
    /// Socket of the system bus, as this process sees it.
    pub socket: PathBuf,
}

impl UpdateEngine {
    /// Asks for the status. Each look connects anew, so the bus and the engine may restart in between.
    pub(super) async fn look(&self, note: &dyn Fn(&str)) -> Finding {
        let status = timeout(LIMIT, self.status()).await;
        let status = status.unwrap_or_else(|_| Err(format!("no answer within {} s", LIMIT.as_secs())));
        let (answer, packages) = match status.and_then(|status| answer(&status)) {
            Ok(found) => found,
            Err(why) => {
                note(&format!("{SERVICE} says nothing: {why}"));
                (Answer::Unknown, Vec::new())
            }
        };
        Finding {
            reason: SERVICE.to_owned(),
            answer,
            packages,
        }
    }

    async fn status(&self) -> Result<Status, String> {
        let stream = UnixStream::connect(&self.socket)
            .await
            .and_then(UnixStream::into_std);
        let stream =
            stream.map_err(|error| format!("cannot connect to {}: {error}", self.socket.display()))?;
        let connection = Builder::unix_stream(stream).build().await;
        let connection = connection.map_err(|error| error.to_string())?;
        let reply = connection
            .call_method(Some(SERVICE), PATH, Some(INTERFACE), "GetStatus", &())
            .await;
        let reply = reply.map_err(|error| error.to_string())?;
        reply
            .body()
            .deserialize()
            .map_err(|error| format!("its status cannot be read: {error}"))
    }
}

fn answer((_, _, operation, version, _): &Status) -> Result<(Answer, Vec<String>), String> {
    if operation == NEEDS_REBOOT {
        // An engine that was asked to reboot without an update names no version.
        let version = Some(version).filter(|version| !version.is_empty() && *version != "0.0.0");
        return Ok((
            Answer::Needed { since: None },
            version.into_iter().cloned().collect(),
        ));
    }
    if operation.starts_with(OPERATION) {
        return Ok((Answer::NotNeeded, Vec::new()));
    }
    Err(format!("{operation:?} is not an operation of an update engine"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(operation: &str, version: &str) -> Status {
        (1_700_000_000, 0.0, operation.to_owned(), version.to_owned(), 0)
    }

    #[test]
    fn an_engine_needs_a_reboot_once_it_has_installed_a_version() {
        let needed = Answer::Needed { since: None };
        for (operation, version, expected) in [
            (
                "UPDATE_STATUS_UPDATED_NEED_REBOOT",
                "3815.2.0",
                Ok((needed, vec!["3815.2.0".to_owned()])),
            ),
            ("UPDATE_STATUS_UPDATED_NEED_REBOOT", "0.0.0", Ok((needed, vec![]))),
            ("UPDATE_STATUS_IDLE", "", Ok((Answer::NotNeeded, vec![]))),
            (
                "UPDATE_STATUS_DOWNLOADING",
                "3815.2.0",
                Ok((Answer::NotNeeded, vec![])),
            ),
            (
                "",
                "",
                Err("\"\" is not an operation of an update engine".to_owned()),
            ),
        ] {
            assert_eq!(answer(&status(operation, version)), expected, "{operation}");
        }
    }
}
