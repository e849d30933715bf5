//! `penstock container`: what gives a container the pool, in the words of a container engine.
//!
//! A container needs three things: the socket of a daemon of this host, Penstock's client, and the
//! variables that lead programs to both. The socket has the same path in every container, so that
//! an image can rely on it. The client keeps its path, because the entry for the ICD loader names
//! the library by its absolute path.

mod edits;

use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use penstock_client::config::{NODES_VARIABLE, Surroundings};
use penstock_process::{notice, variable};

use crate::failure::Failure;
use crate::run::library;
use crate::table;
use edits::{ADDRESS, Edits, Mount, Setting};

/// The socket's place in a container.
const SOCKET: &str = "/run/penstock/penstockd.sock";

const AFTER: &str = "\
Examples:
  docker run $(penstock container docker) IMAGE PROGRAM
  podman run $(penstock container podman) IMAGE PROGRAM
  apptainer exec $(penstock container apptainer) IMAGE PROGRAM
  bwrap OPTIONS $(penstock container bubblewrap) PROGRAM
  penstock container cdi > /etc/cdi/penstock.json
  podman run --device penstock/pool=host IMAGE PROGRAM

Requirements:
A daemon must run on this host: penstock serve. It serves only the user that started it and the \
users of --allow-user. Root in a container of Docker is root on this host, and root in a container \
that a user started with Podman is that user. The image needs glibc 2.34 or later. An OpenCL \
program needs an ICD loader in the image. A CUDA program whose runtime is linked into it needs \
`penstock run PROGRAM` in the container, and so does a program that changes LD_LIBRARY_PATH.

Security:
The container can read what is mounted, and cannot change it. It gets no device, network or key of \
this host. A program in it can do on the devices what the daemon's user can do.";

#[derive(Args, Debug)]
#[command(after_help = AFTER)]
pub struct ContainerArgs {
    /// Container engine whose words are printed
    #[arg(value_enum)]
    engine: Engine,
    /// Socket of the daemon [default: your own daemon's socket]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Mount the folder of the socket instead of the socket, so that a running container finds a
    /// daemon that starts anew. The container sees everything in that folder
    #[arg(long)]
    folder: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Engine {
    /// Options of `docker run`
    Docker,
    /// Options of `podman run`
    Podman,
    /// Options of `apptainer exec` and `singularity exec`
    Apptainer,
    /// Options of `bwrap`
    Bubblewrap,
    /// A file of the Container Device Interface, which Podman, Docker and Kubernetes read
    Cdi,
}

pub fn container(args: &ContainerArgs) -> Result<ExitCode, Failure> {
    let socket = match &args.socket {
        Some(path) => std::path::absolute(path).map_err(Failure::file(path, "find"))?,
        None => Surroundings::of_process().own_socket(),
    };
    warn_without_daemon(&socket);
    let client = Client::find()?;
    table::print(&edits(&client, &socket, args.folder)?.text(args.engine)?)?;
    Ok(ExitCode::SUCCESS)
}

/// A container may be set up before its daemon starts, so this is no error.
fn warn_without_daemon(socket: &Path) {
    let is_socket = socket.metadata().is_ok_and(|entry| entry.file_type().is_socket());
    if !is_socket {
        notice::print(format_args!(
            "no daemon listens at {}: start one with `penstock serve --listen unix:{0}` before the \
             container",
            socket.display()
        ));
    }
}

/// Penstock's client as `make install` and the packages lay it out.
struct Client {
    /// Folder of the libraries.
    libraries: PathBuf,
    /// The command `penstock`.
    command: PathBuf,
}

impl Client {
    fn find() -> Result<Self, Failure> {
        let library = library::find()?;
        let libraries = library.parent().unwrap_or(Path::new("/")).to_owned();
        let vendors = libraries.join("vendors");
        if !vendors.is_dir() {
            return Err(Failure::Missing {
                what: "the entry for ICD loaders",
                looked: vec![vendors],
                remedy: "install Penstock (make install, or make install PREFIX=DIRECTORY) and use \
                         the command `penstock` of that installation",
            });
        }
        let command =
            std::env::current_exe().map_err(Failure::file(Path::new("/proc/self/exe"), "read"))?;
        Ok(Self { libraries, command })
    }
}

fn edits(client: &Client, socket: &Path, folder: bool) -> Result<Edits, Failure> {
    let outside = |path: &Path| path.parent().unwrap_or(Path::new("/")).to_owned();
    let inside = PathBuf::from(SOCKET);
    let (mount, seen_at) = if folder {
        let name = socket.file_name().unwrap_or_default();
        (Mount::new(outside(socket), outside(&inside)), outside(&inside).join(name))
    } else {
        (Mount::new(socket, &inside), inside)
    };
    let nodes = format!("{ADDRESS}{}", seen_at.display());
    let vendors = library::vendors(&client.libraries.join("vendors"));
    let vendors = vendors.to_string_lossy().into_owned();
    let mut variables = vec![Setting { name: NODES_VARIABLE, value: nodes }];
    variables.extend(library::VENDORS.map(|name| Setting { name, value: vendors.clone() }));
    let mut edits = Edits {
        mounts: vec![mount, Mount::same(&client.libraries), Mount::same(&client.command)],
        variables,
    };
    let cuda = client.libraries.join("cuda");
    if cuda.is_dir() {
        let name = variable::LD_LIBRARY_PATH.name;
        edits.variables.push(Setting { name, value: cuda.display().to_string() });
    }
    edits.check()?;
    Ok(edits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client() -> Client {
        Client { libraries: "/opt/p/lib/penstock".into(), command: "/opt/p/bin/penstock".into() }
    }

    #[test]
    fn the_socket_has_one_path_in_every_container() {
        let edits = edits(&client(), Path::new("/tmp/a/b.sock"), false).expect("plain paths");
        assert_eq!(edits.mounts[0], Mount::new("/tmp/a/b.sock", SOCKET));
        assert_eq!(edits.variables[0].value, format!("unix:{SOCKET}"));
    }

    #[test]
    fn the_folder_of_the_socket_keeps_the_socket_s_name() {
        let edits = edits(&client(), Path::new("/tmp/a/b.sock"), true).expect("plain paths");
        assert_eq!(edits.mounts[0], Mount::new("/tmp/a", "/run/penstock"));
        assert_eq!(edits.variables[0].value, "unix:/run/penstock/b.sock");
    }

    #[test]
    fn a_path_that_would_change_the_options_is_refused() {
        for path in [
            "/tmp/a b",
            "/tmp/a --privileged",
            "/tmp/a,tcp:stranger:1",
            "/tmp/a:/etc",
            "/tmp/$HOME",
            "/tmp/*",
        ] {
            for folder in [false, true] {
                assert!(edits(&client(), Path::new(path), folder).is_err(), "{path}");
            }
        }
    }
}
