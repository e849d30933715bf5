//! Names of a client for people: its program, and its user.

use std::fs;

use penstock_link::Credentials;

/// Returns the name of the process's program as the kernel shows it (proc(5): `comm`). Returns
/// `None` if this process does not see that one.
pub(crate) fn program(client: &Credentials) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{}/comm", client.pid)).ok()?;
    Some(name.trim_end().to_owned())
}

/// Returns the file of users (passwd(5)), empty if there is none.
pub(crate) fn users() -> String {
    let users = fs::read("/etc/passwd").unwrap_or_default();
    String::from_utf8_lossy(&users).into_owned()
}

/// Returns the name of the user in the file of users, or the number.
pub(crate) fn user(client: &Credentials, users: &str) -> String {
    name_in(users, client.uid).unwrap_or_else(|| client.uid.to_string())
}

fn name_in(users: &str, number: u32) -> Option<String> {
    let is_it = |line: &&str| line.split(':').nth(2).and_then(|it| it.parse().ok()) == Some(number);
    let name = users.lines().find(is_it)?.split(':').next()?;
    (!name.is_empty()).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_have_the_names_of_the_file() {
        let users = "root:x:0:0:root:/root:/bin/bash\n# a comment\nada:x:1000:100::/home/ada:\n";
        assert_eq!(name_in(users, 1000).as_deref(), Some("ada"));
        assert_eq!(name_in(users, 0).as_deref(), Some("root"));
        assert_eq!(name_in(users, 100), None);
        assert_eq!(name_in("", 0), None);
    }

    #[test]
    fn programs_have_the_names_of_the_kernel() {
        let own = i32::try_from(std::process::id()).unwrap();
        let credentials = Credentials { uid: u32::MAX - 7, gid: 0, pid: own };
        assert!(program(&credentials).is_some_and(|name| !name.is_empty() && !name.contains('\n')));
        assert_eq!(user(&credentials, &users()), "4294967288");
        assert_eq!(program(&Credentials { pid: 0, ..credentials }), None);
    }
}
