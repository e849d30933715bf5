# hashcat compiles and links many programs, keeps their binaries, and uses two contexts and all
# devices.
SEVERAL=yes
# PoCL compiles for half a minute in each run.
LANE=slow
# The words that it must find are known.
LOCAL=no
needs() { command -v hashcat >/dev/null || { echo "hashcat is not installed"; return 1; }; }
run() {
    local word
    for word in $(seq 1 3000); do echo "word$((word * 7919 % 100003))"; done >words.txt
    for word in $(sed -n '1p;7p;2000p;3000p' words.txt); do
        echo "$(printf %s "$word" | md5sum | cut -c 1-32):$word"
    done >pairs.txt
    cut -d : -f 1 pairs.txt >hashes.txt
    sort pairs.txt pairs.txt >expected.txt
    # A separate cache for binaries: the second run loads what the first one built.
    export XDG_DATA_HOME=$XDG_CACHE_HOME HOME=$XDG_CACHE_HOME
    mkdir -p "$XDG_CACHE_HOME"
    hashcat -m 0 -a 0 -O --potfile-disable --force --quiet --outfile found.txt hashes.txt words.txt || return 1
    hashcat -m 0 -a 0 -O --potfile-disable --force --outfile again.txt hashes.txt words.txt >screen.txt || { cat screen.txt; return 1; }
    grep -q 'Status.*: Cracked' screen.txt || { cat screen.txt; return 1; }
    sort found.txt again.txt >result.txt
    grep -c . result.txt | sed 's/$/ found in two runs/' >note.txt
    diff -u expected.txt result.txt
}
