
static void hangs(int number) {
    static const char text[] = "WRONG: the program hangs\n";
    (void)number;
    if (write(1, text, sizeof text - 1)) {}
    _exit(1);
}
int main(int argc, char **argv) {
    int runs = argc > 1 ? atoi(argv[1]) : 20;
    if (argc > 2) wanted_platform = argv[2];
    for (int i = 0; i < runs; i++) {
        int status = 0;
        pid_t child = fork();
        if (child == 0) {
            signal(SIGALRM, hangs);
            alarm(20);
            run();
            fflush(stdout);
            _exit(0);
        }
        if (child < 0 || waitpid(child, &status, 0) < 0) return 2;
        if (WIFSIGNALED(status)) {
            printf("WRONG: run %d ended by signal %d\n", i, WTERMSIG(status));
            return 1;
        }
        if (WEXITSTATUS(status) != 0) return WEXITSTATUS(status);
    }
    printf("right in %d runs\n", runs);
    return 0;
}
