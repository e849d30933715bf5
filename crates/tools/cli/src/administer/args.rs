//! The command lines of `penstock kill` and `penstock drain`.

use clap::Args;

pub const AFTER_KILL: &str = "\
Examples:
  penstock kill local 24010
  penstock kill ssh:gpu01 24010

Administrators:
The user who runs the daemon and root may end sessions, over the daemon's Unix socket or over SSH \
as that user (ssh:HOST). TCP and vsock give nobody this right, whatever key he has, and neither \
does a socket in a container: log in to the node and give the order there. The client gets an \
error that names the administrator. A worker that does not end within 5 s is killed.

Exit status:
0 if the session ends; 1 if there is no such session, or if the daemon refuses the order or does \
not answer; 2 if the command line or the configuration is wrong.";

pub const AFTER_DRAIN: &str = "\
Examples:
  penstock drain local
  penstock drain unix:/run/penstock/sock
  penstock drain --undo local

A drained node:
The daemon refuses new clients and those that wait in line, and tells them why. The sessions that \
it has go on until their programs end. `penstock status` and `penstock top` show how many are \
left. A daemon that is started anew takes clients again. One that SSH has started stays as long as \
it is drained. The user who runs the daemon and root may \
drain it: see penstock-kill(1).

Exit status:
0 if the daemon obeys; 1 if it refuses the order or does not answer; 2 if the command line or the \
configuration is wrong.";

#[derive(Args, Debug)]
pub struct KillArgs {
    /// Address of the node, as `penstock status` shows it, such as local or ssh:gpu01
    #[arg(value_name = "NODE")]
    pub node: String,
    /// Number of the session: the process id of its worker, as `penstock top --once` shows it
    #[arg(value_name = "SESSION")]
    pub session: u32,
}

#[derive(Args, Debug)]
pub struct DrainArgs {
    /// Address of the node, as `penstock status` shows it, such as local or ssh:gpu01
    #[arg(value_name = "NODE")]
    pub node: String,
    /// Let the node take new clients again
    #[arg(long)]
    pub undo: bool,
}
