//! A program with more rights than its user does not see the user's variables.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use penstock_process::variable;
use penstock_trial::{Need, skip};

/// Set for the test that runs in the copy of this program.
const INSIDE: &str = "PENSTOCK_TEST_INSIDE";
/// A user that owns nothing here.
const NOBODY: u32 = 65534;
/// The user whose rights the program gets. Not root: on a host with other users, each of them could
/// run the copy while the test lasts.
const OWNER: u32 = 65533;

/// A copy of this test program that everybody may run.
struct Copy(PathBuf);

impl Copy {
    fn new() -> Self {
        let folder =
            std::env::temp_dir().join(format!("penstock-privilege-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        fs::copy(std::env::current_exe().unwrap(), folder.join("program")).unwrap();
        Self(folder)
    }

    /// Runs what_the_program_sees() as another user, who sets a variable.
    fn run(&self, mode: u32, sees: &str) -> Output {
        let program: &Path = &self.0.join("program");
        fs::set_permissions(program, fs::Permissions::from_mode(mode)).unwrap();
        let mut command = Command::new(program);
        command.args(["--exact", "what_the_program_sees", "--test-threads=1"]);
        command.env(INSIDE, sees).env("PENSTOCK_TRACE", "trace").current_dir("/");
        command.uid(NOBODY).gid(NOBODY).output().unwrap()
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn what_the_program_sees() {
    let Ok(sees) = std::env::var(INSIDE) else { return };
    let seen = variable::value("PENSTOCK_TRACE");
    assert_eq!(seen.is_some(), sees == "all", "{seen:?}");
    assert_eq!(variable::value_even_empty("PATH").is_some(), sees == "all");
}

#[test]
fn a_program_with_the_rights_of_its_owner_ignores_the_environment() {
    let copy = Copy::new();
    if fs::metadata(&copy.0).unwrap().uid() != 0 {
        return skip(Need::Root, "only root can start programs as another user");
    }
    chown(copy.0.join("program"), Some(OWNER), Some(OWNER)).unwrap();
    for (mode, sees) in [(0o755, "all"), (0o4755, "nothing")] {
        let output = copy.run(mode, sees);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "mode {mode:o}: {text}");
        assert!(text.contains("1 passed"), "mode {mode:o}: {text}");
    }
}
