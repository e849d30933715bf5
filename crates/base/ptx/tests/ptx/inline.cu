// Instructions that nvcc emits only for inline assembly.
extern "C" __global__ void carries(unsigned *out, const unsigned *a, const unsigned *b) {
    unsigned r0, r1, r2;
    asm("add.cc.u32 %0, %3, %6;\n\t"
        "addc.cc.u32 %1, %4, %7;\n\t"
        "addc.u32 %2, %5, %8;"
        : "=r"(r0), "=r"(r1), "=r"(r2)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(b[0]), "r"(b[1]), "r"(b[2]));
    asm("sub.cc.u32 %0, %0, %3;\n\t subc.cc.u32 %1, %1, %4;\n\t subc.u32 %2, %2, %5;"
        : "+r"(r0), "+r"(r1), "+r"(r2)
        : "r"(a[3]), "r"(a[4]), "r"(a[5]));
    asm("mad.lo.cc.u32 %0, %1, %2, %0;\n\t madc.hi.u32 %1, %1, %2, 0;"
        : "+r"(r0), "+r"(r1)
        : "r"(r2));
    out[0] = r0 + r1 + r2;
}

extern "C" __global__ void bits(unsigned *out, const unsigned *in, unsigned long long *wide) {
    unsigned a = in[0], b = in[1], r, s;
    asm("bfe.u32 %0, %1, 4, 8;" : "=r"(r) : "r"(a));
    asm("bfi.b32 %0, %1, %2, 8, 12;" : "=r"(s) : "r"(a), "r"(b));
    out[0] = r + s;
    asm("bfind.u32 %0, %1;" : "=r"(r) : "r"(a));
    asm("bfind.shiftamt.s32 %0, %1;" : "=r"(s) : "r"(b));
    out[1] = r + s;
    asm("lop3.b32 %0, %1, %2, %0, 0xE8;" : "+r"(r) : "r"(a), "r"(b));
    asm("prmt.b32.f4e %0, %1, %2, 3;" : "=r"(s) : "r"(a), "r"(b));
    out[2] = r + s;
    asm("shf.r.wrap.b32 %0, %1, %2, 9;" : "=r"(r) : "r"(a), "r"(b));
    asm("{ .reg .pred p, q; setp.lt.and.u32 p|q, %1, %2, 1; @p mov.u32 %0, 1; @!q add.u32 %0, %0, 2; }"
        : "+r"(s)
        : "r"(a), "r"(b));
    out[3] = r + s;
    asm("slct.s32.f32 %0, %1, %2, 0f3F800000;" : "=r"(r) : "r"(a), "r"(b));
    asm("set.gt.u32.s32 %0, %1, %2;" : "=r"(s) : "r"(a), "r"(b));
    out[4] = r + s;
    asm("cnot.b32 %0, %1;" : "=r"(r) : "r"(a));
    asm("dp4a.u32.s32 %0, %1, %2, 5;" : "=r"(s) : "r"(a), "r"(b));
    out[5] = r + s;
    asm("mad24.lo.s32 %0, %1, %2, 3;" : "=r"(r) : "r"(a), "r"(b));
    asm("sad.u32 %0, %1, %2, 3;" : "=r"(s) : "r"(a), "r"(b));
    out[6] = r + s;
    asm("mov.b64 %0, {%1, %2};" : "=l"(wide[0]) : "r"(a), "r"(b));
    asm("{ .reg .b32 x; mov.b64 {x, %0}, %1; }" : "=r"(out[7]) : "l"(wide[1]));
}

extern "C" __global__ void barriers(int *out) {
    asm volatile("bar.sync 1, 64;");
    asm volatile("bar.arrive 2, 128;");
    asm volatile("barrier.sync 3;");
    int r;
    asm volatile("{ .reg .pred p; setp.ne.s32 p, %1, 0; bar.red.popc.u32 %0, 0, p; }"
                 : "=r"(r)
                 : "r"(out[0]));
    asm volatile("fence.acq_rel.gpu;");
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(r) : "l"(out));
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(out), "r"(r));
    asm volatile("red.global.add.s32 [%0], 1;" ::"l"(out));
    asm volatile("prefetch.global.L2 [%0];" ::"l"(out));
    out[1] = r;
}
