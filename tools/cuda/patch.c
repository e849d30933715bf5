/* Has the runtime inside a program replaced before the program's own constructors run: those of libraries that are preloaded come first.
 * And the runtimes inside libraries that the program loads later, such as extension modules of Python. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

extern void penstock_cuda_redirect(void);
extern void *penstock_cuda_loaded(void);
extern void penstock_cuda_redirect_loaded(void *before);

typedef void *(*opener)(const char *, int);
static opener next;

__attribute__((constructor)) static void start(void) {
    next = (opener)dlsym(RTLD_NEXT, "dlopen");
    penstock_cuda_redirect();
}

/* Called in the place of the system's. That one goes by its caller where a name has no folder (the caller's list of folders) or is relative to the
 * caller ($ORIGIN): it is jumped to then, so that the caller stays who it was, and what is loaded is not looked at. */
__attribute__((visibility("default"), optimize("O2"))) void *dlopen(const char *name, int flags) {
    if (!next) next = (opener)dlsym(RTLD_NEXT, "dlopen");
    if (!name || !strchr(name, '/') || strchr(name, '$')) return next(name, flags);
    void *before = penstock_cuda_loaded();
    void *handle = next(name, flags);
    penstock_cuda_redirect_loaded(before);
    return handle;
}
