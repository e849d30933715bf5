// Every state space, vectors, structures, tables of pointers.
struct Point {
    float x, y, z;
};
struct Body {
    Point position;
    double mass;
    char name[5];
};

__constant__ float weights[16] = {1, 2, 3.5f, -4};
__constant__ int table[2][3] = {{1, 2, 3}, {4, 5}};
__device__ int counter = 7;
__device__ float buffer[1024];
__device__ Body bodies[3] = {{{1, 2, 3}, 4.5, "abc"}};
__device__ int *where = &counter;
__device__ const char *names[3] = {"one", "two", "three"};
__device__ int *inside[2] = {(int *)&buffer[4], &counter};
__device__ unsigned char bytes[5] = {1, 2, 3, 0, 255};
extern __shared__ float dynamic[];

extern "C" __global__ void spaces(float *out, int n, Body by_value, char tail) {
    __shared__ float tile[32][33];
    __shared__ double slow[8];
    int t = threadIdx.x;
    tile[t & 31][t >> 5] = by_value.position.x + weights[t & 15] + buffer[t];
    slow[t & 7] = by_value.mass + bodies[1].mass;
    dynamic[t] = tile[0][t & 31];
    __syncthreads();
    out[t] = tile[t >> 5][t & 31] + (float)slow[t & 3] + dynamic[n - t] +
             (float)table[t & 1][t % 3] + (float)*where + (float)tail;
    out[t + 1] = (float)names[t % 3][1] + (float)*inside[t & 1] + (float)bytes[t % 5];
}

extern "C" __global__ void local_memory(int *out, int n) {
    int stack[40];
    for (int i = 0; i < 40; i++) stack[i] = i * n;
    int at = out[0];
    stack[at % 40] += 3;
    out[threadIdx.x] = stack[(at + threadIdx.x) % 40];
}

extern "C" __global__ void vectors(float4 *a, const float4 *__restrict__ b, double2 *c, uchar4 *d,
                                   short2 *e, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 v = b[i];
    float4 w = __ldg(&b[i + n]);
    a[i] = make_float4(v.x + w.w, v.y, w.z, v.w);
    double2 q = c[i];
    c[i] = make_double2(q.y, q.x);
    uchar4 bytes = d[i];
    d[i] = make_uchar4(bytes.w, bytes.z, bytes.y, bytes.x);
    short2 s = e[i];
    e[i] = make_short2(s.y, s.x);
}

__device__ __noinline__ int through(int *generic, int n) {
    __shared__ int hidden[16];
    hidden[n & 15] = *generic;
    __syncthreads();
    return hidden[(n + 1) & 15] + *generic;
}

extern "C" __global__ void generic_addresses(int *out, int choose) {
    __shared__ int near[4];
    int own[4];
    own[choose & 3] = choose;
    near[threadIdx.x & 3] = 5;
    int *p = choose == 0 ? near : choose == 1 ? own : out;
    out[threadIdx.x] = through(p, choose) + __isShared(p) + __isGlobal(p);
}

extern "C" __global__ void copies(Body *to, const Body *from) {
    to[threadIdx.x] = from[threadIdx.x];
    volatile int *flag = (volatile int *)&to[0].name;
    *flag = 3;
    __threadfence();
    __threadfence_block();
    __threadfence_system();
    if (*flag == 4) __trap();
}
