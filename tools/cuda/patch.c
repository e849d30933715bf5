/* Has the runtime inside a program replaced before the program's own constructors run: those of
 * libraries that are preloaded come first. And the runtimes inside libraries that the program loads
 * later, such as extension modules of Python. Loads our libraries before files that would load
 * NVIDIA's from folders of their own. And has NVRTC give programs that ask it for machine
 * code the PTX that this was made of. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

extern void penstock_cuda_redirect(void);
extern void *penstock_cuda_loaded(void);
extern const char *penstock_cuda_stand_in(const char *name, int flags);
extern void penstock_cuda_redirect_loaded(void *before);

typedef void *(*opener)(const char *, int);
static opener next;

__attribute__((constructor)) static void start(void) {
    next = (opener)dlsym(RTLD_NEXT, "dlopen");
    penstock_cuda_redirect();
}

/* Called in the place of the system's. That one goes by its caller where a name has no folder (the
 * caller's list of folders) or is relative to the caller ($ORIGIN): it is jumped to then, so that
 * the caller stays who it was, and what is loaded is not looked at. */
__attribute__((visibility("default"), optimize("O2"))) void *dlopen(const char *name, int flags) {
    if (!next) next = (opener)dlsym(RTLD_NEXT, "dlopen");
    if (!name || strchr(name, '$')) return next(name, flags);
    /* Our own libraries contain no runtime that must be looked for. */
    const char *ours = penstock_cuda_stand_in(name, flags);
    if (ours) return next(ours, flags);
    if (!strchr(name, '/')) return next(name, flags);
    void *before = penstock_cuda_loaded();
    void *handle = next(name, flags);
    penstock_cuda_redirect_loaded(before);
    return handle;
}

/* NVRTC's functions, by its documentation; its codes are numbers from 0, which is success. */
typedef int (*nvrtc_size)(void *program, size_t *size);
typedef int (*nvrtc_code)(void *program, char *code);
enum { nvrtc_internal_error = 11 };

/* Bytes of a program's PTX with the 0 behind it; 0 where there is none, as of programs for its
 * linker. */
static size_t ptx_bytes(void *program) {
    nvrtc_size ptx = (nvrtc_size)dlsym(RTLD_NEXT, "nvrtcGetPTXSize");
    size_t bytes = 0;
    return ptx && dlsym(RTLD_NEXT, "nvrtcGetPTX") && ptx(program, &bytes) == 0 && bytes > 1 ? bytes
                                                                                            : 0;
}

/* NVIDIA's samples compile for the device's own architecture, which gives machine code that no
 * device here runs. The driver takes PTX wherever it takes that. */
__attribute__((visibility("default"))) int nvrtcGetCUBINSize(void *program, size_t *size) {
    size_t bytes = ptx_bytes(program);
    nvrtc_size machine = (nvrtc_size)dlsym(RTLD_NEXT, "nvrtcGetCUBINSize");
    if (!size || !bytes) return machine ? machine(program, size) : nvrtc_internal_error;
    *size = bytes;
    return 0;
}

__attribute__((visibility("default"))) int nvrtcGetCUBIN(void *program, char *code) {
    const char *name = ptx_bytes(program) ? "nvrtcGetPTX" : "nvrtcGetCUBIN";
    nvrtc_code get = (nvrtc_code)dlsym(RTLD_NEXT, name);
    return get ? get(program, code) : nvrtc_internal_error;
}
