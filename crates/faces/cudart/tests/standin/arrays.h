/* Arrays, textures and surfaces of the stand-in for the driver. */

/* Arrays: rows without gaps */
struct array {
    size_t width, height, depth;
    unsigned format, channels, flags;
    char *memory;
};
struct array_descriptor {
    size_t width, height;
    unsigned format, channels;
};
struct array3d_descriptor {
    size_t width, height, depth;
    unsigned format, channels, flags;
};
static size_t element(const struct array *array) {
    static const unsigned bits[0x21] = {[1] = 1, [2] = 2,  [3] = 4,  [8] = 1,
                                        [9] = 2, [10] = 4, [16] = 2, [32] = 4};
    return bits[array->format] * array->channels;
}
int cuArray3DCreate_v2(struct array **array, const struct array3d_descriptor *d) {
    CONTEXT();
    note("cuArray3DCreate %zux%zux%zu flags %u", d->width, d->height, d->depth, d->flags);
    struct array *made = calloc(1, sizeof *made);
    *made = (struct array){d->width, d->height, d->depth, d->format, d->channels, d->flags, NULL};
    made->memory =
        calloc(element(made), d->width * (d->height ? d->height : 1) * (d->depth ? d->depth : 1));
    *array = made;
    return OK;
}
int cuArrayCreate_v2(struct array **array, const struct array_descriptor *d) {
    return cuArray3DCreate_v2(
        array, &(struct array3d_descriptor){d->width, d->height, 0, d->format, d->channels, 0});
}
int cuArray3DGetDescriptor_v2(struct array3d_descriptor *d, const struct array *a) {
    *d = (struct array3d_descriptor){a->width,  a->height,   a->depth,
                                     a->format, a->channels, a->flags};
    return OK;
}
int cuArrayDestroy(struct array *array) {
    free(array->memory);
    free(array);
    return OK;
}

struct copy3d {
    size_t sx, sy, sz, slod;
    unsigned stype;
    const void *shost;
    address sdevice;
    struct array *sarray;
    void *r0;
    size_t spitch, sheight;
    size_t dx, dy, dz, dlod;
    unsigned dtype;
    void *dhost;
    address ddevice;
    struct array *darray;
    void *r1;
    size_t dpitch, dheight;
    size_t width, height, depth;
};
static char *end_of(unsigned type, const void *host, address device, struct array *array,
                    size_t *pitch, size_t *height) {
    if (type == 1) return (char *)(uintptr_t)host;
    if (type == 2) return find(device, 0);
    *pitch = array->width * element(array);
    *height = array->height ? array->height : 1;
    return array->memory;
}
int cuMemcpy3DAsync_v2(const struct copy3d *c, void *stream) {
    CONTEXT();
    note("copy %zux%zux%zu from %u to %u stream %lu", c->width, c->height, c->depth, c->stype,
         c->dtype, (unsigned long)(uintptr_t)stream);
    size_t sp = c->spitch, sh = c->sheight, dp = c->dpitch, dh = c->dheight;
    char *from = end_of(c->stype, c->shost, c->sdevice, c->sarray, &sp, &sh),
         *to = end_of(c->dtype, c->dhost, c->ddevice, c->darray, &dp, &dh);
    if (!from || !to) return INVALID_VALUE;
    for (size_t z = 0; z < c->depth; z++)
        for (size_t y = 0; y < c->height; y++)
            memmove(to + ((c->dz + z) * dh + c->dy + y) * dp + c->dx,
                    from + ((c->sz + z) * sh + c->sy + y) * sp + c->sx, c->width);
    return OK;
}
int cuMemcpy3D_v2(const struct copy3d *c) { return cuMemcpy3DAsync_v2(c, NULL); }
struct copy2d {
    size_t sx, sy;
    unsigned stype;
    const void *shost;
    address sdevice;
    struct array *sarray;
    size_t spitch;
    size_t dx, dy;
    unsigned dtype;
    void *dhost;
    address ddevice;
    struct array *darray;
    size_t dpitch;
    size_t width, height;
};
int cuMemcpy2DAsync_v2(const struct copy2d *c, void *stream) {
    struct copy3d whole = {.sx = c->sx,
                           .sy = c->sy,
                           .stype = c->stype,
                           .shost = c->shost,
                           .sdevice = c->sdevice,
                           .sarray = c->sarray,
                           .spitch = c->spitch,
                           .dx = c->dx,
                           .dy = c->dy,
                           .dtype = c->dtype,
                           .dhost = c->dhost,
                           .ddevice = c->ddevice,
                           .darray = c->darray,
                           .dpitch = c->dpitch,
                           .width = c->width,
                           .height = c->height,
                           .depth = 1};
    return cuMemcpy3DAsync_v2(&whole, stream);
}
int cuMemcpy2DUnaligned_v2(const struct copy2d *c) { return cuMemcpy2DAsync_v2(c, NULL); }
struct resource {
    unsigned kind;
    unsigned pad;
    address handle;
    unsigned format, channels;
    size_t width, height, pitch;
};
int cuTexObjectCreate(uint64_t *object, const struct resource *of, const unsigned *how,
                      const void *view) {
    CONTEXT();
    note("cuTexObjectCreate kind %u format %u channels %u width %zu pitch %zu filter %u flags %u "
         "view %d",
         of->kind, of->format, of->channels, of->width, of->pitch, how[3], how[4], view != NULL);
    static uint64_t next = 77;
    *object = next++;
    return OK;
}
int cuTexObjectDestroy(uint64_t object) {
    note("cuTexObjectDestroy %lu", (unsigned long)object);
    return OK;
}
