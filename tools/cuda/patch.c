/* Has the runtime inside a program replaced before the program's own constructors run: those of libraries that are preloaded come first. */
extern void penstock_cuda_redirect(void);

__attribute__((constructor)) static void start(void) { penstock_cuda_redirect(); }
