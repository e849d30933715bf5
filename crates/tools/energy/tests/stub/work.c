/* Works for exactly 0.2 s of core time in each of two threads, and 0.1 s in a child that it waits
 * for. Exits with the given code. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void work(double seconds) {
    struct timespec now;
    do clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    while ((double)now.tv_sec + 1e-9 * (double)now.tv_nsec < seconds);
}

static void *thread(void *unused) {
    (void)unused;
    work(0.2);
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, thread, NULL);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    pid_t child = fork();
    if (child == 0) {
        work(0.1);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    return argc > 1 ? atoi(argv[1]) : 0;
}
