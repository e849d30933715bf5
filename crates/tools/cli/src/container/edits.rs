//! Mounts and variables of a container, and how each container engine wants them written.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::Engine;
use crate::failure::Failure;

/// The version of the Container Device Interface whose elements the file uses. Podman 4.3 and
/// Docker 25 read it.
const CDI_VERSION: &str = "0.5.0";

/// Name of the kind of device in the Container Device Interface: vendor and class.
const CDI_KIND: &str = "penstock/pool";

/// Name of the one device of that kind.
const CDI_DEVICE: &str = "host";

/// Start of the address of a Unix socket.
pub const ADDRESS: &str = "unix:";

/// Where the file is written to, for a message.
const STDOUT: &str = "/dev/stdout";

/// A file or folder of the host that the container sees, read-only. A program can connect to a
/// socket of a read-only mount.
#[derive(Debug, PartialEq, Eq)]
pub struct Mount {
    host: PathBuf,
    inside: PathBuf,
}

impl Mount {
    pub fn new(host: impl Into<PathBuf>, inside: impl Into<PathBuf>) -> Self {
        Self { host: host.into(), inside: inside.into() }
    }

    /// The container sees the file or folder at the path that it has on the host.
    pub fn same(path: &Path) -> Self {
        Self::new(path, path)
    }
}

/// An environment variable of the container.
#[derive(Debug, PartialEq, Eq)]
pub struct Setting {
    pub name: &'static str,
    pub value: String,
}

/// What a container gets in addition to what its image has.
#[derive(Debug)]
pub struct Edits {
    pub mounts: Vec<Mount>,
    pub variables: Vec<Setting>,
}

impl Edits {
    /// Refuses paths that a shell would split or expand, or that an engine would read as something
    /// else. The options are made for `$(...)`, where no quotation marks help.
    pub fn check(&self) -> Result<(), Failure> {
        let plain = |text: &str| {
            text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-+@%".contains(&byte))
        };
        // The variables have paths in them, too, and the address of a socket.
        let path_in = |value: &str| PathBuf::from(value.strip_prefix(ADDRESS).unwrap_or(value));
        let values = self.variables.iter().map(|it| path_in(&it.value));
        let paths = self.mounts.iter().flat_map(|it| [it.host.clone(), it.inside.clone()]);
        for path in paths.chain(values) {
            if !path.to_str().is_some_and(plain) {
                return Err(Failure::Argument {
                    argument: path.display().to_string(),
                    reason: "options of container engines cannot have this path; use a path of \
                             letters, digits and / . _ - + @ %"
                        .into(),
                });
            }
        }
        Ok(())
    }

    /// Returns the text for `engine`, with a line break at its end.
    pub fn text(&self, engine: Engine) -> Result<String, Failure> {
        if engine == Engine::Cdi {
            return self.cdi();
        }
        // One line for each mount and variable. A shell makes one list of words of them.
        let mut text = String::new();
        for Mount { host, inside } in &self.mounts {
            let (host, inside) = (host.display(), inside.display());
            // Writing to a string cannot fail.
            _ = match engine {
                Engine::Apptainer => writeln!(text, "--bind {host}:{inside}:ro"),
                Engine::Bubblewrap => writeln!(text, "--ro-bind {host} {inside}"),
                _ => writeln!(text, "--mount type=bind,source={host},target={inside},readonly"),
            };
        }
        for Setting { name, value } in &self.variables {
            _ = match engine {
                Engine::Bubblewrap => writeln!(text, "--setenv {name} {value}"),
                _ => writeln!(text, "--env {name}={value}"),
            };
        }
        Ok(text)
    }

    fn cdi(&self) -> Result<String, Failure> {
        let mounts: Vec<_> = self
            .mounts
            .iter()
            .map(|it| {
                json!({
                    "hostPath": it.host,
                    "containerPath": it.inside,
                    "options": ["bind", "ro", "nosuid", "nodev"],
                })
            })
            .collect();
        let env: Vec<String> =
            self.variables.iter().map(|it| format!("{}={}", it.name, it.value)).collect();
        let file = json!({
            "cdiVersion": CDI_VERSION,
            "kind": CDI_KIND,
            "devices": [{
                "name": CDI_DEVICE,
                "containerEdits": { "env": env, "mounts": mounts },
            }],
        });
        let text = serde_json::to_string_pretty(&file);
        Ok(text.map_err(|error| Failure::file(Path::new(STDOUT), "write")(error.into()))? + "\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(engine: Engine) -> String {
        let edits = Edits {
            mounts: vec![Mount::new("/h", "/c")],
            variables: vec![Setting { name: "NAME", value: "value".into() }],
        };
        edits.text(engine).expect("the paths are text")
    }

    #[test]
    fn each_engine_gets_its_own_words() {
        let docker = "--mount type=bind,source=/h,target=/c,readonly\n--env NAME=value\n";
        assert_eq!(text(Engine::Docker), docker);
        assert_eq!(text(Engine::Podman), docker);
        assert_eq!(text(Engine::Apptainer), "--bind /h:/c:ro\n--env NAME=value\n");
        assert_eq!(text(Engine::Bubblewrap), "--ro-bind /h /c\n--setenv NAME value\n");
    }

    #[test]
    fn the_file_for_cdi_is_json_with_one_device() {
        let file: serde_json::Value = serde_json::from_str(&text(Engine::Cdi)).expect("JSON");
        assert_eq!(file["kind"], CDI_KIND);
        let edits = &file["devices"][0]["containerEdits"];
        assert_eq!(edits["mounts"][0]["hostPath"], "/h");
        assert_eq!(edits["env"][0], "NAME=value");
    }
}
