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
complete -c penstock -n "__fish_penstock_needs_command" -f -a "serve" -d 'Offer the devices of this host: run its daemon until it is interrupted'
complete -c penstock -n "__fish_penstock_needs_command" -f -a "devices" -d 'List the devices of the pool, as `penstock run` shows them'
complete -c penstock -n "__fish_penstock_needs_command" -f -a "run" -d 'Run an OpenCL program on the pool'
complete -c penstock -n "__fish_penstock_needs_command" -f -a "status" -d 'Show what the daemons of the pool do'
complete -c penstock -n "__fish_penstock_needs_command" -f -a "bench" -d 'Measure the pool beside the local OpenCL platform, or communication between devices'
complete -c penstock -n "__fish_penstock_needs_command" -f -a "check" -d 'Run random OpenCL programs on any OpenCL platform and compare what they see with a model'
complete -c penstock -n "__fish_penstock_needs_command" -f -a "demo" -d 'Run a matrix product on a pool of two nodes on this host, and beside it locally'
complete -c penstock -n "__fish_penstock_needs_command" -f -a "sim" -d 'Run a libWater program on a simulated cluster, in simulated time'
complete -c penstock -n "__fish_penstock_needs_command" -f -a "energy" -d 'Measure the energy and the core-seconds of a command, or list the energy sources of this host'
complete -c penstock -n "__fish_penstock_needs_command" -f -a "key" -d 'Show or make the key that nodes and clients need over TCP'
complete -c penstock -n "__fish_penstock_needs_command" -f -a "completions" -d 'Write the completions for a shell to standard output'
complete -c penstock -n "__fish_penstock_using_subcommand serve" -l listen -d 'Where to listen: unix:PATH, tcp:HOST:PORT, or local for the user\'s own socket. Can be given several times [default: local]' -r
complete -c penstock -n "__fish_penstock_using_subcommand serve" -l allow-user -d 'Serve this user too, by name or number, on Unix sockets. Can be given several times [default: only the own user]' -r
complete -c penstock -n "__fish_penstock_using_subcommand serve" -l log -d 'How to write the log, to standard error' -r -f -a "text\t'Lines for people'
json\t'One JSON object a line'"
complete -c penstock -n "__fish_penstock_using_subcommand serve" -l ends-with-parent -d 'End when the process that started this one ends'
complete -c penstock -n "__fish_penstock_using_subcommand serve" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c penstock -n "__fish_penstock_using_subcommand devices" -l nodes -d 'The nodes to ask, instead of the configured ones' -r
complete -c penstock -n "__fish_penstock_using_subcommand devices" -l json -d 'Write JSON'
complete -c penstock -n "__fish_penstock_using_subcommand devices" -l no-local -d 'Leave out the devices of this host, unless its daemon is one of the nodes'
complete -c penstock -n "__fish_penstock_using_subcommand devices" -s h -l help -d 'Print help'
complete -c penstock -n "__fish_penstock_using_subcommand run" -l nodes -d 'The nodes to use, instead of the configured ones' -r
complete -c penstock -n "__fish_penstock_using_subcommand run" -l no-local -d 'Leave out the devices of this host, unless its daemon is one of the nodes'
complete -c penstock -n "__fish_penstock_using_subcommand run" -s h -l help -d 'Print help'
complete -c penstock -n "__fish_penstock_using_subcommand status" -l nodes -d 'The nodes to ask, instead of the configured ones' -r
complete -c penstock -n "__fish_penstock_using_subcommand status" -l json -d 'Write JSON'
complete -c penstock -n "__fish_penstock_using_subcommand status" -s h -l help -d 'Print help'
complete -c penstock -n "__fish_penstock_using_subcommand bench; and not __fish_seen_subcommand_from comm" -l output -d 'Write benchmarks.json and benchmarks.md there' -r -F
complete -c penstock -n "__fish_penstock_using_subcommand bench; and not __fish_seen_subcommand_from comm" -l json -d 'Write JSON'
complete -c penstock -n "__fish_penstock_using_subcommand bench; and not __fish_seen_subcommand_from comm" -l quick -d 'Take fewer samples: less than a minute, and less exact'
complete -c penstock -n "__fish_penstock_using_subcommand bench; and not __fish_seen_subcommand_from comm" -s h -l help -d 'Print help'
complete -c penstock -n "__fish_penstock_using_subcommand bench; and not __fish_seen_subcommand_from comm" -f -a "comm" -d 'Measure communication between devices: on the devices, through proxies, and through the hosts over MPI and TCP'
complete -c penstock -n "__fish_penstock_using_subcommand bench; and __fish_seen_subcommand_from comm" -l path -d 'Measure only this path. Can be given several times [default: all]' -r -f -a "device\t''
proxy\t''
host-mpi\t''
host-mpi-pipelined\t''
host-tcp\t''
host-tcp-pipelined\t''"
complete -c penstock -n "__fish_penstock_using_subcommand bench; and __fish_seen_subcommand_from comm" -l sizes -d 'Sizes of messages, in bytes, with commas between [default: 8, and the powers of four from 16 to 4 MiB]' -r
complete -c penstock -n "__fish_penstock_using_subcommand bench; and __fish_seen_subcommand_from comm" -l devices -d 'Numbers of devices for the barrier, with commas between [default: 2,4,6,8,12]' -r
complete -c penstock -n "__fish_penstock_using_subcommand bench; and __fish_seen_subcommand_from comm" -l gpus -d 'How many of the devices are GPUs that CUDA\'s own driver has, the first ones; the others are CPU devices' -r
complete -c penstock -n "__fish_penstock_using_subcommand bench; and __fish_seen_subcommand_from comm" -l word -d 'Bytes of a word, for joules by word' -r
complete -c penstock -n "__fish_penstock_using_subcommand bench; and __fish_seen_subcommand_from comm" -l seconds -d 'How long each figure is measured at least [default: 0.5; 0.1 with --quick; 2 or more where energy is measured]' -r
complete -c penstock -n "__fish_penstock_using_subcommand bench; and __fish_seen_subcommand_from comm" -l svg -d 'Write a picture of the figures there, as SVG' -r -F
complete -c penstock -n "__fish_penstock_using_subcommand bench; and __fish_seen_subcommand_from comm" -l as-rank -d 'Take part as one process of a host path: the file says how, and the number which one' -r -F
complete -c penstock -n "__fish_penstock_using_subcommand bench; and __fish_seen_subcommand_from comm" -l json -d 'Write JSON'
complete -c penstock -n "__fish_penstock_using_subcommand bench; and __fish_seen_subcommand_from comm" -l quick -d 'Take fewer sizes and samples: less than a minute, and less exact'
complete -c penstock -n "__fish_penstock_using_subcommand bench; and __fish_seen_subcommand_from comm" -l bars -d 'Say which of the bars of docs/comm.md are met'
complete -c penstock -n "__fish_penstock_using_subcommand bench; and __fish_seen_subcommand_from comm" -l require-energy -d 'Fail if no energy can be measured'
complete -c penstock -n "__fish_penstock_using_subcommand bench; and __fish_seen_subcommand_from comm" -s h -l help -d 'Print help'
complete -c penstock -n "__fish_penstock_using_subcommand check" -l exhaustive -d 'With --machine: run all programs of up to this many operations instead of random ones' -r
complete -c penstock -n "__fish_penstock_using_subcommand check" -l turns -d 'With --exhaustive: at this many points of a run another step comes than the first possible one' -r
complete -c penstock -n "__fish_penstock_using_subcommand check" -l platform -d 'The platform: the first one with devices whose name contains this text' -r
complete -c penstock -n "__fish_penstock_using_subcommand check" -l seed -d 'The seed of the first program; the next programs have the next seeds' -r
complete -c penstock -n "__fish_penstock_using_subcommand check" -l programs -d 'How many programs are run' -r
complete -c penstock -n "__fish_penstock_using_subcommand check" -l seconds -d 'For how long programs are run [default: 60]' -r
complete -c penstock -n "__fish_penstock_using_subcommand check" -l ops -d 'Roughly how many operations a program has at most' -r
complete -c penstock -n "__fish_penstock_using_subcommand check" -l jobs -d 'How many programs run at a time, each in a process of its own' -r
complete -c penstock -n "__fish_penstock_using_subcommand check" -l only -d 'Programs contain only these features besides buffers, in-order queues, transfers and launches' -r
complete -c penstock -n "__fish_penstock_using_subcommand check" -l without -d 'Programs do not contain these features' -r
complete -c penstock -n "__fish_penstock_using_subcommand check" -l shrink-seconds -d 'For how long each kind of finding is made smaller; 0 leaves the programs as they are' -r
complete -c penstock -n "__fish_penstock_using_subcommand check" -l hang-seconds -d 'After how many seconds a program counts as hanging' -r
complete -c penstock -n "__fish_penstock_using_subcommand check" -l findings -d 'How many findings end the run' -r
complete -c penstock -n "__fish_penstock_using_subcommand check" -l out -d 'The folder for the programs that found something, as C files' -r -F
complete -c penstock -n "__fish_penstock_using_subcommand check" -l replay -d 'Run the program of a file that an earlier run wrote, instead of random ones' -r -F
complete -c penstock -n "__fish_penstock_using_subcommand check" -l machine -d 'Run small programs on the client\'s memory model alone, without a driver; takes --seed, --programs and --seconds'
complete -c penstock -n "__fish_penstock_using_subcommand check" -l json -d 'Write the summary as JSON'
complete -c penstock -n "__fish_penstock_using_subcommand check" -l list -d 'List the features and end'
complete -c penstock -n "__fish_penstock_using_subcommand check" -l child -d 'Serve a campaign: requests come from standard input'
complete -c penstock -n "__fish_penstock_using_subcommand check" -s h -l help -d 'Print help'
complete -c penstock -n "__fish_penstock_using_subcommand demo" -l output -d 'Where to write the timelines' -r -F
complete -c penstock -n "__fish_penstock_using_subcommand demo" -s h -l help -d 'Print help'
complete -c penstock -n "__fish_penstock_using_subcommand sim" -l nodes -d 'How many nodes' -r
complete -c penstock -n "__fish_penstock_using_subcommand sim" -l platform -d 'The cluster: gbe, ib-qdr, or a platform file of SimGrid' -r
complete -c penstock -n "__fish_penstock_using_subcommand sim" -l model -d 'The nodes\' devices and the time of their kernels: vsc2, or a file' -r
complete -c penstock -n "__fish_penstock_using_subcommand sim" -l dcr -d 'Replacement of transfers by collective ones: off, paper or auto [default: the library\'s]' -r
complete -c penstock -n "__fish_penstock_using_subcommand sim" -l option -d 'An option of SimGrid, as smpi/test:1e-6. Can be given several times' -r
complete -c penstock -n "__fish_penstock_using_subcommand sim" -l verbose -d 'Show what SimGrid says of itself'
complete -c penstock -n "__fish_penstock_using_subcommand sim" -s h -l help -d 'Print help'
complete -c penstock -n "__fish_penstock_using_subcommand energy" -l output -d 'Write there, instead of to standard error, what was measured' -r -F
complete -c penstock -n "__fish_penstock_using_subcommand energy" -l idle -d 'For how long idle power is measured before the command, and again after it; 0 does without' -r
complete -c penstock -n "__fish_penstock_using_subcommand energy" -l interval -d 'Time between two samples of power, of sources that have no energy counter, in milliseconds' -r
complete -c penstock -n "__fish_penstock_using_subcommand energy" -l power-model -d 'Watts of a busy and of an idle core, for figures named model_' -r -F
complete -c penstock -n "__fish_penstock_using_subcommand energy" -l json -d 'Write JSON'
complete -c penstock -n "__fish_penstock_using_subcommand energy" -l psys -d 'Try the perf event energy-psys too; where it is dead, as in virtual machines, the kernel logs a warning'
complete -c penstock -n "__fish_penstock_using_subcommand energy" -l require-energy -d 'Fail, before the command is run, if no energy can be measured'
complete -c penstock -n "__fish_penstock_using_subcommand energy" -s h -l help -d 'Print help'
complete -c penstock -n "__fish_penstock_using_subcommand key" -l create -d 'Make a new key, unless there is one'
complete -c penstock -n "__fish_penstock_using_subcommand key" -l path -d 'Print only the path of the key file'
complete -c penstock -n "__fish_penstock_using_subcommand key" -s h -l help -d 'Print help'
complete -c penstock -n "__fish_penstock_using_subcommand completions" -s h -l help -d 'Print help'
