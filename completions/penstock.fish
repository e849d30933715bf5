# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_penstock_global_optspecs
    string join \n h/help V/version
end

function __fish_penstock_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_penstock_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_penstock_using_subcommand
    set -l cmd (__fish_penstock_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c penstock -n "__fish_penstock_needs_command" -s h -l help -d 'Print help'
complete -c penstock -n "__fish_penstock_needs_command" -s V -l version -d 'Print version'
complete -c penstock -n "__fish_penstock_needs_command" -f -a "serve" -d 'Run the daemon that offers the devices of this host, until it is interrupted'
complete -c penstock -n "__fish_penstock_needs_command" -f -a "bridge" -d 'Connect standard input and output to your own daemon of this host; SSH runs this on nodes'
complete -c penstock -n "__fish_penstock_needs_command" -f -a "devices" -d 'List the devices of the pool, as `penstock run` shows them to a program'
complete -c penstock -n "__fish_penstock_needs_command" -f -a "discover" -d 'List the daemons that announce themselves on the local network'
complete -c penstock -n "__fish_penstock_needs_command" -f -a "run" -d 'Run an OpenCL or CUDA program on the pool'
complete -c penstock -n "__fish_penstock_needs_command" -f -a "slurm" -d 'Run a program in a job of Slurm, on the devices of all nodes of the job'
complete -c penstock -n "__fish_penstock_needs_command" -f -a "status" -d 'Show the state of the daemons of the pool, and what each client costs'
complete -c penstock -n "__fish_penstock_needs_command" -f -a "top" -d 'Show nodes, devices and clients of the pool anew each second, and end sessions'
complete -c penstock -n "__fish_penstock_needs_command" -f -a "kill" -d 'End a session of a node; its client gets an error'
complete -c penstock -n "__fish_penstock_needs_command" -f -a "drain" -d 'Have a node take no new clients, so that its sessions end by and by'
complete -c penstock -n "__fish_penstock_needs_command" -f -a "metrics" -d 'Write the state of the daemons of the pool for Prometheus, or serve it over HTTP'
complete -c penstock -n "__fish_penstock_needs_command" -f -a "bench" -d 'Measure the pool and the local OpenCL platform, or the communication between devices'
complete -c penstock -n "__fish_penstock_needs_command" -f -a "check" -d 'Run random OpenCL or CUDA programs on any driver and compare their results with a model'
complete -c penstock -n "__fish_penstock_needs_command" -f -a "demo" -d 'Run a matrix product on the local platform and on a pool of two nodes on this host'
complete -c penstock -n "__fish_penstock_needs_command" -f -a "sim" -d 'Run a libWater program on a simulated cluster, in simulated time'
complete -c penstock -n "__fish_penstock_needs_command" -f -a "energy" -d 'Measure the energy and the core-seconds of a program, or list the energy sources of this host'
complete -c penstock -n "__fish_penstock_needs_command" -f -a "key" -d 'Show or create the key that nodes and clients need over TCP and vsock'
complete -c penstock -n "__fish_penstock_needs_command" -f -a "trace" -d 'Show what the processes of a session sent to each other, or send it once more'
complete -c penstock -n "__fish_penstock_needs_command" -f -a "config" -d 'List the environment variables that Penstock reads, and say which values it cannot read'
complete -c penstock -n "__fish_penstock_needs_command" -f -a "container" -d 'Print the options with which a container engine gives a container the pool'
complete -c penstock -n "__fish_penstock_needs_command" -f -a "doctor" -d 'Say what is wrong with this host: devices, drivers, the pool, virtual machines, the network'
complete -c penstock -n "__fish_penstock_needs_command" -f -a "vm" -d 'Run programs in virtual machines; define and check machines on this host'
complete -c penstock -n "__fish_penstock_needs_command" -f -a "completions" -d 'Write the completions for a shell to standard output'
complete -c penstock -n "__fish_penstock_using_subcommand serve" -l listen -d 'Address to listen on: unix:PATH, tcp:HOST:PORT, vsock:PORT for virtual machines, vsock:PATH:PORT for a virtual machine whose monitor has its socket at PATH, or local for the user\'s own socket. Can be given several times [default: local]' -r
complete -c penstock -n "__fish_penstock_using_subcommand serve" -l guest-memory -d 'Memory that a virtual machine shares with this host. ADDRESS is the one of --listen at which this virtual machine connects. PATH is a file in a tmpfs, such as /dev/shm, which the hypervisor shows as an ivshmem device. After the path, `,size=SIZE` may give the size, a power of two [default: 256M], and `,sessions=N` the number of sessions that use the memory at a time [default: 4]. Can be given once for each virtual machine' -r
complete -c penstock -n "__fish_penstock_using_subcommand serve" -l allow-user -d 'Also serve this user (a name or a number) on Unix sockets. Can be given several times [default: only the user that runs the daemon]' -r
complete -c penstock -n "__fish_penstock_using_subcommand serve" -l idle-end -d 'End after this number of seconds without a client [default: never]' -r
complete -c penstock -n "__fish_penstock_using_subcommand serve" -l limits -d 'File with the limits of users, see limits.toml(5). The daemon reads it again when it changes [default: no limits besides the built-in ones]' -r -F
complete -c penstock -n "__fish_penstock_using_subcommand serve" -l log -d 'Format of the log on standard error' -r -f -a "text\t'Lines of text for people'
json\t'One JSON object per line'"
complete -c penstock -n "__fish_penstock_using_subcommand serve" -l confine -d 'How far to confine the workers, which run the kernels of clients: off, basic, calls, files or full. A system that can do less does what it can, and `penstock status` says so [default: full, or PENSTOCK_CONFINE]' -r
complete -c penstock -n "__fish_penstock_using_subcommand serve" -l require-confinement -d 'Refuse clients if workers are confined less than this [default: off, or PENSTOCK_REQUIRE_CONFINEMENT]' -r
complete -c penstock -n "__fish_penstock_using_subcommand serve" -l worker-users -d 'Give each worker a Unix user and a group of its own from this range, such as 600000-600511, so that the kernels of different clients have different users. No user or group of this host may have a number of the range. The range has at least 512 numbers and belongs to this daemon alone, which root must run [default: workers have the user of the daemon]' -r
complete -c penstock -n "__fish_penstock_using_subcommand serve" -l platform -d 'Serve one simulated device, for tests, instead of the devices of this host' -r -f -a "null\t'A device in memory, which runs only kernels of its own'"
complete -c penstock -n "__fish_penstock_using_subcommand serve" -l announce -d 'Announce the daemon\'s TCP addresses on the local network, so that clients find it with `penstock discover` and PENSTOCK_NODES=discover'
complete -c penstock -n "__fish_penstock_using_subcommand serve" -l ends-with-parent -d 'End when the process that started this one ends'
complete -c penstock -n "__fish_penstock_using_subcommand serve" -l detached -d 'Leave the session and the directory of the process that started this one'
complete -c penstock -n "__fish_penstock_using_subcommand serve" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c penstock -n "__fish_penstock_using_subcommand bridge" -l check -d 'Only find or start the daemon, and say where it is'
complete -c penstock -n "__fish_penstock_using_subcommand bridge" -l direct -d 'Let the client connect to the daemon directly, if it can: ask the daemon for a one-time key'
complete -c penstock -n "__fish_penstock_using_subcommand bridge" -s h -l help -d 'Print help'
complete -c penstock -n "__fish_penstock_using_subcommand devices" -l nodes -d 'Nodes to ask, instead of the configured ones' -r
complete -c penstock -n "__fish_penstock_using_subcommand devices" -l json -d 'Write the list as JSON'
complete -c penstock -n "__fish_penstock_using_subcommand devices" -l no-local -d 'Start no daemon for the devices of this host'
complete -c penstock -n "__fish_penstock_using_subcommand devices" -s h -l help -d 'Print help'
complete -c penstock -n "__fish_penstock_using_subcommand discover" -l json -d 'Write the list as JSON'
complete -c penstock -n "__fish_penstock_using_subcommand discover" -s h -l help -d 'Print help'
complete -c penstock -n "__fish_penstock_using_subcommand run" -l nodes -d 'Nodes to use, instead of the configured ones' -r
complete -c penstock -n "__fish_penstock_using_subcommand run" -l devices -d 'Show the program only the devices that this query selects; overrides PENSTOCK_DEVICES' -r
complete -c penstock -n "__fish_penstock_using_subcommand run" -l wait -d 'Wait for nodes that do not answer or are full, at most this number of seconds' -r
complete -c penstock -n "__fish_penstock_using_subcommand run" -l mpi -d 'Let the program pass CUDA device memory to MPI' -r -f -a "auto\t''
openmpi\t''
mpich\t''"
complete -c penstock -n "__fish_penstock_using_subcommand run" -l summary -d 'Summarise the run on standard error when the program ends, or add JSON to FILE' -r -F
complete -c penstock -n "__fish_penstock_using_subcommand run" -l in -d 'Existing directory with an entry for the ICD loader, which another process removes' -r -F
complete -c penstock -n "__fish_penstock_using_subcommand run" -l bound-to -d 'Id of the parent. The program ends with it' -r
complete -c penstock -n "__fish_penstock_using_subcommand run" -l no-local -d 'Start no daemon for the devices of this host'
complete -c penstock -n "__fish_penstock_using_subcommand run" -l allow-missing -d 'Do without named nodes that do not answer, as long as one of them does'
complete -c penstock -n "__fish_penstock_using_subcommand run" -s h -l help -d 'Print help'
complete -c penstock -n "__fish_penstock_using_subcommand slurm" -l het-group -d 'Components of a heterogeneous job whose nodes offer their devices [default: all]' -r
complete -c penstock -n "__fish_penstock_using_subcommand slurm" -l devices -d 'Show the program only the devices that this query selects; overrides PENSTOCK_DEVICES' -r
complete -c penstock -n "__fish_penstock_using_subcommand slurm" -l mpi -d 'Let the program pass CUDA device memory to MPI' -r -f -a "auto\t''
openmpi\t''
mpich\t''"
complete -c penstock -n "__fish_penstock_using_subcommand slurm" -l summary -d 'Summarise the run on standard error when the program ends, or add JSON to FILE' -r -F
complete -c penstock -n "__fish_penstock_using_subcommand slurm" -s h -l help -d 'Print help'
complete -c penstock -n "__fish_penstock_using_subcommand status" -l nodes -d 'Nodes to ask, instead of the configured ones' -r
complete -c penstock -n "__fish_penstock_using_subcommand status" -l json -d 'Write the status as JSON'
complete -c penstock -n "__fish_penstock_using_subcommand status" -l limits -d 'Show what each user holds against the limits, who set each limit, and how it is enforced'
complete -c penstock -n "__fish_penstock_using_subcommand status" -s h -l help -d 'Print help'
complete -c penstock -n "__fish_penstock_using_subcommand top" -l nodes -d 'Nodes to ask, instead of the configured ones' -r
complete -c penstock -n "__fish_penstock_using_subcommand top" -l once -d 'Look twice, one second apart, and write one table of each kind. This is the default if the input or the output is no terminal'
complete -c penstock -n "__fish_penstock_using_subcommand top" -l json -d 'Write one JSON document, as with --once'
complete -c penstock -n "__fish_penstock_using_subcommand top" -s h -l help -d 'Print help'
complete -c penstock -n "__fish_penstock_using_subcommand kill" -s h -l help -d 'Print help'
complete -c penstock -n "__fish_penstock_using_subcommand drain" -l undo -d 'Let the node take new clients again'
complete -c penstock -n "__fish_penstock_using_subcommand drain" -s h -l help -d 'Print help'
complete -c penstock -n "__fish_penstock_using_subcommand metrics" -l listen -d 'Serve the metrics at this address, IP:PORT or unix:PATH, instead of writing them once' -r
complete -c penstock -n "__fish_penstock_using_subcommand metrics" -l nodes -d 'Nodes to ask, instead of the configured ones' -r
complete -c penstock -n "__fish_penstock_using_subcommand metrics" -s h -l help -d 'Print help'
complete -c penstock -n "__fish_penstock_using_subcommand bench; and not __fish_seen_subcommand_from comm" -l output -d 'Directory for benchmarks.json and benchmarks.md' -r -F
complete -c penstock -n "__fish_penstock_using_subcommand bench; and not __fish_seen_subcommand_from comm" -l json -d 'Write the results as JSON'
complete -c penstock -n "__fish_penstock_using_subcommand bench; and not __fish_seen_subcommand_from comm" -l quick -d 'Take fewer samples: less than a minute, but less exact'
complete -c penstock -n "__fish_penstock_using_subcommand bench; and not __fish_seen_subcommand_from comm" -s h -l help -d 'Print help'
complete -c penstock -n "__fish_penstock_using_subcommand bench; and not __fish_seen_subcommand_from comm" -f -a "comm" -d 'Measure communication between devices: on the devices, through proxies, and through the hosts with MPI and TCP'
complete -c penstock -n "__fish_penstock_using_subcommand bench; and __fish_seen_subcommand_from comm" -l path -d 'Measure only this path. Can be given several times [default: all]' -r -f -a "device\t''
proxy\t''
host-mpi\t''
host-mpi-pipelined\t''
host-tcp\t''
host-tcp-pipelined\t''"
complete -c penstock -n "__fish_penstock_using_subcommand bench; and __fish_seen_subcommand_from comm" -l sizes -d 'Message sizes in bytes, separated by commas [default: 8, and the powers of four from 16 to 4 MiB]' -r
complete -c penstock -n "__fish_penstock_using_subcommand bench; and __fish_seen_subcommand_from comm" -l devices -d 'Numbers of devices for the barrier, separated by commas [default: 2,4,6,8,12]' -r
complete -c penstock -n "__fish_penstock_using_subcommand bench; and __fish_seen_subcommand_from comm" -l gpus -d 'Number of devices that are GPUs of CUDA\'s own driver. These come first; all others are CPU devices' -r
complete -c penstock -n "__fish_penstock_using_subcommand bench; and __fish_seen_subcommand_from comm" -l word -d 'Bytes per word, for the figure of joules per word' -r
complete -c penstock -n "__fish_penstock_using_subcommand bench; and __fish_seen_subcommand_from comm" -l seconds -d 'Shortest time that each figure is measured for [default: 0.5; 0.1 with --quick; at least 2 if energy is measured]' -r
complete -c penstock -n "__fish_penstock_using_subcommand bench; and __fish_seen_subcommand_from comm" -l svg -d 'Write the figures as an SVG picture to this file' -r -F
complete -c penstock -n "__fish_penstock_using_subcommand bench; and __fish_seen_subcommand_from comm" -l as-rank -d 'Act as one process of a host path. The file describes the measurement, the number selects the process' -r -F
complete -c penstock -n "__fish_penstock_using_subcommand bench; and __fish_seen_subcommand_from comm" -l json -d 'Write the results as JSON'
complete -c penstock -n "__fish_penstock_using_subcommand bench; and __fish_seen_subcommand_from comm" -l quick -d 'Take fewer sizes and samples: less than a minute, but less exact'
complete -c penstock -n "__fish_penstock_using_subcommand bench; and __fish_seen_subcommand_from comm" -l bars -d 'Show which of the bars of docs/notes/comm.md are met'
complete -c penstock -n "__fish_penstock_using_subcommand bench; and __fish_seen_subcommand_from comm" -l require-energy -d 'Fail if no energy can be measured'
complete -c penstock -n "__fish_penstock_using_subcommand bench; and __fish_seen_subcommand_from comm" -s h -l help -d 'Print help'
complete -c penstock -n "__fish_penstock_using_subcommand check" -l exhaustive -d 'With --machine: run all programs of up to this many operations instead of random ones' -r
complete -c penstock -n "__fish_penstock_using_subcommand check" -l turns -d 'With --exhaustive: number of points in a run at which a step other than the first possible one is taken' -r
complete -c penstock -n "__fish_penstock_using_subcommand check" -l platform -d 'Use the first platform that has devices and whose name contains this text' -r
complete -c penstock -n "__fish_penstock_using_subcommand check" -l seed -d 'Seed of the first program; the following programs have the following seeds' -r
complete -c penstock -n "__fish_penstock_using_subcommand check" -l programs -d 'Number of programs to run' -r
complete -c penstock -n "__fish_penstock_using_subcommand check" -l seconds -d 'How long to run programs, in seconds [default: 60]' -r
complete -c penstock -n "__fish_penstock_using_subcommand check" -l ops -d 'Approximate largest number of operations in a program' -r
complete -c penstock -n "__fish_penstock_using_subcommand check" -l jobs -d 'Number of programs that run at the same time, each in its own process' -r
complete -c penstock -n "__fish_penstock_using_subcommand check" -l only -d 'Restrict programs to these features, in addition to buffers, in-order queues, transfers and launches' -r
complete -c penstock -n "__fish_penstock_using_subcommand check" -l without -d 'Exclude these features from programs' -r
complete -c penstock -n "__fish_penstock_using_subcommand check" -l shrink-seconds -d 'How long to shrink the program of each kind of finding, in seconds; 0 leaves the programs as they are' -r
complete -c penstock -n "__fish_penstock_using_subcommand check" -l hang-seconds -d 'Seconds after which a program counts as hanging' -r
complete -c penstock -n "__fish_penstock_using_subcommand check" -l findings -d 'Number of findings that end the run' -r
complete -c penstock -n "__fish_penstock_using_subcommand check" -l out -d 'Folder for the programs with findings, as C files' -r -F
complete -c penstock -n "__fish_penstock_using_subcommand check" -l replay -d 'Run the program in this file, which an earlier run wrote, instead of random programs' -r -F
complete -c penstock -n "__fish_penstock_using_subcommand check" -l machine -d 'Run small programs on the client\'s memory model alone, without a driver; uses --seed, --programs and --seconds'
complete -c penstock -n "__fish_penstock_using_subcommand check" -l json -d 'Write the summary as JSON'
complete -c penstock -n "__fish_penstock_using_subcommand check" -l cuda -d 'Run programs of CUDA\'s driver interface, with the libcuda.so.1 that the loader finds'
complete -c penstock -n "__fish_penstock_using_subcommand check" -l kernels -d 'Run random kernels of CUDA, and compare their results with those of an emulator'
complete -c penstock -n "__fish_penstock_using_subcommand check" -l list -d 'List the features and end'
complete -c penstock -n "__fish_penstock_using_subcommand check" -l child -d 'Serve a campaign: read requests from standard input'
complete -c penstock -n "__fish_penstock_using_subcommand check" -s h -l help -d 'Print help'
complete -c penstock -n "__fish_penstock_using_subcommand demo" -l output -d 'Directory for the timelines of the two runs' -r -F
complete -c penstock -n "__fish_penstock_using_subcommand demo" -s h -l help -d 'Print help'
complete -c penstock -n "__fish_penstock_using_subcommand sim" -l nodes -d 'Number of nodes to simulate' -r
complete -c penstock -n "__fish_penstock_using_subcommand sim" -l platform -d 'Cluster: gbe, ib-qdr, or a SimGrid platform file' -r
complete -c penstock -n "__fish_penstock_using_subcommand sim" -l model -d 'Model of the nodes\' devices and of the times of their kernels: vsc2, or a file' -r
complete -c penstock -n "__fish_penstock_using_subcommand sim" -l dcr -d 'Whether collective operations replace transfers: off, paper or auto [default: that of libWater]' -r
complete -c penstock -n "__fish_penstock_using_subcommand sim" -l option -d 'Option for SimGrid, such as smpi/test:1e-6. Can be given several times' -r
complete -c penstock -n "__fish_penstock_using_subcommand sim" -l verbose -d 'Show the messages of SimGrid, too'
complete -c penstock -n "__fish_penstock_using_subcommand sim" -s h -l help -d 'Print help'
complete -c penstock -n "__fish_penstock_using_subcommand energy" -l output -d 'Write the figures to this file instead of standard error' -r -F
complete -c penstock -n "__fish_penstock_using_subcommand energy" -l idle -d 'How long to measure the idle power before the program and again after it; 0 omits both measurements' -r
complete -c penstock -n "__fish_penstock_using_subcommand energy" -l interval -d 'Time between two power samples in milliseconds, for sources that have no energy counter' -r
complete -c penstock -n "__fish_penstock_using_subcommand energy" -l power-model -d 'File with the watts of busy and idle cores, for figures whose names begin with model_' -r -F
complete -c penstock -n "__fish_penstock_using_subcommand energy" -l json -d 'Write the figures as JSON'
complete -c penstock -n "__fish_penstock_using_subcommand energy" -l psys -d 'Also try the perf event energy-psys. Where it does not work, as in virtual machines, the kernel logs a warning'
complete -c penstock -n "__fish_penstock_using_subcommand energy" -l require-energy -d 'Fail before the program starts if no energy can be measured'
complete -c penstock -n "__fish_penstock_using_subcommand energy" -s h -l help -d 'Print help'
complete -c penstock -n "__fish_penstock_using_subcommand key; and not __fish_seen_subcommand_from list allow revoke" -l create -d 'Create a new key, unless there is one already'
complete -c penstock -n "__fish_penstock_using_subcommand key; and not __fish_seen_subcommand_from list allow revoke" -l path -d 'Print only the path of the key file'
complete -c penstock -n "__fish_penstock_using_subcommand key; and not __fish_seen_subcommand_from list allow revoke" -s h -l help -d 'Print help'
complete -c penstock -n "__fish_penstock_using_subcommand key; and not __fish_seen_subcommand_from list allow revoke" -f -a "list" -d 'Show this user\'s own public key, the nodes that it knows, and the clients of its daemon'
complete -c penstock -n "__fish_penstock_using_subcommand key; and not __fish_seen_subcommand_from list allow revoke" -f -a "allow" -d 'Accept a public key: of a node that this user reaches, or of a client of this user\'s daemon'
complete -c penstock -n "__fish_penstock_using_subcommand key; and not __fish_seen_subcommand_from list allow revoke" -f -a "revoke" -d 'Accept a public key no longer. Running sessions of a client end within a second'
complete -c penstock -n "__fish_penstock_using_subcommand key; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c penstock -n "__fish_penstock_using_subcommand key; and __fish_seen_subcommand_from allow" -l quota -d 'Section of the file of limits for a client: it has the limits of [user."key:QUOTA"], together with all other clients of this quota' -r
complete -c penstock -n "__fish_penstock_using_subcommand key; and __fish_seen_subcommand_from allow" -s h -l help -d 'Print help'
complete -c penstock -n "__fish_penstock_using_subcommand key; and __fish_seen_subcommand_from revoke" -s h -l help -d 'Print help'
complete -c penstock -n "__fish_penstock_using_subcommand trace; and not __fish_seen_subcommand_from show replay" -s h -l help -d 'Print help'
complete -c penstock -n "__fish_penstock_using_subcommand trace; and not __fish_seen_subcommand_from show replay" -f -a "show" -d 'Print the frames of one or more traces, in the order of their times'
complete -c penstock -n "__fish_penstock_using_subcommand trace; and not __fish_seen_subcommand_from show replay" -f -a "replay" -d 'Send the calls of a client\'s trace to another worker, and compare its answers'
complete -c penstock -n "__fish_penstock_using_subcommand trace; and __fish_seen_subcommand_from show" -l call -d 'Show only this call, such as LaunchKernel. Can be given several times' -r
complete -c penstock -n "__fish_penstock_using_subcommand trace; and __fish_seen_subcommand_from show" -l link -d 'Show only the link with this number' -r
complete -c penstock -n "__fish_penstock_using_subcommand trace; and __fish_seen_subcommand_from show" -l process -d 'Show only the process with this id' -r
complete -c penstock -n "__fish_penstock_using_subcommand trace; and __fish_seen_subcommand_from show" -l json -d 'Write one JSON object per line'
complete -c penstock -n "__fish_penstock_using_subcommand trace; and __fish_seen_subcommand_from show" -l payload -d 'Show whole payloads in hexadecimal'
complete -c penstock -n "__fish_penstock_using_subcommand trace; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help'
complete -c penstock -n "__fish_penstock_using_subcommand trace; and __fish_seen_subcommand_from replay" -l link -d 'Link of the trace to replay, if the client had several' -r
complete -c penstock -n "__fish_penstock_using_subcommand trace; and __fish_seen_subcommand_from replay" -l nodes -d 'Node to use, instead of the configured ones' -r
complete -c penstock -n "__fish_penstock_using_subcommand trace; and __fish_seen_subcommand_from replay" -l patience -d 'Longest wait for one answer, in seconds' -r
complete -c penstock -n "__fish_penstock_using_subcommand trace; and __fish_seen_subcommand_from replay" -s h -l help -d 'Print help'
complete -c penstock -n "__fish_penstock_using_subcommand config" -s h -l help -d 'Print help'
complete -c penstock -n "__fish_penstock_using_subcommand container" -l socket -d 'Socket of the daemon [default: your own daemon\'s socket]' -r -F
complete -c penstock -n "__fish_penstock_using_subcommand container" -l folder -d 'Mount the folder of the socket instead of the socket, so that a running container finds a daemon that starts anew. The container sees everything in that folder'
complete -c penstock -n "__fish_penstock_using_subcommand container" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c penstock -n "__fish_penstock_using_subcommand doctor" -l root -d 'Examine a copy of another host\'s files instead of this host' -r -F
complete -c penstock -n "__fish_penstock_using_subcommand doctor" -l collect -d 'Write a copy for --root, without what identifies the host or its users, and examine nothing' -r -F
complete -c penstock -n "__fish_penstock_using_subcommand doctor" -l json -d 'Write the findings as JSON'
complete -c penstock -n "__fish_penstock_using_subcommand doctor" -s h -l help -d 'Print help'
complete -c penstock -n "__fish_penstock_using_subcommand vm; and not __fish_seen_subcommand_from run define check" -s h -l help -d 'Print help'
complete -c penstock -n "__fish_penstock_using_subcommand vm; and not __fish_seen_subcommand_from run define check" -f -a "run" -d 'Boot a small guest, run a program in it on the devices of this host, and return its exit status'
complete -c penstock -n "__fish_penstock_using_subcommand vm; and not __fish_seen_subcommand_from run define check" -f -a "define" -d 'Print a libvirt domain, or a QEMU command line, for a guest that is placed well on this host'
complete -c penstock -n "__fish_penstock_using_subcommand vm; and not __fish_seen_subcommand_from run define check" -f -a "check" -d 'Say what is wrong with a libvirt domain on this host, with the corrected elements'
complete -c penstock -n "__fish_penstock_using_subcommand vm; and __fish_seen_subcommand_from run" -l transport -d 'How the guest reaches the daemon of this host [default: vsock, or tcp if this host has no end for vsock]' -r -f -a "vsock\t'vsock, which needs no network'
shm\t'Memory that guest and host share, with vsock for wake-ups'
tcp\t'TCP over a virtual network card'"
complete -c penstock -n "__fish_penstock_using_subcommand vm; and __fish_seen_subcommand_from run" -l nodes -d 'Nodes that the guest uses, instead of a daemon for this guest alone' -r
complete -c penstock -n "__fish_penstock_using_subcommand vm; and __fish_seen_subcommand_from run" -l memory -d 'Memory of the guest in MiB [default: what its files need, and 192]' -r
complete -c penstock -n "__fish_penstock_using_subcommand vm; and __fish_seen_subcommand_from run" -l cpus -d 'Number of processors of the guest' -r
complete -c penstock -n "__fish_penstock_using_subcommand vm; and __fish_seen_subcommand_from run" -l timeout -d 'End the guest if the program takes longer than this' -r
complete -c penstock -n "__fish_penstock_using_subcommand vm; and __fish_seen_subcommand_from run" -l file -d 'Copy this file or folder into the guest, at the same path or at GUESTPATH, with the libraries of the programs in it. Can be given several times' -r
complete -c penstock -n "__fish_penstock_using_subcommand vm; and __fish_seen_subcommand_from run" -l env -d 'Give the program this variable, with this command\'s value or VALUE. Can be given several times' -r
complete -c penstock -n "__fish_penstock_using_subcommand vm; and __fish_seen_subcommand_from run" -l output -d 'Write the JSON to this file instead' -r -F
complete -c penstock -n "__fish_penstock_using_subcommand vm; and __fish_seen_subcommand_from run" -l kvm -d 'Fail if KVM does not work, instead of emulating the guest'
complete -c penstock -n "__fish_penstock_using_subcommand vm; and __fish_seen_subcommand_from run" -l no-kvm -d 'Emulate the guest, also if KVM works'
complete -c penstock -n "__fish_penstock_using_subcommand vm; and __fish_seen_subcommand_from run" -l verbose -d 'Show the guest\'s console and the times on standard error'
complete -c penstock -n "__fish_penstock_using_subcommand vm; and __fish_seen_subcommand_from run" -l json -d 'When the program has ended, write what became of it and of the guest as JSON on standard error'
complete -c penstock -n "__fish_penstock_using_subcommand vm; and __fish_seen_subcommand_from run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c penstock -n "__fish_penstock_using_subcommand vm; and __fish_seen_subcommand_from define" -l format -d 'What to print' -r -f -a "libvirt\t'A domain for virsh define'
qemu\t'A shell script that starts QEMU'"
complete -c penstock -n "__fish_penstock_using_subcommand vm; and __fish_seen_subcommand_from define" -l transport -d 'How programs in the guest reach the pool' -r -f -a "vsock\t'vsock, which needs no network'
shm\t'Memory that guest and host share, with vsock for wake-ups'
tcp\t'TCP over a virtual network card'"
complete -c penstock -n "__fish_penstock_using_subcommand vm; and __fish_seen_subcommand_from define" -l cid -d 'Number of the guest for vsock, which no other guest of the host has [default: 3]' -r
complete -c penstock -n "__fish_penstock_using_subcommand vm; and __fish_seen_subcommand_from define" -l disk -d 'Image of the guest\'s disk; a name that ends with .qcow2 has that format, others are raw' -r -F
complete -c penstock -n "__fish_penstock_using_subcommand vm; and __fish_seen_subcommand_from define" -l device -d 'Pass this PCI device through. Can be given several times [default: all devices that are bound to vfio-pci]' -r
complete -c penstock -n "__fish_penstock_using_subcommand vm; and __fish_seen_subcommand_from define" -l cpus -d 'Number of processors of the guest [default: 8, or all of the NUMA node if it has fewer]' -r
complete -c penstock -n "__fish_penstock_using_subcommand vm; and __fish_seen_subcommand_from define" -l memory -d 'Memory of the guest in MiB [default: 4096]' -r
complete -c penstock -n "__fish_penstock_using_subcommand vm; and __fish_seen_subcommand_from define" -l node -d 'NUMA node for CPUs and memory [default: that of the devices]' -r
complete -c penstock -n "__fish_penstock_using_subcommand vm; and __fish_seen_subcommand_from define" -l root -d 'Read the facts from a copy of another host\'s files: see penstock-doctor(1)' -r -F
complete -c penstock -n "__fish_penstock_using_subcommand vm; and __fish_seen_subcommand_from define" -l network -d 'Give the guest a network card, also if the pool needs none'
complete -c penstock -n "__fish_penstock_using_subcommand vm; and __fish_seen_subcommand_from define" -l no-devices -d 'Pass no device through'
complete -c penstock -n "__fish_penstock_using_subcommand vm; and __fish_seen_subcommand_from define" -l no-huge-pages -d 'Do not use huge pages, also if a device is passed through'
complete -c penstock -n "__fish_penstock_using_subcommand vm; and __fish_seen_subcommand_from define" -l virtual-iommu -d 'Give the guest an IOMMU of its own, for guests that use VFIO themselves'
complete -c penstock -n "__fish_penstock_using_subcommand vm; and __fish_seen_subcommand_from define" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c penstock -n "__fish_penstock_using_subcommand vm; and __fish_seen_subcommand_from check" -l root -d 'Check against a copy of another host\'s files: see penstock-doctor(1)' -r -F
complete -c penstock -n "__fish_penstock_using_subcommand vm; and __fish_seen_subcommand_from check" -l json -d 'Write the findings as JSON'
complete -c penstock -n "__fish_penstock_using_subcommand vm; and __fish_seen_subcommand_from check" -s h -l help -d 'Print help'
complete -c penstock -n "__fish_penstock_using_subcommand completions" -s h -l help -d 'Print help'
