// What a program prints, for tests of printf() in kernels.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

#include <unistd.h>

// Returns the text that `run` prints, through a file, as if the program's output were redirected.
template <typename Run> std::string printed(Run run) {
    char path[] = "/tmp/penstock-printing.XXXXXX";
    const int file = mkstemp(path);
    std::fflush(stdout);
    const int before = dup(1);
    dup2(file, 1);
    run();
    std::fflush(stdout);
    dup2(before, 1);
    close(before);
    std::string text;
    char part[4096];
    lseek(file, 0, SEEK_SET);
    for (ssize_t count; (count = read(file, part, sizeof part)) > 0;) text.append(part, count);
    close(file);
    unlink(path);
    return text;
}
