//! All environment variables that Penstock reads.

use super::{Group, Kind, Variable};

macro_rules! variables {
    ($($group:ident {
        $($id:ident = $name:literal: $kind:expr, $default:literal, $about:literal;)*
    })*) => {
        $($(
            pub const $id: Variable = Variable {
                name: $name,
                kind: $kind,
                default: $default,
                about: $about,
                group: Group::$group,
            };
        )*)*

        /// All variables, in the order of the documents.
        pub const ALL: &[Variable] = &[$($($id,)*)*];
    };
}

variables! {
    Users {
        NODES = "PENSTOCK_NODES": Kind::Text, "–",
            "the addresses of the nodes, separated by commas";
        KEY = "PENSTOCK_KEY": Kind::Path,
            "entry `key`, else `~/.config/penstock/key` if that file exists",
            "the file with the pool's key";
        ENCRYPTION = "PENSTOCK_ENCRYPTION": Kind::Choice(&["never", "remote", "always"]),
            "entry `encryption`, else `remote`",
            "which TCP connections are encrypted: none, those that leave the host, or all";
        KEYS = "PENSTOCK_KEYS": Kind::Path, "`~/.config/penstock`",
            "the folder with the identity, the known nodes and the authorized clients of encrypted \
             connections";
        TRUSTED_USERS = "PENSTOCK_TRUSTED_USERS": Kind::Text, "–",
            "numbers of users, separated by commas, whose daemons this user trusts on Unix \
             sockets, besides its own and root's";
        SSH = "PENSTOCK_SSH": Kind::Text, "`ssh`",
            "the program, with options, that connects to nodes with an address `ssh:HOST`";
        SSH_BRIDGE = "PENSTOCK_SSH_BRIDGE": Kind::Text, "`penstock bridge`",
            "the command that SSH runs on these nodes";
        SSH_DIRECT = "PENSTOCK_SSH_DIRECT": Kind::Choice(&["auto", "never"]), "`auto`",
            "whether sessions of these nodes get a direct, encrypted connection beside SSH; read \
             on both hosts";
        SSH_SHARED = "PENSTOCK_SSH_SHARED": Kind::Path, "–",
            "set by `penstock run`: the directory of the SSH connections that its program shares";
        SLURM_DIRECTORY = "PENSTOCK_SLURM_DIRECTORY": Kind::Text, "–",
            "set by `penstock slurm` for what it starts on a node: the name of the directory of \
             the job";
        DEVICES = "PENSTOCK_DEVICES": Kind::Text, "–",
            "a query that selects and orders the devices that a program sees";
        PLATFORMS = "PENSTOCK_PLATFORMS": Kind::Choice(&["pool", "node"]),
            "entry `platforms`, else `pool`",
            "one platform for the pool, or one for each platform of each node";
        PLACEMENT = "PENSTOCK_PLACEMENT": Kind::Choice(&["in-order", "round-robin"]), "`in-order`",
            "the order in which programs get the devices";
        TIMEOUT_MS = "PENSTOCK_TIMEOUT_MS": Kind::Number(1, TIMEOUT_MS_MAX),
            "entry `timeout_ms`, else 3000",
            "longest silence of a node while its link is opened, in ms";
        SILENCE_S = "PENSTOCK_SILENCE_S": Kind::NumberOrNone(SILENCE_S_MIN, SILENCE_S_MAX), "30",
            "time without any byte of a worker, in s, after which a call that waits for the worker \
             fails; 0 for never";
        LOG = "PENSTOCK_LOG": Kind::Text, "off",
            "which messages go to standard error: levels and modules";
        TRACE = "PENSTOCK_TRACE": Kind::Path, "–",
            "the file, without the process id, that gets every frame of a process";
        TRACE_PAYLOAD = "PENSTOCK_TRACE_PAYLOAD": Kind::Number(0, u64::MAX), "everything",
            "the number of bytes that a trace keeps of each payload";
        SUMMARY = "PENSTOCK_SUMMARY": Kind::Path, "–",
            "a file that gets a line of JSON about each process that uses the pool by OpenCL or \
             CUDA, when the process ends; 1: a text on standard error; 0: no summary";
        TRUST_CONST = "PENSTOCK_TRUST_CONST": Kind::Flag(false), "off",
            "kernels are trusted not to write through pointers to const";
        GUEST_MEMORY = "PENSTOCK_GUEST_MEMORY": Kind::Path, "found among the PCI devices",
            "the memory that this guest shares with its host, or `none`";
        PEERS = "PENSTOCK_PEERS": Kind::Flag(true), "on",
            "memory and events go from node to node without passing the client";
        HEAP_PATH = "PENSTOCK_HEAP_PATH": Kind::Choice(&["auto", "proxy"]),
            "entry `heap_path`, else `auto`",
            "how kernels of a symmetric heap reach devices of other workers";
    }
    Cuda {
        CHECK = "PENSTOCK_CHECK": Kind::Flag(false), "off",
            "kernels of CUDA programs check each address before they use it";
        CUDA_ARENA_MIB = "PENSTOCK_CUDA_ARENA_MIB": Kind::Number(1, u64::MAX >> 20),
            "what the device suggests",
            "size of the arenas in which CUDA programs get their memory, in MiB";
        CUDA_SOURCES = "PENSTOCK_CUDA_SOURCES": Kind::Path, "–",
            "a folder in which Penstock leaves the OpenCL C of CUDA programs";
        MPI_WORKERS = "PENSTOCK_MPI_WORKERS": Kind::Text, "1048576",
            "smallest MPI message in bytes that workers move; `off` for none";
    }
    Daemons {
        LIBOPENCL = "PENSTOCK_LIBOPENCL": Kind::Path, "`libOpenCL.so.1`",
            "the ICD loader that workers use";
        LIBCUDA = "PENSTOCK_LIBCUDA": Kind::Path, "`libcuda.so.1`",
            "CUDA's driver that workers use, if there is one";
        LIBCUBLAS = "PENSTOCK_LIBCUBLAS": Kind::Path, "that of the system or its newest toolkit",
            "NVIDIA's cuBLAS that workers use with CUDA's driver";
        LIBCUFFT = "PENSTOCK_LIBCUFFT": Kind::Path, "that of the system or its newest toolkit",
            "NVIDIA's cuFFT that workers use with CUDA's driver";
        LIBCUDA_NODES = "PENSTOCK_LIBCUDA_NODES": Kind::Text, "`none`",
            "the nodes that Penstock's own library uses in a worker, for tests";
        CUDA_EACH = "PENSTOCK_CUDA_EACH": Kind::Number(1, CUDA_EACH_MAX), "1",
            "as how many devices a daemon shows each GPU of CUDA's driver";
        HEAP_TRANSPORT = "PENSTOCK_HEAP_TRANSPORT": Kind::Choice(&["tcp", "ucx"]), "`tcp`",
            "how symmetric heaps reach other nodes";
        PEER_NETWORKS = "PENSTOCK_PEER_NETWORKS": Kind::Text, "all, except special ones",
            "the networks in which the daemon connects to other nodes for its workers, as \
             ADDRESS/BITS, separated by commas, or `none`";
        CONFINE = "PENSTOCK_CONFINE": Kind::Choice(&["off", "basic", "calls", "files", "full"]),
            "`full`",
            "how far the daemon confines its workers";
        REQUIRE_CONFINEMENT = "PENSTOCK_REQUIRE_CONFINEMENT":
            Kind::Choice(&["off", "basic", "calls", "files", "full"]), "`off`",
            "the level of confinement below which the daemon refuses clients";
        BUILD_SECONDS = "PENSTOCK_BUILD_SECONDS": Kind::Number(0, BUILD_SECONDS_MAX), "600",
            "longest build of a program in seconds; 0: builds have no limits";
        BUILD_MIB = "PENSTOCK_BUILD_MIB": Kind::Number(BUILD_MIB_MIN, u64::MAX >> 20), "4096",
            "most memory that the compiler takes for a program, in MiB";
        WORKER_FILES = "PENSTOCK_WORKER_FILES": Kind::Path, "–",
            "more folders that workers may read, separated by colons";
        CACHE = "PENSTOCK_CACHE": Kind::Path,
            "`$CACHE_DIRECTORY`, else `$XDG_CACHE_HOME/penstock`, else `~/.cache/penstock`",
            "the directory of the workers' own files and of compiled kernels";
        LIBUCP = "PENSTOCK_LIBUCP": Kind::Path, "`libucp.so.0`",
            "UCX's library, for PENSTOCK_HEAP_TRANSPORT";
        WORKER = "PENSTOCK_WORKER": Kind::Flag(false), "–",
            "set by the daemon for its workers, which must not meet their own pool";
        POCL_REPLICATION = "POCL_FULL_REPLICATION_THRESHOLD": Kind::Number(0, u64::MAX), "`0`",
            "PoCL's: the threads of a work-group up to which kernels have no loop over them";
        POCL_AFFINITY = "POCL_AFFINITY": Kind::Text, "–",
            "PoCL's: the drivers' threads stay where the drivers bind them";
        DPCPP_AFFINITY = "DPCPP_CPU_CU_AFFINITY": Kind::Text, "–",
            "Intel's: the drivers' threads stay where the drivers bind them";
        SYCL_AFFINITY = "SYCL_CPU_CU_AFFINITY": Kind::Text, "–",
            "Intel's: the drivers' threads stay where the drivers bind them";
    }
    Places {
        LIB = "PENSTOCK_LIB": Kind::Path, "beside `penstock`, else `../lib/penstock`",
            "the OpenCL library that `penstock run` shows to the ICD loader";
        PROGRAMS = "PENSTOCK_PROGRAMS": Kind::Path, "beside `penstock`, else `../lib/penstock`",
            "the directory of the programs of `penstock demo` and `penstock bench`";
        ENERGY_ROOT = "PENSTOCK_ENERGY_ROOT": Kind::Path, "`/`",
            "the directory that has the host's sys and proc";
        ENERGY_NVML = "PENSTOCK_ENERGY_NVML": Kind::Path, "searched",
            "NVIDIA's management library, for the energy of GPUs";
        RUNTIME_DIRECTORY = "XDG_RUNTIME_DIR": Kind::Path,
            "`/run/user/UID`, else `/tmp/penstock-UID`",
            "the directory of your own daemon's socket and of the files of `penstock run`";
    }
    Water {
        WTR_TRANSPORT = "WTR_TRANSPORT": Kind::Choice(&["auto", "mpi", "pool", "none"]), "`auto`",
            "where the devices are that the program uses";
        WTR_MPI = "WTR_MPI": Kind::Text, "the MPI that fits the launcher",
            "openmpi, mpich, the file of a shim, or a folder with shims";
        WTR_WORKER = "WTR_WORKER": Kind::Choice(&["return"]), "–",
            "a rank that has served returns from `wtr_init_devices`";
        WTR_SILENCE = "WTR_SILENCE": Kind::Number(2, u32::MAX as u64), "`5`",
            "seconds of silence after which a rank on another host is lost";
        WTR_HOST = "WTR_HOST": Kind::Text, "the host's name",
            "the name by which ranks on other hosts reach this one, for heaps";
        WTR_SIM = "WTR_SIM": Kind::Path, "–",
            "a model of devices, which are then simulated";
        WTR_DCR = "WTR_DCR": Kind::Choice(&["off", "auto", "paper"]), "`auto`",
            "whether several transfers of the same bytes become a tree";
        WTR_DCR_EXPLAIN = "WTR_DCR_EXPLAIN": Kind::Path, "–",
            "a file that gets one line for each decision about trees";
        WTR_LINK = "WTR_LINK": Kind::Text, "measured",
            "LATENCY,OVERHEAD,BANDWIDTH of the links in µs, µs and MB/s";
        WTR_GRAPH = "WTR_GRAPH": Kind::Path, "–", "a file that gets the graph of all commands";
        WTR_TRACE = "WTR_TRACE": Kind::Path, "–", "a file that gets a trace of the run";
        WTR_SUMMARY = "WTR_SUMMARY": Kind::Path, "–",
            "a file that gets a summary of the run; 1 is standard error";
        WTR_RECORD = "WTR_RECORD": Kind::Flag(false), "off",
            "whether `wtr_dump_graph` works without the files above";
        WTR_WATCHDOG = "WTR_WATCHDOG": Kind::Text, "–",
            "seconds without progress after which the run reports what waits for what";
    }
    Tests {
        TEST_DELAYS = "PENSTOCK_TEST_DELAYS": Kind::Number(0, u64::MAX), "–",
            "the seed of the random delays that a build for tests injects";
        TEST_PLANT = "PENSTOCK_TEST_PLANT": Kind::Text, "–",
            "the planted defect of a build for tests";
    }
    Others {
        HOME = "HOME": Kind::Path, "–", "the user's home directory";
        CACHE_DIRECTORY = "CACHE_DIRECTORY": Kind::Path, "–",
            "systemd's: the directory of the unit for files that can be made again";
        CACHE_HOME = "XDG_CACHE_HOME": Kind::Path, "`~/.cache`",
            "the user's directory for files that can be made again";
        CONFIG_HOME = "XDG_CONFIG_HOME": Kind::Path, "`~/.config`",
            "the directory that has penstock/pool.toml and penstock/key";
        SLURM_NODES = "SLURM_JOB_NODELIST": Kind::Text, "–",
            "the nodes of the allocation, which are the pool's if nothing else names nodes";
        NO_COLOR = "NO_COLOR": Kind::Text, "–", "set: `penstock top` shows no colours";
        PATH = "PATH": Kind::Path, "`/bin:/usr/bin`",
            "the directories in which programs are looked up";
        CUDA_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES": Kind::Text, "all devices",
            "the devices that a CUDA program sees";
        CUDA_MODULE_LOADING = "CUDA_MODULE_LOADING": Kind::Text, "`LAZY`",
            "EAGER: the device's compiler runs when a module is loaded";
        LD_LIBRARY_PATH = "LD_LIBRARY_PATH": Kind::Path, "–",
            "`penstock run` puts the folder of the CUDA libraries first";
        LD_PRELOAD = "LD_PRELOAD": Kind::Path, "–",
            "`penstock run` adds the library that replaces a CUDA runtime inside the program";
        ICD_VENDORS = "OCL_ICD_VENDORS": Kind::Path, "`/etc/OpenCL/vendors`",
            "the drivers of the ICD loader, which `penstock doctor` examines";
    }
}

/// Longest time-out that can be configured, in ms: ten minutes. A larger number is a typing error.
pub const TIMEOUT_MS_MAX: u64 = 600_000;

/// Shortest silence of a worker that can be chosen, in s: three signs of life are missing.
pub const SILENCE_S_MIN: u64 = 15;

/// Longest silence of a worker that can be chosen, in s: a day.
const SILENCE_S_MAX: u64 = 86_400;

/// Longest build that can be configured, in seconds: one day. A larger number is a typing error.
pub const BUILD_SECONDS_MAX: u64 = 86_400;

/// Least memory of a compiler that can be configured, in MiB. Compilers based on LLVM take some 50
/// MiB for an empty program.
pub const BUILD_MIB_MIN: u64 = 64;

/// Most devices that one GPU is shown as. More devices on one GPU measure nothing new.
pub const CUDA_EACH_MAX: u64 = 8;
